"""Behind a proxy: who calls is whom the proxy names, if the proxy is trusted."""

from __future__ import annotations

from typing import Any

WRONG = {"Authorization": "Bearer vp_acme_" + "a" * 51}


def via(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


async def test_attempts_are_limited_per_client_behind_a_trusted_proxy(serve: Any) -> None:
    async with serve(burst=1, trusted_proxies=("127.0.0.1",)) as server:
        key = server.new_key()
        assert (await server.get("/v1/turns", headers=WRONG | via("203.0.113.7")))[0] == 401
        assert (await server.get("/v1/turns", headers=WRONG | via("203.0.113.7")))[0] == 429
        assert (await server.get("/v1/turns", headers=WRONG | via("203.0.113.8")))[0] == 401
        for address in ("203.0.113.7", "203.0.113.8"):
            assert (await server.get("/v1/turns", headers=key | via(address)))[0] == 200


async def test_a_client_can_not_set_its_address_without_a_trusted_proxy(serve: Any) -> None:
    """Else they would guess on under a thousand addresses."""
    async with serve(burst=1) as server:
        server.new_key()
        assert (await server.get("/v1/turns", headers=WRONG | via("203.0.113.7")))[0] == 401
        assert (await server.get("/v1/turns", headers=WRONG | via("203.0.113.8")))[0] == 429


async def test_a_server_behind_a_trusted_proxy_is_never_open(serve: Any) -> None:
    async with serve(trusted_proxies=("127.0.0.1",)) as server:
        status, error = await server.refused()
        assert (status, error["code"]) == (401, "missing_credential")


async def test_an_open_server_refuses_proxied_requests(serve: Any) -> None:
    async with serve() as server:
        for header in ("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP"):
            status, error = await server.refused(headers={header: "127.0.0.1"})
            assert (status, error["code"]) == (403, "forwarded")
            assert "voicepipe keys create" in error["message"]


async def test_a_browser_that_came_by_https_is_to_stay_there(serve: Any) -> None:
    async with serve(trusted_proxies=("127.0.0.1",)) as server:
        for scheme, is_https in (("https", True), ("http", False)):
            headers = {"Host": "voice.example", "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": scheme}
            async with server.http.get(f"{server.base}/talk", headers=headers) as answer:
                assert ("Strict-Transport-Security" in answer.headers) is is_https
