"""Chat completions with the `openai` package, sync and async, against a server with a fake vendor behind it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from voicepipe.server import streaming
from voicepipe.testing.fakes.cues import CallCue, Cut, HangUp, Hold, LlmCue, Malformed, Status
from voicepipe.testing.fakes.script import soon

MESSAGES: Any = [{"role": "user", "content": "Which mountain is the tallest?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def client_of(server: Any, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server() as opened:
        opened.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest", "."), input_tokens=12, cached_tokens=8)
        yield opened


async def test_a_whole_answer(server: Any) -> None:
    async with client_of(server) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="default", messages=MESSAGES, max_completion_tokens=40, temperature=0.5
        )
    answer = raw.parse()
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", "default", "chatcmpl-")
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        "Mount Everest.",
        "stop",
    )
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (12, 3, 15)
    assert usage.prompt_tokens_details.cached_tokens == 8
    assert raw.headers["X-Request-Id"] == answer.id
    assert raw.headers["X-Voicepipe-Route"] == "fake/llm"
    ours: Any = answer.model_dump()["voicepipe"]
    assert ours == {"route": "fake/llm", "ttft_ms": ours["ttft_ms"], "cost_usd": None, "estimated": False}
    assert str(ours["ttft_ms"]) == raw.headers["X-Voicepipe-TTFT-Ms"]
    question = (await server.vendor.llm.nth(0)).question
    assert (question["model"], question["temperature"], question["max_tokens"]) == ("llm", 0.5, 40)
    assert question["messages"] == MESSAGES


async def test_a_whole_answer_to_the_sync_client(server: Any) -> None:
    def complete() -> Any:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            whole = client.chat.completions.create(model="fake/llm", messages=MESSAGES)
            chunks = client.chat.completions.create(model="fake/llm", messages=MESSAGES, stream=True)
            return whole, list(chunks)

    whole, chunks = await asyncio.to_thread(complete)
    assert whole.choices[0].message.content == "Mount Everest."
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Mount Everest."


async def test_a_streamed_answer(server: Any) -> None:
    async with client_of(server) as client:
        raw = await client.chat.completions.with_raw_response.create(model="default", messages=MESSAGES, stream=True)
        assert raw.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert raw.headers["X-Voicepipe-Route"] == "fake/llm"
        assert int(raw.headers["X-Voicepipe-TTFT-Ms"]) >= 0
        chunks = [chunk async for chunk in raw.parse()]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["Mount", " Everest", ".", None]
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None, None, None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].model_dump()["voicepipe"]["route"] == "fake/llm"


async def test_usage_comes_last_when_it_is_requested(server: Any) -> None:
    async with client_of(server) as client:
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="default", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
        ]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (12, 3)
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert chunks[-1].model_dump()["voicepipe"]["estimated"] is False


async def test_tools_are_called_and_answered(server: Any) -> None:
    calls = (CallCue("weather", ('{"city":', '"Kyiv"}'), "call_1"), CallCue("weather", ('{"city":"Oslo"}',), "call_2"))
    server.vendor.llm.cue(LlmCue(calls=calls), LlmCue(calls=calls))
    async with client_of(server) as client:
        more: Any = {"model": "default", "messages": MESSAGES, "tools": [WEATHER], "tool_choice": "required"}
        whole = await client.chat.completions.create(**more)
        async with client.chat.completions.stream(**more) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_completion()
        for answer in (whole, streamed):
            made: Any = answer.choices[0].message.tool_calls
            assert answer.choices[0].finish_reason == "tool_calls"
            assert [(call.id, call.function.arguments) for call in made] == [
                ("call_1", '{"city":"Kyiv"}'),
                ("call_2", '{"city":"Oslo"}'),
            ]
        results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in made]
        history = [*MESSAGES, whole.choices[0].message.model_dump(exclude_none=True), *results]
        final = await client.chat.completions.create(model="default", messages=history, tools=[WEATHER])
    assert final.choices[0].message.content == "Mount Everest."
    first, last = (await server.vendor.llm.nth(0)).question, (await server.vendor.llm.nth(2)).question
    assert (first["tools"], first["tool_choice"]) == ([WEATHER], "required")
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [message.get("tool_call_id") for message in last["messages"][2:]] == ["call_1", "call_2"]


async def test_one_function_can_be_demanded(server: Any) -> None:
    async with client_of(server) as client:
        choice: Any = {"type": "function", "function": {"name": "weather"}}
        await client.chat.completions.create(model="default", messages=MESSAGES, tools=[WEATHER], tool_choice=choice)
    assert (await server.vendor.llm.nth(0)).question["tool_choice"] == choice


async def test_all_kinds_of_messages_arrive(server: Any) -> None:
    picture = {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be polite."}]},
        {
            "role": "user",
            "name": "anna",
            "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": picture}],
        },
        {"role": "assistant", "content": "A cat.", "refusal": None},
        {"role": "user", "content": "Sure?"},
    ]
    async with client_of(server) as client:
        await client.chat.completions.create(model="default", messages=messages)
    messages = (await server.vendor.llm.nth(0)).question["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user", "assistant", "user"]
    assert messages[2]["content"][1] == {"type": "image_url", "image_url": picture}
    assert messages[3]["content"] == "A cat."


@pytest.mark.parametrize("stop", ["rest, the", ["Ever", "rest, the"], "t Everest"])
async def test_an_answer_ends_before_a_stop_sequence(server: Any, stop: Any) -> None:
    """Also one that comes in several pieces; the rest is not waited for."""
    tokens = ("Mount", " Ever", "est", ", the tall", "est")
    server.vendor.llm.usual = lambda question: LlmCue(tokens=tokens, hold=Hold(after=4))
    said = {"rest, the": "Mount Eve", "t Everest": "Moun"}.get(str(stop), "Mount ")
    async with client_of(server) as client:
        whole = await client.chat.completions.create(model="default", messages=MESSAGES, stop=stop)
        stream = await client.chat.completions.create(model="default", messages=MESSAGES, stop=stop, stream=True)
        chunks = [chunk async for chunk in stream]
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (said, "stop")
    assert whole.model_dump()["voicepipe"]["estimated"] is True
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said
    assert chunks[-1].choices[0].finish_reason == "stop"
    for request in server.vendor.llm.received:
        await soon(request.gone)


async def test_what_only_looks_like_a_stop_sequence_is_said(server: Any) -> None:
    async with client_of(server) as client:
        whole = await client.chat.completions.create(model="default", messages=MESSAGES, stop=["Everett", ".."])
    assert whole.choices[0].message.content == "Mount Everest."


async def test_models_are_listed(server: Any) -> None:
    async with client_of(server) as client:
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("fake/llm")
        with pytest.raises(openai.NotFoundError) as refused:
            await client.models.retrieve("fake/other")
    assert listed == ["default", "fake/llm"]
    assert (one.id, one.object, one.owned_by) == ("fake/llm", "model", "fake")
    assert refused.value.code == "model_not_found"


async def test_a_model_of_the_settings_can_be_requested(fake_server: Any) -> None:
    more = {"server.chat_models": ["fake/large"], "agents.support.aliases": ["gpt-4o-mini"]}
    async with fake_server(more) as server, client_of(server) as client:
        for model in ("fake/large", "gpt-4o-mini", "support"):
            await client.chat.completions.create(model=model, messages=MESSAGES)
        listed = [model.id async for model in client.models.list()]
        request = [(await server.vendor.llm.nth(n)).question["model"] for n in range(3)]
    assert request == ["large", "llm", "llm"]
    assert listed == ["default", "support", "fake/llm", "fake/large"]


async def test_ignored_parameters_are_reported(server: Any) -> None:
    async with client_of(server) as client:
        answer = await client.chat.completions.create(
            model="default",
            messages=MESSAGES,
            seed=7,
            store=False,
            n=1,
            top_p=1,
            stop=[],
            response_format={"type": "text"},
        )
    assert answer.model_dump()["voicepipe"]["ignored"] == ["seed", "store"]


async def test_what_is_the_providers_to_honour_is_passed_on(server: Any) -> None:
    request: Any = {
        "top_p": 0.5,
        "frequency_penalty": -1,
        "logit_bias": {"42": -100},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "reasoning_effort": "low",
    }
    same: Any = {"presence_penalty": 0, "verbosity": "medium"}
    async with client_of(server) as client:
        await client.chat.completions.create(model="default", messages=MESSAGES, **request, **same)
    question = (await server.vendor.llm.nth(0)).question
    assert {name: question[name] for name in request} == request
    assert not question.keys() & same.keys()


async def test_a_provider_without_a_parameter_refuses_it(fake_server: Any) -> None:
    more = {"providers.fake.options.refuses": "top_p"}
    async with fake_server(more) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="default", messages=MESSAGES, top_p=0.5)
    assert (refused.value.code, "'top_p'" in refused.value.message) == ("provider_refused", True)
    assert server.vendor.llm.received == []


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"top_p": 2}, "top_p", "invalid_value"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "invalid_value"),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": "json"}, "response_format", "invalid_type"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls", "invalid_type"),
    ({"temprature": 1}, "temprature", "unknown_parameter"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", "invalid_type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/x"}}]}]},
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        "messages[0].tool_call_id",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}, *MESSAGES]},
        "messages[0].tool_calls",
        "invalid_value",
    ),
    ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type", "invalid_value"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "invalid_value"),
    ({"tools": [{"function": {"name": "f", "parameters": [1]}}]}, "tools[0].function.parameters", "invalid_type"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice.function.name",
        "invalid_value",
    ),
    ({"metadata": {"tier": 3}}, "metadata[...]", "invalid_type"),
    ({"voicepipe": {"deadline": 3}}, "voicepipe.deadline", "unknown_parameter"),
]


@pytest.mark.parametrize(("more", "param", "code"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
async def test_a_wrong_request_names_the_field(server: Any, more: dict[str, Any], param: str, code: str) -> None:
    body = {"model": "default", "messages": MESSAGES} | more
    async with client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.post("/chat/completions", body=body, cast_to=object)
    assert (refused.value.param, refused.value.code, refused.value.type) == (param, code, "invalid_request_error")
    assert server.vendor.llm.received == []


async def test_a_body_that_is_too_deep_or_no_json_is_refused(server: Any) -> None:
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    bodies = {
        b"{": "invalid_json",
        b'{"n":' + b"[" * 100_000: "invalid_json",
        b'{"model":"default","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":'
        b'{"name":"f","parameters":' + deep + b"}}]}": "invalid_value",
    }
    async with client_of(server) as client:
        for body, code in bodies.items():
            with pytest.raises(openai.BadRequestError) as refused:
                await client.post("/chat/completions", content=body, cast_to=object)
            assert refused.value.code == code


async def test_a_body_that_is_too_large_is_refused_and_a_large_one_is_not(server: Any) -> None:
    async with client_of(server) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "x" * (5 << 20)}]
            )
        assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")
        url = "data:image/png;base64," + "A" * (3 << 20)
        picture: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        await client.chat.completions.create(model="default", messages=picture)
    assert len((await server.vendor.llm.nth(0)).question["messages"][0]["content"][0]["image_url"]["url"]) == len(url)


@pytest.mark.parametrize("strict", [False, True])
async def test_a_vendors_usual_name_is_the_default_agent(fake_server: Any, strict: bool) -> None:
    """As on the WebSocket, unless set to strict."""
    async with fake_server({"server.strict_models": strict}) as server, client_of(server) as client:
        for name in ("gpt-4o-mini", "o3", "claude-sonnet-4-5", "gemini-2.5-flash"):
            if strict:
                with pytest.raises(openai.NotFoundError):
                    await client.chat.completions.create(model=name, messages=MESSAGES)
            else:
                answer = await client.chat.completions.create(model=name, messages=MESSAGES)
                assert answer.choices[0].message.content


async def test_strict_of_a_function_reaches_the_provider(server: Any) -> None:
    strict: Any = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    async with client_of(server) as client:
        await client.chat.completions.create(model="default", messages=MESSAGES, tools=[strict])
    assert (await server.vendor.llm.nth(0)).question["tools"] == [strict]


async def test_an_unknown_model_is_refused(server: Any) -> None:
    async with client_of(server) as client:
        for more in (
            {"model": "fake/gpt-4o"},
            {"model": "gpt-4o", "models": ["other"]},
            {"model": "default", "models": ["fake/llm", "fake/other"]},
        ):
            with pytest.raises(openai.NotFoundError) as refused:
                await client.post("/chat/completions", body={"messages": MESSAGES} | more, cast_to=object)
            assert refused.value.code == "model_not_found"
    assert refused.value.param == "models[1]"


FAILURES: list[tuple[Any, int, str, str | None]] = [
    (Status(429, retry_after="7"), 429, "rate_limit_exceeded", "7"),
    (Status(401), 502, "provider_failed", None),
    (Status(400, "too many tokens"), 400, "provider_refused", None),
    (Status(500), 502, "provider_failed", None),
    (Status(503, retry_after="2"), 503, "provider_failed", "2"),
    (HangUp(), 502, "provider_failed", None),
    (Malformed(), 502, "provider_failed", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "status", "code", "wait_s"), FAILURES)
async def test_a_provider_that_fails_before_its_first_word_has_a_status(
    server: Any, fault: Any, status: int, code: str, wait_s: str | None, stream: bool
) -> None:
    server.vendor.llm.cue(LlmCue(fault=fault))
    async with client_of(server) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(model="default", messages=MESSAGES, stream=stream)
    assert (refused.value.status_code, refused.value.code) == (status, code)
    assert refused.value.response.headers.get("Retry-After") == wait_s


async def test_a_provider_that_says_nothing_times_out(fake_server: Any) -> None:
    async with fake_server({"providers.fake.idle_timeout_ms": 50}) as server, client_of(server) as client:
        server.vendor.llm.cue(LlmCue(hold=Hold()))
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(model="default", messages=MESSAGES, stream=True)
    assert (refused.value.status_code, refused.value.code) == (504, "provider_timeout")


async def test_a_provider_that_fails_in_the_middle_ends_the_stream_with_an_error(server: Any) -> None:
    server.vendor.llm.cue(LlmCue(fault=Cut(after=2)))
    async with client_of(server) as client:
        stream = await client.chat.completions.create(model="default", messages=MESSAGES, stream=True)
        chunks = aiter(stream)
        said = [(await anext(chunks)).choices[0].delta.content for _ in range(2)]
        with pytest.raises(openai.APIError) as failed:
            await anext(chunks)
    assert said == ["Hello", " there"]
    assert (failed.value.code, failed.value.type) == ("provider_failed", "server_error")


async def test_a_client_that_goes_before_the_first_word_takes_its_question_with_it(server: Any) -> None:
    hold = Hold()
    server.vendor.llm.cue(LlmCue(hold=hold))
    for stream in (True, False):
        async with client_of(server) as client, asyncio.TaskGroup() as group:
            request_task = group.create_task(
                client.chat.completions.create(model="default", messages=MESSAGES, stream=stream)
            )
            await soon(hold.reached)
            request_task.cancel()
        await soon(server.vendor.llm.received[-1].gone)
        hold = Hold()
        server.vendor.llm.cue(LlmCue(hold=hold))


async def test_a_client_that_goes_in_the_middle_takes_its_question_with_it(server: Any) -> None:
    server.vendor.llm.cue(LlmCue(hold=Hold(after=2)))
    async with client_of(server) as client:
        stream = await client.chat.completions.create(model="default", messages=MESSAGES, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == " there":
                break
        request = await server.vendor.llm.nth(0)
        assert not request.gone.is_set()
        await stream.close()
    await soon(request.gone)


async def test_a_client_that_takes_nothing_loses_its_answer(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server stops reading the provider meanwhile: unread output fills sockets, not the server's memory."""
    monkeypatch.setattr(streaming, "STUCK_S", 0.3)
    caplog.set_level("INFO", "voicepipe")
    # More than sockets hold, and below what a model may write.
    async with fake_server({"provider_limits.max_answer_chars": 200_000_000}) as server:
        server.vendor.llm.usual = LlmCue(tokens=("x" * 100_000,) * 1_000)
        body = json.dumps({"model": "default", "messages": MESSAGES, "stream": True})
        address = server.url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=1_000)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await soon((await server.vendor.llm.nth(0)).gone)
        writer.transport.abort()
    outcomes = [record.__dict__["fields"]["outcome"] for record in caplog.records if record.message == "chat_closed"]
    assert outcomes == ["abandoned"]
    assert not any(record.message == "crashed" for record in caplog.records)


