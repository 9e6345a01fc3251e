"""A running server refuses every invalid way to sign in.

Refusals come before the upgrade, in JSON, and explain to an honest user what to do. `tests/test_security.py` holds the
list of attacks against these names.
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from voicepipe.clock import unix_s
from voicepipe.testing.waiting import WAIT_S


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def refused_everywhere(server: Any, token: str, code: str, words: str, status: int = 401) -> None:
    """The WebSocket and REST refuse it alike, and nothing of it is repeated."""
    _, error = await server.refused(headers=bearer(token))
    rest_status, body = await server.get("/v1/turns", headers=bearer(token))
    assert (rest_status, error["code"], body["error"]["code"]) == (status, code, code)
    assert words in error["message"]
    assert token not in json.dumps([error, body])
    assert server.grants == []


async def test_an_expired_token_is_refused(serve: Any) -> None:
    async with serve() as server:
        now_s = unix_s()
        token = server.forge(iat=now_s - 700, nbf=now_s - 700, exp=now_s - 100)
        await refused_everywhere(server, token, "token_expired", "Let your backend mint a new one")


async def test_a_token_of_the_future_is_refused(serve: Any) -> None:
    async with serve() as server:
        token = server.forge(nbf=unix_s() + 100)
        await refused_everywhere(server, token, "token_not_yet_valid", "set the clocks")


async def test_a_token_for_another_audience_is_refused(serve: Any) -> None:
    async with serve() as server:
        await refused_everywhere(server, server.forge(aud="mail"), "wrong_audience", "use it at the server")


async def test_a_token_of_another_issuer_is_refused(serve: Any) -> None:
    async with serve() as server:
        await refused_everywhere(server, server.forge(iss="evil"), "wrong_issuer", "this server accepts those of")


async def test_a_token_that_is_not_signed_is_refused(serve: Any) -> None:
    async with serve(burst=100) as server:
        head, payload, _ = server.forge().removeprefix("ek_").split(".")
        for alg in ("none", "None", "NONE"):
            unsigned = urlsafe_b64encode(json.dumps({"alg": alg, "kid": "x"}).encode()).decode().rstrip("=")
            for tail in ("", head):
                token = f"ek_{unsigned}.{payload}.{tail}"
                await refused_everywhere(server, token, "invalid_token", "Only signed tokens are accepted")


async def test_a_token_signed_with_the_public_key_as_secret_is_refused(serve: Any, tmp_path: Path) -> None:
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    path = tmp_path / "signs.pem"
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    async with serve(key_files=(path,)) as server:
        token = server.forge(key=public, header={"alg": "HS256"})
        await refused_everywhere(server, token, "invalid_token", "its key is for RS256 alone")


async def test_a_token_of_an_unknown_key_is_refused(serve: Any) -> None:
    async with serve() as server:
        token = server.forge(header={"kid": "hs-evil"}, key=b"x" * 32)
        await refused_everywhere(server, token, "unknown_key", "Request a new one from this server's backend")


async def test_a_token_of_a_known_key_with_another_secret_is_refused(serve: Any) -> None:
    async with serve() as server:
        await refused_everywhere(server, server.forge(key=b"x" * 32), "invalid_token", "signature that doesn't fit")


async def test_a_token_with_an_edited_payload_is_refused(serve: Any) -> None:
    async with serve() as server:
        head, payload, signature = server.forge().split(".")
        claims = json.loads(urlsafe_b64decode(payload + "=="))
        edited = urlsafe_b64encode(json.dumps({**claims, "project": "rival"}).encode()).decode().rstrip("=")
        await refused_everywhere(server, f"{head}.{edited}.{signature}", "invalid_token", "it was changed on its way")


async def test_a_token_with_a_limit_that_is_not_known_is_refused(serve: Any) -> None:
    """A limit that was not understood would be none."""
    async with serve() as server:
        token = server.forge(limits={"max_sesions": 1})
        await refused_everywhere(server, token, "invalid_token", "unknown field `max_sesions`")


async def test_a_token_used_by_a_page_that_it_is_not_for_is_refused(serve: Any) -> None:
    async with serve() as server:
        token = server.forge(limits={"origins": ["https://shop.example"]})
        for origin in ({"Origin": "https://evil.test"}, {"Origin": "null"}, {}):
            status, error = await server.refused(headers=bearer(token) | origin)
            assert (status, error["code"]) == (403, "origin_not_allowed")
            assert "https://shop.example" in error["message"]
        async with server.connect(headers=bearer(token) | {"Origin": "https://shop.example"}):
            pass


async def test_a_token_is_refused_for_another_model_or_agent(serve: Any) -> None:
    async with serve() as server:
        token = server.forge(limits={"models": ["cheap"], "agents": ["support"]})
        for query, code in (("model=expensive", "model_not_allowed"), ("agent=default", "agent_not_allowed")):
            status, error = await server.refused(f"/v1/realtime?{query}", headers=bearer(token))
            assert (status, error["code"]) == (403, code)
            assert "Let your backend mint one that fits" in error["message"]
        async with server.connect(headers=bearer(token)):
            pass
        assert server.grants[0].agent == "support"


async def test_a_single_use_token_is_good_once(serve: Any) -> None:
    """Of many that try at the same time one gets in."""
    async with serve() as server:
        token = server.forge(limits={"max_sessions": 1})

        async def status() -> int:
            try:
                async with server.connect(headers=bearer(token)) as line:
                    await line.send_str("hello")
                    assert await line.receive_str(timeout=WAIT_S) == "hello"
                    return 101
            except Exception as refused:
                return int(getattr(refused, "status", 0))

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(status()) for _ in range(8)]
        assert sorted(each.result() for each in tries) == [101, *[401] * 7]
        _, error = await server.refused(headers=bearer(token))
        assert error["code"] == "token_used_up"
        assert "Let your backend mint another one" in error["message"]


async def test_a_token_without_the_scope_does_not_reach_rest(serve: Any) -> None:
    async with serve() as server:
        status, body = await server.get("/v1/turns", headers=bearer(server.forge()))
        assert (status, body["error"]["code"]) == (403, "missing_scope")
        assert "'turns' is needed" in body["error"]["message"]


async def test_a_token_without_the_scope_does_not_talk(serve: Any) -> None:
    async with serve() as server:
        status, error = await server.refused(headers=bearer(server.forge(scopes=["turns"])))
        assert (status, error["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/realtime/client_secrets",
        "/v1/realtime/client_secrets/revoke",
        "/v1/realtime/sessions",
        "/v1/realtime/transcription_sessions",
    ],
)
async def test_a_token_mints_and_revokes_nothing_whatever_it_says(serve: Any, path: str) -> None:
    async with serve() as server:
        greedy = server.forge(scopes=["realtime", "tokens", "operate"])
        status, body = await server.post(path, {"token_id": "t2"}, headers=bearer(greedy))
        assert (status, body["error"]["code"]) == (403, "api_key_required")
        assert "Mint from your backend, with an API key" in body["error"]["message"]


async def test_a_revoked_key_opens_nothing_and_does_not_open_the_server(serve: Any) -> None:
    async with serve() as server:
        made = server.api_keys.create("acme", now_s=1)
        server.api_keys.revoke(made.key.id, now_s=2)
        status, error = await server.refused(headers=bearer(made.text))
        assert (status, error["code"]) == (401, "api_key_revoked")
        assert "voicepipe keys create" in error["message"]
        assert (await server.refused())[1]["code"] == "missing_credential"


async def test_a_request_without_credentials_is_explained_and_not_slowed_down(serve: Any) -> None:
    async with serve(burst=1) as server:
        server.new_key()
        for _ in range(3):
            status, error = await server.refused()
            assert (status, error["code"]) == (401, "missing_credential")
        assert "Authorization: Bearer KEY" in error["message"]


async def test_two_different_keys_in_one_request_are_refused(serve: Any) -> None:
    async with serve() as server:
        key = server.new_key()
        status, error = await server.refused(headers=key | {"api-key": "vp_other"})
        assert (status, error["code"]) == (401, "ambiguous_credential")
        assert "Expected one credential" in error["message"]


async def test_a_page_learns_without_the_upgrade_why_it_would_be_refused(serve: Any, gate: Any) -> None:
    """A browser reports no reason when its WebSocket fails."""
    async with serve(max_sessions=1) as server:
        used = server.forge(limits={"max_sessions": 1})
        async with server.connect(headers=bearer(used)):
            pass
        status, body = await server.get("/v1/realtime", headers=bearer(used))
        assert (status, body["error"]["code"]) == (401, "token_used_up")
        server.talks.append(gate)
        async with server.connect():
            await gate.began.wait()
            assert (await server.get("/v1/realtime"))[0] == 503
            gate.go.set()
        server.missing.append("models")
        assert (await server.get("/v1/realtime"))[0] == 503
