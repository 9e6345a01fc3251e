"""Chat completions of routes with several models: pools, `models` of the request, rules."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from voicepipe.testing.fakes.cues import Hold, LlmCue, Status
from voicepipe.testing.fakes.script import soon

MESSAGES: Any = [{"role": "user", "content": "Which mountain is the tallest?"}]
POOLED = {
    "agents.default.llm": ["fake/first", "fake/second"],
    "agents.support.llm": "fake/third",
    "pools.spare.models": ["fake/third", "fake/fourth"],
    "server.chat_models": ["fake/fifth"],
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 10,
}


def client_of(server: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def only(*healthy: str) -> Any:
    """A vendor of which these models answer, each with its name, after the others have failed."""

    def answer(question: Any) -> LlmCue:
        model = question["model"]
        if model not in healthy:
            return LlmCue(fault=Status(500))
        return LlmCue(tokens=(model,), input_tokens=10, ttft_ms=100)

    return answer


async def complete(server: Any, **more: Any) -> tuple[str, str, dict[str, Any]]:
    """Return the model that answered, by its own text, by the header and by the answer's own field."""
    async with client_of(server) as client:
        raw = await client.chat.completions.with_raw_response.create(messages=MESSAGES, **more)
    answer = raw.parse()
    return answer.choices[0].message.content or "", raw.headers["X-Voicepipe-Route"], answer.model_dump()["voicepipe"]


async def test_a_route_of_several_models_answers_while_one_of_them_does(fake_server: Any) -> None:
    async with fake_server(POOLED) as server:
        server.vendor.llm.usual = only("second")
        said, route, ours = await complete(server, model="default")
        assert (said, route) == ("second", "fake/second")
        assert [(each["provider"], each["outcome"]) for each in ours["attempts"]] == [
            ("fake/first", "failed"),
            ("fake/second", "spoke"),
        ]
        assert ours["cost_usd"] == pytest.approx(20e-6)
        server.vendor.llm.usual = only()
        with pytest.raises(openai.InternalServerError):
            await complete(server, model="default")


async def test_a_request_names_who_may_answer_too(fake_server: Any) -> None:
    async with fake_server(POOLED) as server:
        server.vendor.llm.usual = only("fifth")
        for model in ("support", "fake/third", "pool/spare"):
            said, route, _ = await complete(server, model=model, extra_body={"models": ["fake/fifth"]})
            assert (said, route) == ("fifth", "fake/fifth")


async def test_a_stream_names_its_provider(fake_server: Any) -> None:
    async with fake_server(POOLED) as server, client_of(server) as client:
        server.vendor.llm.usual = only("fourth")
        raw = await client.chat.completions.with_raw_response.create(model="pool/spare", messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in raw.parse()]
    assert raw.headers["X-Voicepipe-Route"] == "fake/fourth"
    assert chunks[-1].model_dump()["voicepipe"]["route"] == "fake/fourth"


async def test_pools_are_listed(fake_server: Any) -> None:
    async with fake_server(POOLED) as server, client_of(server) as client:
        listed = [model.id async for model in client.models.list()]
    assert listed == ["default", "support", "pool/spare", "fake/first", "fake/second", "fake/third", "fake/fifth"]


async def test_a_client_that_goes_takes_the_questions_to_all_models_with_it(fake_server: Any) -> None:
    async with fake_server(POOLED | {"router.deadline_ms": 100}) as server:
        server.vendor.llm.usual = lambda question: LlmCue(hold=Hold())
        async with client_of(server) as client, asyncio.TaskGroup() as group:
            request_task = group.create_task(
                client.chat.completions.create(model="default", messages=MESSAGES, stream=True)
            )
            first, second = [await server.vendor.llm.nth(n) for n in (0, 1)]
            assert {first.question["model"], second.question["model"]} == {"first", "second"}
            request_task.cancel()
        await soon(first.gone)
        await soon(second.gone)


async def test_fallback_when_the_first_model_lacks_a_parameter(fake_server: Any) -> None:
    strict = {"providers.strict.base_url": "http://127.0.0.1:9/v1", "providers.strict.options.refuses": "top_p"}
    async with fake_server(POOLED | strict | {"agents.default.llm": ["strict/first", "fake/second"]}) as server:
        server.vendor.llm.usual = only("second")
        said, route, ours = await complete(server, model="default", top_p=0.5)
        request = (await server.vendor.llm.nth(0)).question
    assert (said, route, request["top_p"]) == ("second", "fake/second", 0.5)
    assert "'top_p'" in ours["attempts"][0]["why"]
