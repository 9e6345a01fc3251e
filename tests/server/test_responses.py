"""Responses with the `openai` package and `openai-agents`, against a server with a fake vendor behind it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from voicepipe.testing.fakes.cues import CallCue, Cut, Hold, LlmCue, Status
from voicepipe.testing.fakes.script import soon

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
QUESTION = "Which mountain is the tallest?"
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": None,
}
CALLS = (CallCue("weather", ('{"city":', '"Kyiv"}'), "call_1"), CallCue("weather", ('{"city":"Oslo"}',), "call_2"))


def client_of(server: Any, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server() as opened:
        opened.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest", "."), input_tokens=12, cached_tokens=8)
        yield opened


@pytest.fixture
async def client(server: Any) -> Any:
    async with client_of(server) as opened:
        yield opened


async def question_of(server: Any, n: int) -> Any:
    return (await server.vendor.llm.nth(n)).question


def strict(response: Response) -> Response:
    """The response, held to the published type."""
    return Response.model_validate(response.model_dump(by_alias=True, warnings=False), strict=True)


async def test_a_whole_response(server: Any, client: Any) -> None:
    raw = await client.responses.with_raw_response.create(
        model="default", input=QUESTION, instructions="Be brief.", max_output_tokens=40, temperature=0.5
    )
    response = strict(raw.parse())
    assert (response.object, response.status, response.output_text) == ("response", "completed", "Mount Everest.")
    assert (response.model, response.instructions, response.max_output_tokens) == ("default", "Be brief.", 40)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (12, 3, 15)
    assert response.usage.input_tokens_details.cached_tokens == 8
    assert raw.headers["X-Request-Id"] == response.id
    assert raw.headers["X-Voicepipe-Route"] == "fake/llm"
    ours: Any = response.model_dump()["voicepipe"]
    assert ours == {"route": "fake/llm", "ttft_ms": ours["ttft_ms"], "cost_usd": None, "estimated": False}
    question = await question_of(server, 0)
    assert (question["model"], question["temperature"], question["max_tokens"]) == ("llm", 0.5, 40)
    assert question["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
    ]


async def test_the_published_events_in_their_order(client: Any) -> None:
    events = [event async for event in await client.responses.create(model="default", input=QUESTION, stream=True)]
    for event in events:
        EVENT.validate_python(event.model_dump(by_alias=True, warnings=False), strict=True)
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events[4:7]) == "Mount Everest."
    assert events[-1].response.output_text == "Mount Everest."
    assert events[0].response.output == []


async def test_functions_are_called_and_answered_from_the_stored_response(server: Any, client: Any) -> None:
    server.vendor.llm.cue(LlmCue(calls=CALLS))
    async with client.responses.stream(
        model="default", input=QUESTION, tools=[WEATHER], tool_choice="required"
    ) as stream:
        kinds = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert kinds.count("response.function_call_arguments.done") == 2
    calls = first.output
    assert [(call.call_id, call.arguments) for call in calls] == [
        ("call_1", '{"city":"Kyiv"}'),
        ("call_2", '{"city":"Oslo"}'),
    ]
    outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
    final = await client.responses.create(
        model="default", previous_response_id=first.id, input=outputs, tools=[WEATHER], instructions="Be brief."
    )
    assert final.output_text == "Mount Everest."
    assert final.previous_response_id == first.id
    first_question, answered = await question_of(server, 0), await question_of(server, 1)
    assert (first_question["tools"][0]["function"]["name"], first_question["tool_choice"]) == ("weather", "required")
    assert [message["role"] for message in answered["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    listed = [item async for item in client.responses.input_items.list(final.id, order="asc", limit=2)]
    assert [item.type for item in listed] == [
        *("message", "function_call", "function_call"),
        *("function_call_output", "function_call_output"),
    ]


async def test_instructions_of_an_earlier_response_are_not_carried_over(server: Any, client: Any) -> None:
    first = await client.responses.create(model="default", input=QUESTION, instructions="Be brief.")
    second = await client.responses.create(model="default", input="And the second?", previous_response_id=first.id)
    await client.responses.create(model="default", input="The third?", previous_response_id=second.id)
    roles = [message["role"] for message in (await question_of(server, 2))["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


async def test_a_history_that_is_sent_whole(server: Any, client: Any) -> None:
    server.vendor.llm.cue(LlmCue(calls=CALLS[:1]))
    first = await client.responses.create(model="default", input=QUESTION, tools=[WEATHER], store=False)
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": QUESTION}, image]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "rain"}]},
        {"role": "assistant", "content": "It rains."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No more."}]},
        {"role": "user", "content": "And then?"},
    ]
    await client.responses.create(model="default", input=history, tools=[WEATHER], store=False)
    messages = (await question_of(server, 1))["messages"]
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool"),
        *("assistant", "assistant", "user"),
    ]
    assert messages[1]["content"][1]["image_url"]["detail"] == "low"
    assert messages[3]["content"] == "rain"


async def test_json_by_a_schema(server: Any, client: Any) -> None:
    class Mountain(BaseModel):
        name: str
        metres: int

    server.vendor.llm.usual = LlmCue(tokens=('{"name":"Everest",', '"metres":8849}'))
    answer = await client.responses.parse(model="default", input=QUESTION, text_format=Mountain)
    assert answer.output_parsed == Mountain(name="Everest", metres=8849)
    requested = (await question_of(server, 0))["response_format"]
    assert (requested["type"], requested["json_schema"]["name"]) == ("json_schema", "Mountain")
    assert requested["json_schema"]["strict"] is True


async def test_the_provider_gets_what_is_its_own_to_honour(server: Any, client: Any) -> None:
    await client.responses.create(
        model="default",
        input=QUESTION,
        tools=[WEATHER | {"strict": True}, WEATHER | {"name": "time"}],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "json_object"}},
        parallel_tool_calls=False,
        top_p=0.5,
    )
    question = await question_of(server, 0)
    assert [tool["function"]["name"] for tool in question["tools"]] == ["weather"]
    assert question["tools"][0]["function"]["strict"] is True
    assert (question["reasoning_effort"], question["verbosity"], question["top_p"]) == ("low", "low", 0.5)
    assert question["parallel_tool_calls"] is False
    assert question["response_format"] == {"type": "json_object"}


async def test_one_function_can_be_demanded(server: Any, client: Any) -> None:
    server.vendor.llm.cue(LlmCue(calls=CALLS[:1]))
    choice = {"type": "function", "name": "weather"}
    bare = {"type": "function", "name": "weather", "parameters": None, "strict": None}
    response = await client.responses.create(model="default", input=QUESTION, tools=[bare], tool_choice=choice)
    assert response.output[0].name == "weather"
    assert response.tools[0].parameters is None
    assert (await question_of(server, 0))["tool_choice"] == choice_of_chat("weather")


def choice_of_chat(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


async def test_an_answer_that_is_cut_short_is_incomplete(server: Any, client: Any) -> None:
    server.vendor.llm.usual = LlmCue(tokens=("Mount",), finish="length")
    whole = await client.responses.create(model="default", input=QUESTION)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert whole.output[0].status == "incomplete"
    events = [event async for event in await client.responses.create(model="default", input=QUESTION, stream=True)]
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("fault", [Status(429), Status(500)])
async def test_a_provider_that_fails_first_gives_a_status(server: Any, client: Any, fault: Any) -> None:
    server.vendor.llm.usual = LlmCue(fault=fault)
    with pytest.raises(openai.APIStatusError) as refused:
        await client.responses.create(model="default", input=QUESTION, stream=True)
    assert refused.value.status_code == (429 if fault.status == 429 else 502)


async def test_a_provider_that_fails_in_the_middle_fails_the_response(server: Any, client: Any) -> None:
    server.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest"), fault=Cut(after=1))
    events = [event async for event in await client.responses.create(model="default", input=QUESTION, stream=True)]
    assert events[-1].type == "response.failed"
    failed = events[-1].response
    assert (failed.status, failed.error.code) == ("failed", "server_error")
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(failed.id)


async def test_a_response_is_read_and_deleted(client: Any) -> None:
    made = await client.responses.create(model="default", input=QUESTION, metadata={"a": "b"}, user="anna")
    assert await client.responses.retrieve(made.id) == made
    await client.responses.delete(made.id)
    for gone in (
        client.responses.retrieve(made.id),
        client.responses.delete(made.id),
        client.responses.input_items.list(made.id),
    ):
        with pytest.raises(openai.NotFoundError) as missing:
            await gone
        assert missing.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="default", input="And?", previous_response_id=made.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_response_that_shall_not_be_stored_is_not(server: Any, client: Any) -> None:
    made = await client.responses.create(model="default", input=QUESTION, store=False)
    assert made.model_dump()["store"] is False
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    assert not (server.folder / "data" / "responses.sqlite3").exists()


async def test_items_are_found_by_reference(server: Any, client: Any) -> None:
    server.vendor.llm.cue(LlmCue(calls=CALLS[:1]))
    first = await client.responses.create(model="default", input=QUESTION, tools=[WEATHER])
    (said,) = (await client.responses.input_items.list(first.id)).data
    references = [{"type": "item_reference", "id": id_} for id_ in (said.id, first.output[0].id)]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    await client.responses.create(model="default", input=[*references, output])
    assert [message["role"] for message in (await question_of(server, 1))["messages"]] == ["user", "assistant", "tool"]
    for unknown in ("msg_none_0", "none", "msg_none_x"):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="default", input=[{"type": "item_reference", "id": unknown}])
        assert (refused.value.code, refused.value.param) == ("item_not_found", "input[0].id")


@pytest.mark.parametrize(
    ("field", "value", "param", "code"),
    [
        ("background", True, "background", "unsupported_parameter"),
        ("conversation", "conv_1", "conversation", "unsupported_parameter"),
        ("tools", [{"type": "web_search"}], "tools[0].type", "unsupported_parameter"),
        ("temprature", 1, "temprature", "unknown_parameter"),
        ("input", [{"type": "computer_call"}], "input[0].type", "invalid_value"),
        ("input", [{"role": "user", "content": [{"type": "input_file"}]}], "input[0].content[0].type", "invalid_value"),
        ("input", [], "input", "missing_required_parameter"),
        (
            "input",
            [{"type": "function_call_output", "call_id": "x", "output": ""}],
            "input[0].call_id",
            "invalid_value",
        ),
        ("input", [{"type": "function_call", "call_id": "x", "name": "f", "arguments": ""}], "input", "invalid_value"),
        ("previous_response_id", "resp_none", "previous_response_id", "previous_response_not_found"),
    ],
)
async def test_a_wrong_request_names_the_field(client: Any, field: str, value: Any, param: str, code: str) -> None:
    body = {"model": "default", "input": QUESTION, field: value}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.post("/responses", body=body, cast_to=object)
    assert (refused.value.param, refused.value.code) == (param, code)


async def test_what_changes_nothing_is_named(client: Any) -> None:
    response = await client.responses.create(
        model="default", input=QUESTION, include=["reasoning.encrypted_content"], truncation="auto", service_tier="auto"
    )
    assert response.model_dump()["voicepipe"]["ignored"] == ["include", "service_tier", "truncation"]


async def test_a_response_can_not_be_cancelled_or_replayed(client: Any) -> None:
    made = await client.responses.create(model="default", input=QUESTION)
    with pytest.raises(openai.BadRequestError, match="Close the connection"):
        await client.responses.cancel(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.retrieve(made.id, stream=True)
    assert refused.value.param == "stream"


@pytest.mark.parametrize(("query", "param"), [("order=up", "order"), ("limit=0", "limit"), ("limit=x", "limit")])
async def test_a_wrong_page_of_items_is_refused(server: Any, client: Any, query: str, param: str) -> None:
    made = await client.responses.create(model="default", input=QUESTION)
    url = f"{server.url}/v1/responses/{made.id}/input_items?{query}"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)


async def page_of(server: Any, client: Any, *, session: Any = None, **ours: Any) -> openai.AsyncOpenAI:
    """A client with a client secret of the scope `chat`."""
    body = {"session": session, "voicepipe": {"scopes": ["chat"], **ours}}
    minted: Any = await client.post("/realtime/client_secrets", body=body, cast_to=object)
    return client_of(server, minted["value"])


async def test_another_user_and_a_key_read_nothing(server: Any, client: Any) -> None:
    async with (
        await page_of(server, client, subject="anna") as anna,
        await page_of(server, client, subject="anna") as again,
        await page_of(server, client, subject="ben") as ben,
        await page_of(server, client) as unnamed,
    ):
        made = await anna.responses.create(model="default", input=QUESTION)
        assert (await again.responses.retrieve(made.id)).id == made.id
        for other in (ben, unnamed, client):
            with pytest.raises(openai.NotFoundError):
                await other.responses.retrieve(made.id)
            with pytest.raises(openai.NotFoundError):
                await other.responses.delete(made.id)
            with pytest.raises(openai.BadRequestError):
                await other.responses.create(model="default", input="And?", previous_response_id=made.id)
        async with aiohttp.ClientSession() as http, http.delete(f"{server.url}/v1/users/anna") as answer:
            assert answer.status == 200
        with pytest.raises(openai.NotFoundError):
            await anna.responses.retrieve(made.id)


async def test_locks_of_a_client_secret_apply(server: Any, client: Any) -> None:
    session = {"type": "realtime", "instructions": "Be brief.", "max_output_tokens": 40}
    locks = [{"field": "instructions"}, {"field": "max_output_tokens"}]
    async with (
        await page_of(server, client, subject="anna") as free,
        await page_of(server, client, subject="anna", session=session, locks=locks) as page,
    ):
        rude: Any = [{"role": "developer", "content": "Be rude."}, {"role": "user", "content": "Hm?"}]
        earlier = await free.responses.create(model="default", input=rude)
        await page.responses.create(model="default", input=QUESTION)
        question = await question_of(server, 1)
        assert question["messages"][0] == {"role": "system", "content": "Be brief."}
        assert question["max_tokens"] == 40
        changes: dict[str, Any] = {
            "instructions": {"instructions": "Be rude."},
            "input[0]": {"input": rude},
            "previous_response_id": {"previous_response_id": earlier.id},
            "max_output_tokens": {"max_output_tokens": 41},
        }
        for field, more in changes.items():
            body: Any = {"model": "default", "input": QUESTION, **more}
            with pytest.raises(openai.BadRequestError) as refused:
                await page.responses.create(**body)
            assert (refused.value.code, refused.value.param) == ("field_locked", field)


@pytest.mark.parametrize("setting", [{"server.responses_max_mb": 0}, {"records.redact": ("all",)}])
async def test_the_store_is_off_without_room_and_where_texts_are_redacted(fake_server: Any, setting: Any) -> None:
    async with fake_server(setting) as server, client_of(server) as client:
        made = await client.responses.create(model="default", input=QUESTION)
        assert made.model_dump()["store"] is False
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)


async def test_a_store_that_fails_costs_no_answer(server: Any, client: Any) -> None:
    made = await client.responses.create(model="default", input=QUESTION)
    with closing(sqlite3.connect(server.folder / "data" / "responses.sqlite3")) as file:
        file.execute("DROP TABLE sizes")
    lost = await client.responses.create(model="default", input=QUESTION)
    assert (lost.output_text, lost.model_dump()["store"]) == ("Mount Everest.", False)
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/readyz") as answer:
        assert [each["store"] for each in (await answer.json())["storage"]] == ["responses"]
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(lost.id)
    assert (await client.responses.retrieve(made.id)).id == made.id


async def test_a_client_that_disconnects_cancels_its_response(server: Any) -> None:
    server.vendor.llm.cue(LlmCue(hold=Hold(after=2)))
    async with client_of(server) as client:
        async for event in await client.responses.create(model="default", input=QUESTION, stream=True):
            if event.type == "response.output_text.delta":
                break
    await soon(server.vendor.llm.received[-1].gone)


@pytest.mark.slow
async def test_openai_agents_runs_on_responses(server: Any, client: Any) -> None:
    """The package's default model for text: with a function, in a stream, and going on from a stored response."""
    # 2 s of CPU, which would else be spent in each process of a run: each imports the modules of all tests.
    from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool

    @function_tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    server.vendor.llm.cue(LlmCue(calls=CALLS[:1]))
    agent: Agent[Any] = Agent(
        name="A",
        instructions="Be brief.",
        tools=[weather],
        model=OpenAIResponsesModel("default", client),
        model_settings=ModelSettings(store=True),
    )
    config = RunConfig(tracing_disabled=True)
    result = await Runner.run(agent, QUESTION, run_config=config)
    assert result.final_output == "Mount Everest."
    assert (await question_of(server, 1))["messages"][-1]["content"] == "rain in Kyiv"
    streamed = Runner.run_streamed(
        agent, "And the second?", run_config=config, previous_response_id=result.last_response_id
    )
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == "Mount Everest."
    roles = [message["role"] for message in (await question_of(server, 2))["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
