"""Turns, sessions and figures over HTTP, and which principals may read them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from voicepipe.auth.tokens import session_prefix, verify
from voicepipe.clock import unix_ms, unix_s
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.record.values import ModelAttempt
from voicepipe.values import replace


def stored_turn(
    id: str, *, project: str = "acme", ago_ms: int = 60_000, agent: str = "default", **more: Any
) -> StoredTurn:
    of_turn = {name: more.pop(name) for name in ("user", "language", "route", "arm") if name in more}
    record = replace(turn_record(), id=id, **{"session": f"sess_{project}", **more})
    return StoredTurn(record, project, agent, unix_ms() - ago_ms, **of_turn)


def turns() -> tuple[StoredTurn, ...]:
    """Return turns of the last minutes, at whatever time the test runs."""
    return (
        stored_turn("t1", ago_ms=300_000, user="anna", language="de"),
        stored_turn("t2", ago_ms=200_000, total_ms=1_700, total_verdict="over", agent="support"),
        stored_turn("t3", outcome="failed", reason="llm: broke", cause="tool", session="sess_other"),
        stored_turn("x1", project="bank"),
    )


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", ["t3", "t2", "t1"]),
        ("agent=support", ["t2"]),
        ("outcome=failed", ["t3"]),
        ("cause=tool", ["t3"]),
        ("over=true", ["t2"]),
        ("user=anna", ["t1"]),
        ("language=de", ["t1"]),
        ("text=OTHER", ["t3"]),
        ("words=TIME+IS", ["t3", "t2", "t1"]),
        ("words=never+said", []),
        ("session=sess_acme", ["t2", "t1"]),
        ("order=slowest&limit=1", ["t2"]),
        ("since={MIDDLE_MS}", ["t3", "t2"]),
        ("until={MIDDLE_MS}", ["t1"]),
        ("since=2001-01-01&until=2001-01-02T00:00:00Z", []),
        ("provider=nobody", []),
        ("model=nobody/x", []),
        ("project=acme&limit=1", ["t3"]),
        ("project=&limit=1", ["t3"]),
    ],
)
async def test_a_list_has_the_turns_that_match(serve: Any, query: str, ids: list[str]) -> None:
    """And nothing of another project, for a key of one."""
    async with serve() as server:
        await server.context.turns.store(turns())
        query = query.format(MIDDLE_MS=unix_ms() - 250_000)  # not above: a test's name may not depend on when it runs
        status, page = await server.get(f"/v1/turns?{query}", headers=server.new_key())
        assert (status, [turn["id"] for turn in page["data"]]) == (200, ids)


@pytest.mark.parametrize(
    ("path", "param", "why"),
    [
        ("/v1/turns?outcome=dead", "outcome", "completed, interrupted"),
        ("/v1/turns?cause=why", "cause", "vad"),
        ("/v1/turns?order=oldest", "order", "newest, slowest"),
        ("/v1/turns?since=yesterday", "since", "2026-11-21T09:00:00Z"),
        ("/v1/turns?until=99999999999999999999", "until", "whole number"),
        ("/v1/turns?since=20&until=10", "until", "after"),
        ("/v1/turns?limit=0", "limit", "1 to 200"),
        ("/v1/turns?limit=x", "limit", "whole number"),
        ("/v1/turns?before=x", "before", "next"),
        ("/v1/turns?agent=", "agent", "1 to 200 characters"),
        ("/v1/turns?agents=x", "agents", "Unknown parameter"),
        ("/v1/turns?words=", "words", "1 to 200 characters"),
        ("/v1/stats?words=lunch", "words", "Unknown parameter"),
        ("/v1/stats?by=mood", "by", "agent, route"),
        ("/v1/stats?window=2h", "window", "1m, 15m, 1h, 24h, 7d, 30d"),
        ("/v1/stats?window=1m&since=1", "window", "got both"),
        ("/v1/stats?step=1", "step", "whole minutes"),
        ("/v1/sessions?outcome=failed", "outcome", "Unknown parameter"),
        ("/v1/sessions?live=yes", "live", "true, false"),
        ("/v1/turns/stream?window=1m", "window", "Unknown parameter"),
        ("/v1/turns/export?format=xml", "format", "csv or jsonl"),
        ("/v1/turns/export?limit=3", "limit", "Unknown parameter"),
    ],
)
async def test_a_wrong_parameter_is_named(serve: Any, path: str, param: str, why: str) -> None:
    async with serve() as server:
        status, body = await server.get(path)
        assert (status, body["error"]["param"]) == (400, param)
        assert why in body["error"]["message"]


async def test_an_operator_of_all_sees_every_project_or_one(serve: Any) -> None:
    """An operator of one project sees only that project, and is refused another; every turn names its project."""
    async with serve() as server:
        await server.context.turns.store(turns())
        every, own = (server.new_key("acme", scopes=[scope]) for scope in ("operate_all", "operate"))
        _, page = await server.get("/v1/turns", headers=every)
        assert {(turn["id"], turn["project"]) for turn in page["data"]} == {
            ("t1", "acme"),
            ("t2", "acme"),
            ("t3", "acme"),
            ("x1", "bank"),
        }
        _, page = await server.get("/v1/turns?project=bank", headers=every)
        assert [turn["id"] for turn in page["data"]] == ["x1"]
        assert (await server.get("/v1/turns/x1", headers=every))[0] == 200
        assert (await server.get("/v1/turns/x1", headers=own))[0] == 404
        for path in ("/v1/turns", "/v1/sessions", "/v1/stats", "/v1/turns/stream", "/v1/turns/export"):
            status, body = await server.get(f"{path}?project=bank", headers=own)
            assert (status, body["error"]["code"]) == (403, "own_project_only")


async def test_in_open_mode_all_turns_are_visible(serve: Any) -> None:
    async with serve() as server:
        await server.context.turns.store(turns())
        for query in ("", "?project="):
            _, page = await server.get(f"/v1/turns{query}")
            assert {turn["id"] for turn in page["data"]} == {"t1", "t2", "t3", "x1"}


async def test_figures_of_a_window_a_series_and_groups(serve: Any) -> None:
    """Figures cover the principal's own project; a window ends now, and the response states its bounds."""
    async with serve() as server:
        await server.context.turns.store(turns())
        key = server.new_key()
        status, day = await server.get("/v1/stats?window=24h&step=3600000&by=agent", headers=key)
        assert (status, day["object"]) == (200, "voicepipe.stats")
        assert (day["turns"], day["over"], day["outcomes"]) == (3, 1, {"completed": 2, "failed": 1})
        assert day["until_ms"] - day["since_ms"] == 86_400_000
        assert day["stages"][0]["stage"] == "total"
        assert {group["name"]: group["turns"] for group in day["groups"]} == {"default": 2, "support": 1}
        assert sum(point["turns"] for point in day["series"]) == 3
        _, quarter = await server.get("/v1/stats?window=15m&outcome=failed", headers=key)
        assert (quarter["turns"], quarter["series"], quarter["groups"]) == (1, [], [])
        _, everything = await server.get("/v1/stats", headers=server.new_key("x", scopes=["operate_all"]))
        assert (everything["turns"], everything["since_ms"]) == (4, None)


