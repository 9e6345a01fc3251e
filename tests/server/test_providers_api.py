"""Operators read the state of the providers."""

from __future__ import annotations

from typing import Any


async def test_providers_that_need_an_operator_come_first(serve: Any) -> None:
    async with serve() as server:
        key = server.new_key("acme", scopes=("operate",))
        async with server.http.get(f"{server.base}/v1/providers", headers=key) as answer:
            assert answer.status == 200
            body = await answer.json()
    assert body["object"] == "list"
    refused, well = body["data"]
    assert refused == {
        "object": "voicepipe.provider",
        "id": "openai/small",
        "stage": "llm",
        "state": "open",
        "retry_in_ms": 41_000,
        "opened": 2,
        "alert": "401: no such key",
        "in_flight": 0,
        "errors": {"rate_limit": 2, "refused": 1},
        "ttft_p50_ms": None,
        "ttft_p95_ms": None,
        "itl_ms": None,
        "tokens_per_s": None,
    }
    assert (well["id"], well["state"], well["alert"], well["ttft_p95_ms"]) == ("groq/fast", "closed", None, 420)
    assert (well["itl_ms"], well["tokens_per_s"]) == (10.0, 99.6)


async def test_a_key_that_does_not_operate_is_refused(serve: Any) -> None:
    """What a provider says of our account is no customer's business."""
    async with (
        serve() as server,
        server.http.get(f"{server.base}/v1/providers", headers=server.new_key("acme")) as answer,
    ):
        assert answer.status == 403
        assert "no such key" not in await answer.text()