async def test_many_at_once_do_not_mix(server: Any) -> None:
    server.vendor.llm.usual = lambda question: LlmCue(tokens=tuple(question["messages"][0]["content"].split("-")))
    texts = ["-".join(f"{n}.{word}" for word in range(20)) for n in range(40)]

    async def complete(client: openai.AsyncOpenAI, text: str) -> str:
        stream = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": text}], stream=True
        )
        return "-".join([chunk.choices[0].delta.content or "" async for chunk in stream][:-1])

    async with client_of(server) as client:
        assert await asyncio.gather(*(complete(client, text) for text in texts)) == texts


async def test_no_more_than_there_are_slots(fake_server: Any) -> None:
    async with (
        fake_server({"server.max_chats": 1}) as server,
        client_of(server) as client,
        asyncio.TaskGroup() as group,
    ):
        hold = Hold()
        server.vendor.llm.cue(LlmCue(hold=hold))
        first = group.create_task(client.chat.completions.create(model="default", messages=MESSAGES))
        await soon(hold.reached)
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(model="default", messages=MESSAGES)
        assert (refused.value.status_code, refused.value.code) == (503, "server_overloaded")
        assert refused.value.response.headers["Retry-After"] == "1"
        hold.release.set()
        await first
        await client.chat.completions.create(model="default", messages=MESSAGES)


async def test_one_project_has_no_more_than_its_slots(fake_server: Any) -> None:
    more = {"server.max_project_chats": 1}
    async with fake_server(more) as server, client_of(server) as client, asyncio.TaskGroup() as group:
        hold = Hold()
        server.vendor.llm.cue(LlmCue(hold=hold))
        first = group.create_task(client.chat.completions.create(model="default", messages=MESSAGES))
        await soon(hold.reached)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model="default", messages=MESSAGES)
        assert refused.value.code == "rate_limit_exceeded"
        hold.release.set()
        await first