async def test_sessions_are_listed_by_their_turns(serve: Any) -> None:
    async with serve() as server:
        await server.context.turns.store(turns())
        status, page = await server.get("/v1/sessions", headers=server.new_key())
        assert (status, page["next"]) == (200, None)
        other, mine = page["data"]
        assert (other["id"], other["turns"], other["failed"], other["live"]) == ("sess_other", 1, 1, False)
        assert (mine["id"], mine["turns"], mine["over"], mine["slowest_ms"]) == ("sess_acme", 2, 1, 1_700)
        assert mine["started_at"] < mine["last_at"]
        _, found = await server.get("/v1/sessions?text=OTHER&limit=1", headers=server.new_key())
        assert [each["id"] for each in found["data"]] == ["sess_other"]


async def test_sessions_that_are_open_are_listed_while_they_are(serve: Any, gate: Any) -> None:
    """With their turns so far: a renewed record counts once, one that is still spoken not yet."""
    async with serve() as server:
        server.talks.append(gate)
        key = server.new_key()
        async with server.connect("/v1/realtime?agent=support", headers=key):
            await gate.began.wait()
            note = server.sessions[0].on_record
            session = server.grants[0].session_id
            for changes in ({"outcome": None}, {"total_ms": 1_200, "total_verdict": "over"}, {"reason": "renewed"}):
                note(replace(turn_record(), id="t1", **changes))
            note(replace(turn_record(), id="t2", outcome="failed"))
            _, page = await server.get("/v1/sessions?live=true", headers=key)
            (entry,) = page["data"]
            assert (entry["id"], entry["agent"], entry["live"], entry["project"]) == (session, "support", True, "acme")
            assert (entry["turns"], entry["over"], entry["failed"], entry["slowest_ms"]) == (2, 0, 1, 1_200)
            for query in ("agent=default", "user=anna", "text=nothing"):
                assert (await server.get(f"/v1/sessions?live=true&{query}", headers=key))[1]["data"] == []
            other = server.new_key("bank")
            assert (await server.get("/v1/sessions?live=true", headers=other))[1]["data"] == []
            gate.go.set()
        async with server.connect(headers=key) as later:  # taken in after the other has left for good
            await later.close()
        _, page = await server.get("/v1/sessions?live=true", headers=key)
        assert session not in [each["id"] for each in page["data"]]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stats",
        "/v1/sessions",
        "/v1/sessions?live=true",
        "/v1/sessions/sess_1/audio",
        "/v1/sessions/sess_1/audio/user",
        "/v1/webhooks",
        "/v1/webhooks/dead",
    ],
)
async def test_a_client_secret_sees_no_project(serve: Any, path: str) -> None:
    """Whatever scopes it has: it lives in a stranger's browser."""
    async with serve() as server:
        token = server.forge(scopes=["realtime", "turns", "operate", "operate_all"])
        status, body = await server.get(path, headers={"Authorization": f"Bearer {token}"})
        assert (status, body["error"]["code"]) in ((403, "api_key_required"), (403, "missing_scope"))


