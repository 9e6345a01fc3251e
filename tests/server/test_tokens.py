"""What a backend may ask of a client secret, and how it takes one back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt import PyJWKSet, PyJWS

from voicepipe.auth.tokens import MAX_TOKEN_BYTES, verify
from voicepipe.clock import unix_s
from voicepipe.cluster.port import counter
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.turn.record.values import TurnCost
from voicepipe.values import replace

EVERYTHING: dict[str, Any] = {
    "subject": "customer-4711",
    "identity": "Anna Example",
    "scopes": ["realtime", "turns"],
    "limits": {
        "max_sessions": 3,
        "session_seconds": 60,
        "turns": 20,
        "spend_usd": 0.5,
        "origins": ["https://shop.example"],
        "models": ["helper"],
        "agents": ["support"],
    },
    "routing": {"tier": "gold"},
    "locks": [{"field": "instructions", "hidden": True}, {"field": "audio.output.voice"}],
}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def claims_of(server: Any, token: str) -> Any:
    return verify(token, server.context.key_store.keyring(unix_s()), now_s=unix_s())


async def test_a_token_has_all_requested_claims(serve: Any) -> None:
    async with serve() as server:
        status, minted = await server.mint({"voicepipe": EVERYTHING}, headers=server.new_key("acme"))
        assert status == 200
        claims = claims_of(server, minted["value"])
        assert (claims.project, claims.subject, claims.identity) == ("acme", "customer-4711", "Anna Example")
        assert (claims.limits.turns, claims.limits.agents, claims.routing) == (20, ("support",), {"tier": "gold"})
        assert minted["voicepipe"]["token_id"] == claims.token_id
        async with server.connect(headers=bearer(minted["value"]) | {"Origin": "https://shop.example"}):
            pass
        (grant,) = server.grants
        assert (grant.agent, grant.identity, len(grant.locks)) == ("support", "Anna Example", 2)
        assert grant.expires_at - unix_s() <= 60


async def test_a_token_is_under_two_kilobytes_with_the_longest_session(serve: Any) -> None:
    """A larger header is refused by proxies on the way. The session itself lies in the shared store."""
    async with serve() as server:
        session = {"type": "realtime", "instructions": "Be brief. " * 10_000}
        status, minted = await server.mint({"session": session, "voicepipe": EVERYTHING}, headers=server.new_key())
        assert status == 200
        assert len(minted["value"]) < MAX_TOKEN_BYTES
        claims = claims_of(server, minted["value"])
        assert (claims.session, claims.config_id) == ({}, claims.token_id)
        async with server.connect(headers=bearer(minted["value"]) | {"Origin": "https://shop.example"}):
            pass
        assert server.grants[0].config == session


async def test_a_token_that_would_be_too_large_is_refused(serve: Any) -> None:
    async with serve() as server:
        routing = {f"name-{n}": "x" * 200 for n in range(10)}
        status, body = await server.mint({"voicepipe": {"routing": routing}})
        assert (status, body["error"]["code"]) == (400, "token_too_large")
        assert "shorten limits, routing" in body["error"]["message"]


@pytest.mark.parametrize(
    ("ours", "param"),
    [
        ({"limit": {}}, "voicepipe"),
        ({"limits": {"max_session": 1}}, "voicepipe.limits"),
        ({"limits": {"turns": 0}}, "voicepipe.limits.turns"),
        ({"limits": {"turns": True}}, "voicepipe.limits.turns"),
        ({"limits": {"agents": ["nobody"]}}, "voicepipe.limits.agents[0]"),
        ({"locks": [{"field": "instuctions"}]}, "voicepipe.locks[0].field"),
        ({"locks": [{"field": "audio.output.format", "hidden": True}]}, "voicepipe.locks[0].hidden"),
        ({"scopes": ["tokens"]}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"routing": {"tier": 1}}, "voicepipe.routing[...]"),
    ],
)
async def test_an_impossible_request_is_refused_and_named(serve: Any, ours: Any, param: str) -> None:
    async with serve() as server:
        status, body = await server.mint({"voicepipe": ours})
        assert (status, body["error"]["param"]) == (400, param), body


async def test_a_limit_on_spending_needs_prices(serve: Any) -> None:
    async with serve(unpriced="providers.fake.input_usd_per_million") as server:
        status, body = await server.mint({"voicepipe": {"limits": {"spend_usd": 1}}})
        assert (status, body["error"]["param"]) == (400, "voicepipe.limits.spend_usd")
        assert "providers.fake.input_usd_per_million is not set" in body["error"]["message"]


@pytest.mark.parametrize("by", ["token_id", "subject"])
async def test_a_running_call_ends_when_its_token_is_revoked(serve: Any, by: str) -> None:
    async with serve() as server:
        key = server.new_key("acme")
        _, mine = await server.mint({"voicepipe": {"subject": "anna"}}, headers=key)
        _, other = await server.mint({"voicepipe": {"subject": "bert"}}, headers=key)
        async with (
            server.connect(headers=bearer(mine["value"])) as line,
            server.connect(headers=bearer(other["value"])) as others,
        ):
            gone = {"token_id": mine["voicepipe"]["token_id"], "subject": "anna"}[by]
            assert await server.post("/v1/realtime/client_secrets/revoke", {by: gone}, headers=key) == (
                200,
                {"revoked": True},
            )
            closed = await line.receive(timeout=WAIT_S)
            assert (closed.type, closed.data, closed.extra) == (
                aiohttp.WSMsgType.CLOSE,
                4001,
                "This client secret was revoked.",
            )
            await others.send_str("still there")
            assert await others.receive_str(timeout=WAIT_S) == "still there"
        assert (await server.refused(headers=bearer(mine["value"])))[1]["code"] == "token_revoked"


async def test_a_subject_is_revoked_in_its_own_project_only(serve: Any) -> None:
    async with serve() as server:
        _, theirs = await server.mint({"voicepipe": {"subject": "anna"}}, headers=server.new_key("theirs"))
        gone = {"subject": "anna"}, {"token_id": theirs["voicepipe"]["token_id"]}
        mine = server.new_key("mine")
        for body in gone:
            assert (await server.post("/v1/realtime/client_secrets/revoke", body, headers=mine))[0] == 200
        async with server.connect(headers=bearer(theirs["value"])):
            pass


@pytest.mark.parametrize("body", [{}, {"token_id": "a", "subject": "b"}, {"token": "a"}, {"subject": ""}])
async def test_what_to_revoke_must_be_said_once(serve: Any, body: dict[str, str]) -> None:
    async with serve() as server:
        assert (await server.post("/v1/realtime/client_secrets/revoke", body))[0] == 400


async def test_a_call_that_was_revoked_on_its_way_in_does_not_begin(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the token and the start of the session."""
    async with serve() as server:
        token = server.forge()
        looks: list[bool] = [False, True]

        async def is_revoked(claims: Any) -> bool:
            return looks.pop(0)

        monkeypatch.setattr(server.context.cluster, "is_revoked", is_revoked)
        status, error = await server.refused(headers=bearer(token))
        assert (status, error["code"], looks) == (401, "token_revoked", [])


