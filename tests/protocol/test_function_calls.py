"""Function calls on the wire: their events, their arguments, and which of them a client may run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.protocol.replies import CALL, SentEventsOf, open_reply
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.notifications import ItemDeleted, OutputStarted, ResponseEnded, ToolEnded


def test_function_call(sent: SentEventsOf) -> None:
    """In progress with empty arguments first; `name` in the done event; completed only in the done item."""
    open_reply(sent, item=CALL)
    sent.take(sent.wire.call_delta("resp_1", CALL.id, '{"place":'))
    sent.take(sent.wire.call_delta("resp_1", CALL.id, '"Bern"}'))
    sent.render(ResponseEnded("resp_1", "completed"))
    by_type = {event["type"]: event for event in sent.events}
    added = by_type["response.output_item.added"]["item"]
    assert (added["status"], added["arguments"], added["call_id"]) == ("in_progress", "", "call_1")
    done = by_type["response.function_call_arguments.done"]
    assert (done["name"], done["arguments"], done["call_id"]) == ("get_weather", '{"place":"Bern"}', "call_1")
    assert by_type["response.output_item.done"]["item"]["status"] == "completed"
    assert "response.content_part.added" not in by_type
    assert [event["type"] for event in sent.events[-5:]] == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_several_calls_have_rising_output_indexes(sent: SentEventsOf) -> None:
    open_reply(sent)
    sent.take(sent.wire.text_delta("resp_1", "Let me look."))
    for index in (0, 1, 11):
        previous = sent.checker.order[-1]
        call = FunctionCall(f"item_a_call{index}", f"call_{index}", "f", "", "in_progress")
        sent.render(OutputStarted("resp_1", call, previous))
    for index in (1, 11, 0):
        sent.take(sent.wire.call_delta("resp_1", f"item_a_call{index}", json.dumps({"n": index})))
    sent.render(ResponseEnded("resp_1", "completed"))
    output = sent.events[-1]["response"]["output"]
    assert [item["id"] for item in output] == ["item_a", "item_a_call0", "item_a_call1", "item_a_call11"]
    assert [json.loads(item["arguments"])["n"] for item in output[1:]] == [0, 1, 11]


def test_call_without_arguments_gets_an_empty_object(sent: SentEventsOf) -> None:
    """`arguments` must parse, and a function without parameters may come with none."""
    open_reply(sent, item=CALL)
    assert sent.wire.call_delta("resp_1", CALL.id, "") == []
    sent.render(ResponseEnded("resp_1", "completed"))
    assert sent.events[-1]["response"]["output"][0]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("arguments", "status"), [('{"place":', "cancelled"), ('{"place":"Bern"}', "cancelled"), ('{"pl', "completed")]
)
def test_a_call_that_is_not_whole_is_not_run(sent: SentEventsOf, arguments: str, status: Any) -> None:
    """Clients run a call on `arguments.done` or on a completed item: neither is sent for a cut or broken one."""
    open_reply(sent, item=CALL)
    sent.take(sent.wire.call_delta("resp_1", CALL.id, arguments))
    sent.render(ResponseEnded("resp_1", status, "" if status == "completed" else "turn_detected"))
    assert "response.function_call_arguments.done" not in sent.types()
    assert sent.events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_call_of_another_id_is_dropped(sent: SentEventsOf) -> None:
    open_reply(sent, item=CALL)
    assert sent.wire.call_delta("resp_1", "item_a_call1", "{}") == []
    assert sent.wire.dropped == 1


SERVER_CALL = FunctionCall("item_a_call0", "call_1", "get_weather", "", "in_progress", server_label="agent")
ENDED_CALL = FunctionCall("item_a_call0", "call_1", "get_weather", "{}", server_label="agent", output="sunny")


def test_the_result_of_a_deleted_call_is_no_item(sent: SentEventsOf) -> None:
    """The client deletes a call that runs: the event of its end comes, and no item."""
    open_reply(sent, item=SERVER_CALL)
    sent.take(sent.wire.call_delta("resp_1", SERVER_CALL.id, "{}"))
    sent.render(ResponseEnded("resp_1", "completed"), ItemDeleted(SERVER_CALL.id))
    ended = sent.render(ToolEnded(ENDED_CALL))
    assert [event["type"] for event in ended] == ["response.mcp_call.completed"]
    assert sent.render(ToolEnded(ENDED_CALL)) == [], "it is over once"


def test_a_call_that_was_cut_has_no_result(sent: SentEventsOf) -> None:
    """It never ran, as far as the client knows."""
    open_reply(sent, item=SERVER_CALL)
    sent.render(ResponseEnded("resp_1", "cancelled", "turn_detected"))
    assert sent.render(ToolEnded(ENDED_CALL)) == []
    assert not [name for name in sent.types() if name.startswith("response.mcp_call")]
