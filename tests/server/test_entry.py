"""Which requests the server accepts, for which principal, and which it refuses."""

from __future__ import annotations

import logging
from typing import Any

import aiohttp
import pytest

from voicepipe.auth.tokens import verify
from voicepipe.clock import unix_s
from voicepipe.cluster.revocation import RevokedToken
from voicepipe.testing.waiting import WAIT_S


async def test_open_mode_takes_any_credential_and_none(serve: Any) -> None:
    async with serve() as server:
        for headers in ({}, {"Authorization": "Bearer bench"}, {"api-key": "x"}, {"Authorization": "Basic eDp5"}):
            async with server.connect(headers=headers) as line:
                await line.send_str("hello")
                assert await line.receive_str(timeout=WAIT_S) == "hello"
        assert {(grant.project, grant.agent) for grant in server.grants} == {("default", "default")}


async def test_open_mode_never_takes_a_bad_token(serve: Any) -> None:
    async with serve() as server:
        status, error = await server.refused(headers={"Authorization": "Bearer ek_not.a.token"})
        assert (status, error["code"]) == (401, "invalid_token")
        assert error["type"] == "invalid_request_error"
        assert error["param"] is None
        assert server.grants == []


async def test_open_mode_refuses_a_foreign_page(serve: Any) -> None:
    async with serve(allowed_origins=("http://localhost:5173",)) as server:
        status, error = await server.refused(headers={"Origin": "https://evil.test"})
        assert (status, error["code"]) == (403, "origin_not_allowed")
        for origin in (server.base, "http://localhost:5173"):
            async with server.connect(headers={"Origin": origin}):
                pass


async def test_open_mode_refuses_a_name_that_was_rebound(serve: Any) -> None:
    async with serve() as server:
        rebound = {"Host": "evil.test", "Origin": "http://evil.test"}
        for status, body in (await server.get("/v1/turns", headers=rebound), await server.mint(headers=rebound)):
            assert (status, body["error"]["code"]) == (403, "host_not_allowed")


async def test_open_mode_ends_with_the_first_key(serve: Any) -> None:
    async with serve() as server:
        assert (await server.get("/v1/turns"))[0] == 200
        key = server.new_key()
        status, body = await server.get("/v1/turns")
        assert (status, body["error"]["code"]) == (401, "missing_credential")
        assert (await server.get("/v1/turns", headers=key))[0] == 200


async def test_an_address_that_others_reach_is_never_open(serve: Any) -> None:
    async with serve(on_loopback=False) as server:
        status, error = await server.refused()
        assert (status, error["code"]) == (401, "missing_credential")


async def test_a_key_is_taken_wherever_clients_put_it(serve: Any) -> None:
    async with serve(query_token=True) as server:
        key = server.new_key("acme")["Authorization"].removeprefix("Bearer ")
        basic = aiohttp.encode_basic_auth("anything", key)
        for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": basic}, {"api-key": key}):
            async with server.connect(headers=headers):
                pass
        async with server.connect(protocols=("realtime", f"openai-insecure-api-key.{key}")) as line:
            assert line.protocol == "realtime"
        async with server.connect(f"/v1/realtime?token={key}"):
            pass
        assert [grant.project for grant in server.grants] == ["acme"] * 5


async def test_a_token_in_the_address_is_refused_unless_allowed(serve: Any) -> None:
    async with serve() as server:
        server.new_key()
        status, error = await server.refused("/v1/realtime?token=whatever")
        assert (status, error["code"]) == (401, "query_token_not_allowed")


async def test_no_subprotocol_is_selected_when_the_client_has_none_of_ours(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And what was offered, a key perhaps, is not logged."""
    caplog.set_level(logging.DEBUG)
    async with serve() as server, server.connect(protocols=("openai-insecure-api-key.hush-1",)) as line:
        assert line.protocol is None
    assert "hush-1" not in caplog.text


async def test_an_unknown_key_is_refused_and_slowed_down(serve: Any) -> None:
    async with serve(burst=2) as server:
        server.new_key()
        wrong = {"Authorization": "Bearer vp_acme_" + "a" * 51}
        for _ in range(2):
            status, error = await server.refused(headers=wrong)
            assert (status, error["code"]) == (401, "invalid_api_key")
        async with server.http.get(f"{server.base}/v1/turns", headers=wrong) as answer:
            assert answer.status == 429
            assert 1 <= int(answer.headers["Retry-After"]) <= 6
            error = (await answer.json())["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_attempts")


async def test_a_revoked_token_opens_nothing(serve: Any) -> None:
    async with serve() as server:
        _, minted = await server.mint()
        token = minted["value"]
        async with server.connect(headers={"Authorization": f"Bearer {token}"}):
            pass
        claims = verify(token, server.context.key_store.keyring(unix_s()), now_s=unix_s())
        gone = RevokedToken.at(unix_s(), claims.project, claims.token_id)
        await server.context.cluster.revoke(gone, now_s=unix_s())
        status, error = await server.refused(headers={"Authorization": f"Bearer {token}"})
        assert (status, error["code"]) == (401, "token_revoked")


async def test_a_missing_scope_is_refused(serve: Any) -> None:
    async with serve() as server:
        reader = server.new_key(scopes=("turns",))
        talker = server.new_key(scopes=("realtime",))
        assert (await server.refused(headers=reader))[1]["code"] == "missing_scope"
        assert (await server.mint(headers=reader))[1]["error"]["code"] == "missing_scope"
        status, body = await server.get("/v1/turns", headers=talker)
        assert (status, body["error"]["code"]) == (403, "missing_scope")
