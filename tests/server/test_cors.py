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


async def test_any_page_may_read_why_its_websocket_was_refused(serve: Any) -> None:
    """A browser hides the reason; the page requests it again over HTTP, with its secret in a header."""
    page = {"Origin": "https://other.example"}
    preflight = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    async with serve() as server:
        headers = page | server.new_key()
        for path in ("/v1/realtime", "/v1/realtime/", "/openai/v1/realtime"):
            url = f"{server.base}{path}"
            async with server.http.options(url, headers=page | preflight) as answer:
                assert answer.status == 204
                assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]
            async with server.http.get(url, headers=headers | {"Authorization": "Bearer vp_wrong"}) as answer:
                assert answer.status == 401
                assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]
            async with server.http.get(f"{url}?agent=nobody", headers=headers) as answer:
                assert answer.status == 404
                assert "There is no agent" in (await answer.json())["error"]["message"]
        posted = page | preflight | {"Access-Control-Request-Method": "POST"}
        async with server.http.options(f"{server.base}/v1/realtime", headers=posted) as answer:
            assert answer.status == 403
