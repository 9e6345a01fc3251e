"""Which pages of other servers may read what REST answers."""

from __future__ import annotations

from typing import Any

SHOP = "https://shop.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,x-stainless-lang",
}


async def test_an_allowed_page_may_request_and_read(serve: Any) -> None:
    async with serve(allowed_origins=(SHOP,)) as server:
        url = f"{server.base}/v1/turns"
        async with server.http.options(url, headers={"Origin": SHOP, **PREFLIGHT}) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == SHOP
            assert answer.headers["Access-Control-Allow-Headers"] == "authorization,x-stainless-lang"
            assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        credentials: list[dict[str, str]] = [server.new_key(), {}]
        for headers in credentials:
            async with server.http.get(url, headers={"Origin": SHOP, **headers}) as answer:
                assert answer.headers["Access-Control-Allow-Origin"] == SHOP
                assert "Origin" in answer.headers["Vary"]
                assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_a_page_that_is_not_allowed_may_not(serve: Any) -> None:
    async with serve(allowed_origins=(SHOP,)) as server:
        url = f"{server.base}/v1/turns"
        for origin in ("https://evil.test", "null", f"{SHOP}.evil.test", "http://shop.example"):
            async with server.http.options(url, headers={"Origin": origin, **PREFLIGHT}) as answer:
                assert answer.status == 403
                assert "Access-Control-Allow-Origin" not in answer.headers
                assert "server.allowed_origins" in (await answer.json())["error"]["message"]
            async with server.http.get(url, headers={"Origin": origin, **server.new_key()}) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_question_that_makes_no_sense_is_not_echoed(serve: Any) -> None:
    async with serve(allowed_origins=(SHOP,)) as server:
        headers = {**PREFLIGHT, "Access-Control-Request-Headers": "a b; c: d"}
        async with server.http.options(f"{server.base}/v1/turns", headers={"Origin": SHOP, **headers}) as answer:
            assert "Access-Control-Allow-Headers" not in answer.headers
        async with server.http.options(f"{server.base}/v1/turns") as answer:
            assert answer.status == 405
