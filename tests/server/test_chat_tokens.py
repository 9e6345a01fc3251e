"""Chat completions with a client secret: only if minted for it, and under its limits and locks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import openai
import pytest

from voicepipe.server.gateway.slot_counts import MAX_PER_TOKEN
from voicepipe.testing.fakes.cues import Hold, LlmCue, Status
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.waiting import eventually

MESSAGES: Any = [{"role": "user", "content": "Which mountain is the tallest?"}]
PRICES = {
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 10,
    "providers.fake.tts_usd_per_million_chars": 1,
    "providers.fake.stt_usd_per_minute": 1,
}
TOOL = {"type": "function", "name": "weather", "description": "", "parameters": {"type": "object"}}


async def mint(server: Any, *, scopes: Any = ("chat",), session: Any = None, **ours: Any) -> dict[str, Any]:
    body = {"session": session, "voicepipe": {"scopes": scopes, **ours}}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/realtime/client_secrets", json=body) as answer,
    ):
        minted: dict[str, Any] = await answer.json()
        assert answer.status == 200, minted
        return minted


async def client_of(server: Any, **limits: Any) -> openai.AsyncOpenAI:
    minted = await mint(server, **limits)
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=minted["value"], max_retries=0)


async def complete(client: openai.AsyncOpenAI, model: str = "default", messages: Any = MESSAGES, **more: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=messages, **more)


async def test_a_secret_without_the_scope_is_refused(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, scopes=("realtime", "turns")) as client:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await complete(client)
        assert refused.value.code == "missing_scope"
        with pytest.raises(openai.PermissionDeniedError):
            await client.models.list()
    assert server.vendor.llm.received == []


async def test_a_secret_reaches_agents_and_the_models_it_names(fake_server: Any) -> None:
    async with fake_server({"agents.support.silence_ms": 400}) as server:
        async with await client_of(server) as client:
            assert [model.id async for model in client.models.list()] == ["default", "support"]
            await complete(client)
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await complete(client, "fake/llm")
            assert refused.value.code == "model_not_allowed"
        async with await client_of(server, limits={"models": ["fake/llm"]}) as client:
            assert [model.id async for model in client.models.list()] == ["fake/llm"]
            await complete(client, "fake/llm")
            with pytest.raises(openai.PermissionDeniedError):
                await complete(client)
        async with await client_of(server, limits={"agents": ["support"]}) as client:
            await complete(client, "support")
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await complete(client, "support", extra_body={"models": ["default"]})
            assert refused.value.code == "agent_not_allowed"


async def test_of_many_that_want_the_last_turn_one_gets_it(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, limits={"turns": 1}) as client:
        outcomes = await asyncio.gather(*(complete(client) for _ in range(3)), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, openai.PermissionDeniedError)]
        assert [error.code for error in refused] == ["limit_reached"] * 2
    assert len(server.vendor.llm.received) == 1


async def test_a_failed_turn_is_not_counted(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, limits={"turns": 1}) as client:
        server.vendor.llm.cue(LlmCue(fault=Status(500)))
        with pytest.raises(openai.InternalServerError):
            await complete(client)
        await complete(client)


async def test_what_answers_cost_is_counted(fake_server: Any) -> None:
    async with fake_server(PRICES) as server, await client_of(server, limits={"spend_usd": 0.0001}) as client:
        server.vendor.llm.usual = LlmCue(tokens=("a", "b", "c", "d"), input_tokens=20)  # 20 + 40 millionths
        for _ in range(2):
            answer = await complete(client)
            assert answer.model_dump()["voicepipe"]["cost_usd"] == pytest.approx(0.00006)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await complete(client)
        assert refused.value.code == "limit_reached"


async def test_what_answers_cost_is_counted_for_the_quotas_of_a_user(fake_server: Any) -> None:
    """Another user of the same project goes on."""
    async with (
        fake_server(PRICES | {"quotas.user_usd_per_day": 0.0001}) as server,
        await client_of(server, subject="ann") as ann,
        await client_of(server, subject="bob") as bob,
    ):
        server.vendor.llm.usual = LlmCue(tokens=("a", "b", "c", "d"), input_tokens=20)  # 20 + 40 millionths
        for _ in range(2):
            await complete(ann)
        with pytest.raises(openai.RateLimitError) as refused:
            await complete(ann)
        assert refused.value.code == "quota_exceeded"
        await complete(bob)


async def test_who_leaves_before_the_end_pays_for_what_came(fake_server: Any) -> None:
    async with fake_server(PRICES) as server, await client_of(server, limits={"spend_usd": 0.0001}) as client:
        server.vendor.llm.cue(LlmCue(tokens=("x" * 400, "y"), hold=Hold(after=1)))  # 100 tokens by our estimate
        stream = await complete(client, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await soon(server.vendor.llm.received[0].gone)
        server.vendor.llm.usual = LlmCue(tokens=(), input_tokens=0)

        async def refused() -> str | None:
            with suppress(openai.InternalServerError):  # not refused yet: an empty answer fails, and costs nothing
                try:
                    await complete(client)
                except openai.PermissionDeniedError as error:
                    return error.code
            return None

        assert await eventually(refused) == "limit_reached"


async def test_a_limit_on_spending_needs_prices(fake_server: Any) -> None:
    async with fake_server(
        PRICES | {"server.chat_models": ["other/mind"], "providers.other.base_url": "http://127.0.0.1:9/v1"}
    ) as server:
        limits = {"spend_usd": 1, "models": ["other/mind"]}
        async with await client_of(server, limits=limits) as client:
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await complete(client, "other/mind")
            assert refused.value.code == "price_unknown"


async def test_a_secret_has_few_answers_at_once(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server) as client, asyncio.TaskGroup() as group:
        holds = [Hold() for _ in range(MAX_PER_TOKEN)]
        server.vendor.llm.cue(*(LlmCue(hold=hold) for hold in holds))
        for _ in holds:
            group.create_task(complete(client))
        for hold in holds:
            await soon(hold.reached)
        with pytest.raises(openai.RateLimitError) as refused:
            await complete(client)
        assert refused.value.code == "rate_limit_exceeded"
        for hold in holds:
            hold.release.set()


LOCKED: list[tuple[str, Any, str]] = [
    ("instructions", {"messages": [{"role": "system", "content": "Be rude."}, *MESSAGES]}, "messages[0]"),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ("tool_choice", {"tool_choice": "none"}, "tool_choice"),
    ("max_output_tokens", {"max_tokens": 4_000}, "max_completion_tokens"),
]


@pytest.mark.parametrize(("lock", "more", "param"), LOCKED)
async def test_a_locked_field_can_not_be_changed(fake_server: Any, lock: str, more: Any, param: str) -> None:
    session = {"type": "realtime", "instructions": "Be kind.", "tools": [TOOL], "max_output_tokens": 50}
    async with fake_server() as server:
        async with await client_of(server, session=session, locks=[{"field": lock}]) as client:
            with pytest.raises(openai.BadRequestError) as refused:
                await complete(client, **more)
            assert (refused.value.code, refused.value.param) == ("field_locked", param)
        assert server.vendor.llm.received == []


async def test_locked_fields_hold_for_every_question(fake_server: Any) -> None:
    session = {"type": "realtime", "instructions": "Be kind.", "tools": [TOOL], "max_output_tokens": 50}
    locks = [{"field": name} for name in ("instructions", "tools", "max_output_tokens")]
    async with fake_server() as server, await client_of(server, session=session, locks=locks) as client:
        await complete(client)
        question = (await server.vendor.llm.nth(0)).question
    assert question["messages"][0] == {"role": "system", "content": "Be kind."}
    assert [tool["function"]["name"] for tool in question["tools"]] == ["weather"]
    assert question["max_tokens"] == 50


async def test_unlocked_instructions_give_way_to_those_of_the_question(fake_server: Any) -> None:
    session = {"type": "realtime", "instructions": "Be kind."}
    own: Any = {"role": "system", "content": "Be brief."}
    async with fake_server() as server, await client_of(server, session=session) as client:
        await complete(client)
        await complete(client, messages=[own, *MESSAGES])
        first, second = [(await server.vendor.llm.nth(n)).question["messages"] for n in (0, 1)]
    assert first == [{"role": "system", "content": "Be kind."}, *MESSAGES]
    assert second == [own, *MESSAGES]


async def test_revoking_a_secret_cuts_its_answer(fake_server: Any) -> None:
    async with fake_server() as server:
        minted = await mint(server)
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=minted["value"], max_retries=0)
        async with client, aiohttp.ClientSession() as http:
            server.vendor.llm.cue(LlmCue(hold=Hold(after=1)))
            chunks = aiter(await complete(client, stream=True))
            await anext(chunks)
            body = {"token_id": minted["voicepipe"]["token_id"]}
            async with http.post(f"{server.url}/v1/realtime/client_secrets/revoke", json=body) as answer:
                assert answer.status == 200
            with pytest.raises(openai.APIError) as cut:
                await anext(chunks)
            assert cut.value.code == "token_revoked"
            await soon(server.vendor.llm.received[0].gone)
            with pytest.raises(openai.AuthenticationError):
                await complete(client)


async def test_a_page_does_not_get_a_providers_error_text(fake_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    models = {"agents.default.llm": ["fake/first", "fake/second"]}
    async with fake_server(models) as server, await client_of(server) as client:
        server.vendor.llm.cue(*[LlmCue(fault=Status(400, "organization org-4711 owes us money"))] * 2)
        with pytest.raises(openai.BadRequestError) as refused:
            await complete(client)
        server.vendor.llm.cue(LlmCue(fault=Status(500, "organization org-4711 owes us money")))
        answer = await complete(client)
    assert "org-4711" not in str(refused.value.body)
    assert "fake" not in str(refused.value.body)
    assert answer.model_dump()["voicepipe"].keys() == {"route", "ttft_ms", "cost_usd", "estimated"}
    (line,) = [record.__dict__["fields"] for record in caplog.records if record.message == "chat_failed"]
    assert "org-4711" in line["why"]


async def test_a_page_of_another_origin_is_refused(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, limits={"origins": ["https://shop.example"]}) as client:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await complete(client, extra_headers={"Origin": "https://evil.example"})
        assert refused.value.code == "origin_not_allowed"
        await complete(client, extra_headers={"Origin": "https://shop.example"})


async def test_each_answer_leaves_a_line_without_words(fake_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "voicepipe")
    async with fake_server(PRICES) as server, await client_of(server) as client:
        server.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest"), input_tokens=12, cached_tokens=4)
        await complete(client)
    (line,) = [record for record in caplog.records if record.message == "chat_closed"]
    fields: Any = line.__dict__["fields"]
    assert fields["outcome"] == "completed"
    assert (fields["project"], fields["model"], fields["route"]) == ("default", "default", "fake/llm")
    assert (fields["input_tokens"], fields["output_tokens"], fields["cached_tokens"]) == (12, 2, 4)
    assert fields["cost_usd"] == pytest.approx(32e-6)
    assert "Everest" not in str(fields)
    assert "mountain" not in str(fields)