async def test_turns_of_all_its_sessions_count_and_end_the_call(serve: Any) -> None:
    async with serve() as server:
        token = server.forge(limits={"turns": 3})
        async with server.connect(headers=bearer(token)) as first, server.connect(headers=bearer(token)) as second:
            one, two = server.sessions
            one.on_record(replace(turn_record(), id="t1"))
            one.on_record(replace(turn_record(), id="t1", agent_text="the same, renewed"))
            one.on_record(replace(turn_record(), id="t2", outcome=None))
            one.on_record(replace(turn_record(), id="t3", user_text="", providers=(("stt", "ear"),)))
            two.on_record(replace(turn_record(), id="t4"))
            await counted(server, token, 2)
            two.on_record(replace(turn_record(), id="t5"))
            closed = await second.receive(timeout=WAIT_S)
            assert (closed.data, closed.extra) == (1008, "turn limit of this client secret reached: 3 turns")
            await first.send_str("still there")
            assert await first.receive_str(timeout=WAIT_S) == "still there"
        status, error = await server.refused(headers=bearer(token))
        assert (status, error["code"]) == (403, "limit_reached")
        assert error["message"].startswith("Turn limit of this client secret reached: 3 turns.")


async def counted(server: Any, token: str, turns: int) -> None:
    name = counter(claims_of(server, token), "turns")

    async def probe() -> bool | None:
        result = await server.context.cluster.count(name, 0, limit=None, until_s=unix_s() + 9, now_s=unix_s())
        return result.total == turns or None

    await eventually(probe)


