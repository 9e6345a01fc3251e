"""How providers are doing, for whoever operates the server."""

from __future__ import annotations

from typing import Any


async def test_those_come_first_for_whom_somebody_must_act(serve: Any) -> None:
    async with serve() as house:
        key = house.new_key("acme", scopes=("operate",))
        async with house.http.get(f"{house.base}/v1/providers", headers=key) as answer:
            assert answer.status == 200
            told = await answer.json()
    assert told["object"] == "list"
    refused, well = told["data"]
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
        serve() as house,
        house.http.get(f"{house.base}/v1/providers", headers=house.new_key("acme")) as answer,
    ):
        assert answer.status == 403
        assert "no such key" not in await answer.text()
