"""Python functions that the agent calls: their definitions, their results, and a call with them."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from voicepipe.client import CallEnded, SessionOptions, Tool, connect
from voicepipe.client import events as e
from voicepipe.client.delivery import MAX_ITEMS, Delivery
from voicepipe.client.tools import ToolCalls
from voicepipe.client.turn_result import TurnCollector
from voicepipe.tasks import background_tasks
from voicepipe.testing.fakes.cues import CallCue, LlmCue
from voicepipe.testing.flaky_proxy import flaky_proxy

TEXT = SessionOptions(text_only=True)


async def get_weather(
    place: Annotated[str, msgspec.Meta(description="A town")], unit: Literal["C", "F"] = "C"
) -> dict[str, object]:
    """Return the weather
    at a place.

    Not for the LLM.
    """
    if place == "Atlantis":
        raise LookupError("no such place")
    return {"place": place, "sky": "clear", "unit": unit}


@dataclass
class Seat:
    """A place at a table."""

    row: int
    garden: bool = False


def test_a_definition_is_made_of_the_signature() -> None:
    assert Tool.of(get_weather).to_wire() == {
        "type": "function",
        "name": "get_weather",
        "description": "Return the weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town"},
                "unit": {"enum": ["C", "F"], "default": "C"},
            },
            "required": ["place"],
            "additionalProperties": False,
        },
    }


async def test_types_of_its_own_stand_beside_the_arguments() -> None:
    def book(seats: list[Seat]) -> int:
        return sum(seat.row for seat in seats)

    tool = Tool.of(book)
    seat = tool.parameters["$defs"]["Seat"]
    assert tool.parameters["properties"]["seats"]["items"] == {"$ref": "#/$defs/Seat"}
    assert (tool.description, seat["required"]) == ("", ["row"])
    assert await tool.run('{"seats": [{"row": 2}, {"row": 3, "garden": true}]}') == "5"


async def test_a_plain_function_runs_in_a_thread_and_text_is_the_result_as_it_is() -> None:
    def where() -> str:
        return threading.current_thread().name

    assert await Tool.of(where).run("") != threading.main_thread().name


@pytest.mark.parametrize("arguments", ['{"place": 3}', "{}", '{"place": "Oslo", "when": "now"}', "{no"])
async def test_wrong_arguments_do_not_reach_the_function(arguments: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        await Tool.of(get_weather).run(arguments)


def test_what_has_no_name_is_refused() -> None:
    def anything(*parts: str) -> None: ...

    with pytest.raises(TypeError, match="anything: expected parameters with a name"):
        Tool.of(anything)


async def test_results_go_together_once_the_response_is_over() -> None:
    """Also that of a function which fails; what is not ours is left alone."""
    sent: list[Any] = []
    finish = asyncio.Event()
    delivered = asyncio.Event()

    async def slow() -> str:
        await finish.wait()
        return "done"

    async def deliver(items: list[dict[str, Any]]) -> None:
        sent.append([(item["call_id"], item["output"]) for item in items])
        delivered.set()

    async with background_tasks() as tasks:
        calls = ToolCalls([Tool.of(get_weather), Tool.of(slow)], tasks, deliver)
        for call_id, name, arguments in (
            ("1", "get_weather", '{"place": "Atlantis"}'),
            ("2", "slow", ""),
            ("3", "x", ""),
        ):
            await calls.handle(e.FunctionCalled("r", call_id, name, arguments))
        finish.set()
        await calls.handle(e.ReplyEnded("other", "completed", ""))
        await calls.handle(e.ReplyEnded("r", "completed", ""))
        await delivered.wait()
    assert sent == [[("1", '{"error":"no such place"}'), ("2", "done")]]


async def test_a_call_that_ends_meanwhile_is_no_failure_of_the_function() -> None:
    async def deliver(items: list[dict[str, Any]]) -> None:
        ended.set()
        raise CallEnded(1000, "")

    ended = asyncio.Event()
    async with background_tasks() as tasks:
        calls = ToolCalls([Tool.of(get_weather)], tasks, deliver)
        await calls.handle(e.FunctionCalled("r", "1", "get_weather", '{"place": "Oslo"}'))
        await calls.handle(e.ReplyEnded("r", "completed", ""))
        await ended.wait()


def test_a_turn_with_a_tool_ends_with_the_answer_to_its_result() -> None:
    collector = TurnCollector(written=True, tools=("t",), unrequested=True)
    began = (e.ReplyStarted("r", "turn"), e.ReplyText("r", "One moment."), e.FunctionCalled("r", "c", "t", "{}"))
    for event in (*began, e.ReplyEnded("r", "completed", "")):
        collector.handle(event, 0)
    assert not collector.complete
    for event in (e.ReplyStarted("s", "turn"), e.ReplyText("s", "Clear."), e.ReplyEnded("s", "completed", "")):
        collector.handle(event, 9)
    answer = collector.answer()
    assert collector.complete
    assert answer is not None
    assert (answer.agent_text, answer.earlier) == ("Clear.", 0)


async def test_the_agent_calls_python_functions(fake_server: Any) -> None:
    """Beside those that the agent has; the answer is that to the result."""
    calls = (CallCue("get_weather", ('{"place":', '"Oslo"}'), "c1"), CallCue("get_weather", ("{}",), "c2"))
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(calls=calls, finish="tool_calls", tokens=()))
        server.vendor.llm.usual = LlmCue(tokens=("Clear.",))
        async with connect(server.url, session_options=TEXT, tools=[get_weather]) as call:
            answer = await call.text_turn("How is it in Oslo?")
        first, second = (each.question for each in server.vendor.llm.received)
    assert answer.agent_text == "Clear."
    assert [tool["function"]["name"] for tool in first["tools"]] == ["get_weather"]
    outputs = {each["tool_call_id"]: each["content"] for each in second["messages"] if each["role"] == "tool"}
    assert json.loads(outputs["c1"]) == {"place": "Oslo", "sky": "clear", "unit": "C"}
    assert "missing required field `place`" in json.loads(outputs["c2"])["error"]


async def test_a_question_that_a_break_loses_is_sent_again_and_once(fake_server: Any) -> None:
    """Lost on its way to the server, and then confirmed without the client learning it."""
    async with fake_server() as server, flaky_proxy(int(server.url.rpartition(":")[2])) as between:
        async with connect(f"http://127.0.0.1:{between.port}", session_options=TEXT) as call:
            between.cut("up", after_bytes=0)
            first = await call.text_turn("Is anyone there?")
            between.cut("down", after_bytes=20)
            second = await call.text_turn("Can you read me?")
        questions = [each["content"] for each in server.vendor.llm.received[-1].question["messages"][1:]]
        n_requests = len(server.vendor.llm.received)
    assert (first.agent_text, second.agent_text) == ("Hello there, user.",) * 2
    assert questions == ["Is anyone there?", "Hello there, user.", "Can you read me?"]
    assert (between.n_lines, n_requests) == (3, 2)


async def test_an_answer_is_requested_again_after_the_one_that_runs(fake_server: Any) -> None:
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(tokens=("One", "."), gap_ms=200))
        server.vendor.llm.usual = LlmCue(tokens=("Two.",))
        async with connect(server.url, session_options=TEXT) as call:
            await call.write("First?")
            await call.respond()
            await call.respond()
            events = [event async for event in _until_ended(call, 2)]
    assert [event.text for event in events if isinstance(event, e.ReplyText)][-1] == "Two."
    assert not [event for event in events if isinstance(event, e.ServerError)]


async def test_what_is_not_confirmed_is_bounded() -> None:
    """A server that confirms nothing does not fill the client's memory."""
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    delivery = Delivery(send)
    for number in range(MAX_ITEMS + 1):
        await delivery.add({"type": "message", "number": number})
    (probe,) = delivery.probe()
    sent.clear()
    assert await delivery.handle(e.ServerError("item_retrieve_invalid_item_id", "none", probe["event_id"]))
    assert [event["item"]["number"] for event in sent] == list(range(1, MAX_ITEMS + 1))
    refused = e.ServerError("conversation_full", "It is full.", sent[0]["event_id"])
    assert not await delivery.handle(refused), "the user of the client learns that"
    assert delivery.probe()


async def _until_ended(call: Any, n_answers: int) -> Any:
    """Yield events up to the end of that many answers."""
    async for event in call:
        yield event
        n_answers -= isinstance(event, e.ReplyEnded)
        if not n_answers:
            return