async def test_spending_ends_the_call(serve: Any) -> None:
    """A turn costs what its record says."""
    async with serve() as server:
        token = server.forge(limits={"spend_usd": 0.5})
        async with server.connect(headers=bearer(token)) as line:
            for name in ("t1", "t2", "t3"):
                cost = TurnCost(usd=0.2, answer_usd=0.15, hedge_usd=0.05)
                server.sessions[0].on_record(replace(turn_record(), id=name, cost=cost))
            closed = await line.receive(timeout=WAIT_S)
            assert (closed.data, closed.extra) == (1008, "spend limit of this client secret reached: 0.5 USD")
        assert (await server.refused(headers=bearer(token)))[1]["code"] == "limit_reached"


async def test_who_hangs_up_in_every_turn_has_used_them_all_the_same(serve: Any) -> None:
    """The last records come when the line is already closed."""
    async with serve() as server:

        async def talk(socket: Any) -> None:
            while await socket.receive() is not None:
                pass
            server.sessions[-1].on_record(replace(turn_record(), id="cut", outcome="abandoned"))

        server.talks.append(talk)
        token = server.forge(limits={"turns": 1})
        async with server.connect(headers=bearer(token)):
            pass
        await counted(server, token, 1)
        assert (await server.refused(headers=bearer(token)))[1]["code"] == "limit_reached"


async def test_a_token_reads_the_turns_of_its_own_sessions_only(serve: Any) -> None:
    """In a stranger's browser it must not show what others said."""
    async with serve() as server:
        token = server.forge(project="acme", scopes=["realtime", "turns"])
        async with server.connect(headers=bearer(token)):
            pass
        own = server.grants[0].session_id
        await server.context.turns.store(
            [
                StoredTurn(replace(turn_record(), id="mine", session=own), "acme", "default", 1),
                StoredTurn(replace(turn_record(), id="theirs", session="sess_other"), "acme", "default", 2),
            ]
        )
        assert (await server.get("/v1/turns/mine", headers=bearer(token)))[0] == 200
        status, body = await server.get("/v1/turns/theirs", headers=bearer(token))
        assert (status, body["error"]["code"]) == (404, "turn_not_found")
        _, page = await server.get(f"/v1/turns?session={own}", headers=bearer(token))
        assert [turn["id"] for turn in page["data"]] == ["mine"]
        for query in ("", "?session=sess_other", "?session=sess_"):
            status, body = await server.get(f"/v1/turns{query}", headers=bearer(token))
            assert (status, body["error"]["code"]) == (403, "own_turns_only")


async def test_public_keys_are_published_and_verify_what_is_minted(serve: Any, tmp_path: Path) -> None:
    path = tmp_path / "signs.pem"
    private = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    async with serve(key_files=(path,)) as server:
        _, minted = await server.mint()
        async with server.http.get(f"{server.base}/.well-known/jwks.json") as answer:
            assert answer.headers["Cache-Control"] == "public, max-age=300"
            published = PyJWKSet.from_dict(await answer.json(content_type=None))
        (key,) = published.keys
        assert b"voicepipe-realtime" in PyJWS().decode(minted["value"][3:], key.key, algorithms=["EdDSA"])
        async with server.connect(headers=bearer(minted["value"])):
            pass


async def test_rotation_keeps_sessions_and_deleting_a_key_ends_them(serve: Any) -> None:
    async with serve() as server:
        _, before = await server.mint()
        old = server.context.key_store.keyring(unix_s()).signer.kid
        server.context.key_store.rotate(unix_s())
        _, after = await server.mint()
        for token in (before["value"], after["value"]):
            async with server.connect(headers=bearer(token)):
                pass
        server.context.key_store.remove(old)
        assert (await server.refused(headers=bearer(before["value"])))[1]["code"] == "unknown_key"
        async with server.connect(headers=bearer(after["value"])):
            pass