async def test_a_key_without_the_scope_reads_nothing(serve: Any) -> None:
    async with serve() as server:
        key = server.new_key(scopes=["realtime"])
        paths = (
            "/v1/turns",
            "/v1/stats",
            "/v1/sessions",
            "/v1/sessions/sess_1/audio",
            "/v1/sessions/sess_1/audio/user",
        )
        for path in (*paths, "/v1/turns/stream", "/v1/turns/export", "/v1/webhooks"):
            status, body = await server.get(path, headers=key)
            assert (status, body["error"]["code"]) == (403, "missing_scope")


WORDS = "HTTP 429: rate limit (org-acme-7731 has used its quota)"


def refused_turn(id: str, session: str) -> StoredTurn:
    """One whose provider named our account, everywhere where a record has its words."""
    attempt = ModelAttempt(
        provider="mind/m", role="primary", outcome="failed", began_ms=0, first_ms=None, why=WORDS, cost_usd=0.0
    )
    turn = stored_turn(id, session=session, outcome="failed", reason=f"llm: mind/m: {WORDS}", attempts=(attempt,))
    return replace(turn, record=replace(turn.record, route=f"mind/m refused: {WORDS}"))


async def test_a_providers_words_are_for_keys_and_not_for_client_secrets(serve: Any) -> None:
    """In a page of turns, in one turn, in an export, and in the live stream."""
    async with serve() as server:
        key = server.new_key("acme", scopes=("turns",))
        secret = server.forge(scopes=["realtime", "turns"])
        claims = verify(secret, server.context.key_store.keyring(unix_s()), now_s=unix_s())
        session, token = f"{session_prefix(claims)}1", {"Authorization": f"Bearer {secret}"}
        await server.context.turns.store([refused_turn("t9", session)])
        paths = [f"/v1/turns?session={session}", "/v1/turns/t9"]
        paths += [f"/v1/turns/export?session={session}&format={kind}" for kind in ("csv", "jsonl")]
        for path in paths:
            for who, are_visible in ((key, True), (token, False)):
                async with server.http.get(server.base + path, headers=who) as answer:
                    body = await answer.text()
                assert (answer.status, "org-acme-7731" in body) == (200, are_visible), path
                assert "failed" in body, "that it failed is told"
        for who, are_visible in ((key, True), (token, False)):
            async with server.http.get(f"{server.base}/v1/turns/stream?session={session}", headers=who) as answer:
                server.context.feed.on_record(refused_turn("t9", session))
                async with asyncio.timeout(WAIT_S):
                    body = (await answer.content.readuntil(b"event: turn\n")) + await answer.content.readline()
            assert b"t9" in body
            assert (b"org-acme-7731" in body) is are_visible


async def test_a_session_of_a_client_secret_gets_no_provider_errors_either(serve: Any) -> None:
    """What its events say is its grant's to decide."""
    async with serve() as server:
        key = server.new_key("acme")
        for who in (key, {"Authorization": f"Bearer {server.forge()}"}):
            async with server.connect(headers=who):
                pass
        assert [grant.redacted for grant in server.grants] == [False, True]
