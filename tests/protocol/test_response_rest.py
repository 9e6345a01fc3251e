"""The requests and events of `/v1/responses`, without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from voicepipe.errors import ProtocolError
from voicepipe.ports.model import Called, Content, Image, Message, Returned, Text
from voicepipe.protocol.chat_response import TokensUsed
from voicepipe.protocol.response_rest_answer import ResponseWriter, item_id, response_of
from voicepipe.protocol.response_rest_items import (
    CallItem,
    InputItem,
    MessageItem,
    OutputItem,
    check_calls,
    instruction_position,
    read_items,
    stored_items,
    to_wire,
)
from voicepipe.protocol.response_rest_request import read_response_request
from voicepipe.server.gateway.response_request import functions_of, messages_of

F: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def events_of(*pieces: bytes) -> list[Any]:
    """The events of a stream, each checked to be under its own name."""
    found = []
    for block in b"".join(pieces).split(b"\n\n")[:-1]:
        name, data = block.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        found.append(event)
    return found


def test_text_calls_and_text_again_are_items_of_their_own() -> None:
    writer = ResponseWriter("resp_a", "m", 5, {})
    events = events_of(
        writer.begin(),
        writer.text("Let me "),
        writer.text("see."),
        writer.call(0, "c1", "f", ""),
        writer.call(1, "c2", "g", "{"),
        writer.call(0, "", "", '{"x":1}'),
        writer.call(1, "", "", "}"),
        writer.text("Wait."),
        writer.end_items("stop"),
    )
    writer.finish(TokensUsed(3, 4, 2, 1), {"route": "a/b"}, 7)
    events += events_of(writer.end())
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "output_item.added"),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.delta", "function_call_arguments.delta"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("function_call_arguments.done", "output_item.done", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    body = events[-1]["response"]
    assert [(item["type"], item.get("arguments"), item["status"]) for item in body["output"]] == [
        ("message", None, "completed"),
        ("function_call", '{"x":1}', "completed"),
        ("function_call", "{}", "completed"),
        ("message", None, "completed"),
    ]
    assert [item["id"] for item in body["output"]] == ["msg_a_0", "fc_a_1", "fc_a_2", "msg_a_3"]
    assert (body["status"], body["completed_at"], body["voicepipe"]) == ("completed", 7, {"route": "a/b"})
    assert body["usage"]["input_tokens_details"] == {"cached_tokens": 2, "cache_write_tokens": 1}


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_incomplete_response_says_why(reason: Any, why: str) -> None:
    writer = ResponseWriter("resp_a", "m", 5, {})
    writer.text("Let")
    writer.call(0, "c1", "f", "{")
    writer.end_items(reason)
    writer.finish(TokensUsed(3, 4, 2), {}, 7)
    (event,) = events_of(writer.end())
    body = event["response"]
    assert event["type"] == "response.incomplete"
    assert (body["incomplete_details"], body["completed_at"]) == ({"reason": why}, None)
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]


@pytest.mark.parametrize(("code", "published"), [("rate_limit_exceeded",) * 2, ("provider_failed", "server_error")])
def test_a_failed_response_has_a_published_code(code: str, published: str) -> None:
    (event,) = events_of(ResponseWriter("resp_a", "m", 5, {}).fail({"code": code, "message": "It failed."}))
    assert event["response"]["error"] == {"code": published, "message": "It failed."}
    assert event["response"]["status"] == "failed"


def test_an_items_id_names_its_response() -> None:
    assert [response_of(item_id("resp_a1", kind, 3)) for kind in ("message", "function_call", "input")] == [
        "resp_a1"
    ] * 3
    assert [response_of(other) for other in ("", "msg", "msg_a", "msg_a_x", "rs_a_1", "msg__1")] == [None] * 6


def items(*written: dict[str, Any]) -> list[InputItem]:
    return read_items(written)


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://a/b.png", "detail": "original"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Rain.", "annotations": []}]},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]
MESSAGES: list[Message] = [
    Content("system", (Text("Be brief."),)),
    Content("user", (Image("https://a/b.png", "high"),)),
    Called("c1", "f", "{}"),
    Returned("c1", "rain"),
    Content("assistant", (Text("Rain."),)),
    Content("assistant", (Text("No."),)),
]


def test_items_are_messages_of_the_port_also_once_stored() -> None:
    read = [item for item in items(*HISTORY) if isinstance(item, MessageItem | CallItem | OutputItem)]
    assert list(messages_of(read)) == MESSAGES
    wire = [to_wire(item, f"in_a_{n}") for n, item in enumerate(read)]
    assert [each["id"] for each in wire] == [f"in_a_{n}" for n in range(7)]
    assert wire[5]["content"][0] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert list(messages_of(stored_items(msgspec.json.decode(msgspec.json.encode(wire))))) == MESSAGES


def test_text_alone_is_a_message_of_the_user() -> None:
    (item,) = read_items("Hm?")
    assert isinstance(item, MessageItem)
    assert list(messages_of([item])) == [Content("user", (Text("Hm?"),))]
    assert instruction_position([item]) is None
    assert instruction_position(items({"role": "user", "content": "Hm?"}, {"role": "developer", "content": "a"})) == 1
    assert instruction_position(items({"type": "reasoning", "id": "rs_1"})) is None


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ([{"role": "nurse", "content": "a"}], "input[0].role"),
        ([{"role": "user", "content": "a"}, {"type": "web_search_call"}], "input[1].type"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://a"}]}],
            "input[0].content[0].image_url",
        ),
        (
            [{"role": "assistant", "content": [{"type": "input_image", "image_url": "https://a"}]}],
            "input[0].content[0].type",
        ),
    ],
)
def test_a_wrong_item_is_named(written: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_items(written)
    assert refused.value.field == field


def test_calls_and_results_belong_together() -> None:
    call, output = CallItem("c1", "f", "{}"), OutputItem("c1", "rain")
    said = MessageItem("user", "Hm?")
    check_calls([call], [output, said])
    check_calls([], [call, said, output])
    for earlier, own, field in (
        ([], [output], "input[0].call_id"),
        ([call], [said], "input"),
        ([output], [], "input[0].call_id"),
    ):
        with pytest.raises(ProtocolError) as refused:
            check_calls(earlier, own)
        assert refused.value.field == field


@pytest.mark.parametrize(
    ("more", "field", "code"),
    [
        ({"tools": [F, F]}, "tools[1].name", None),
        ({"tools": [F | {"parameters": 1}]}, "tools[0].parameters", "invalid_type"),
        ({"tools": [{"type": "mcp"}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [F | {"name": "a b"}]}, "tools[0].name", None),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", None),
        (
            {"tools": [F], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [F | {"name": "g"}]}},
            "tool_choice.tools[0].name",
            None,
        ),
        (
            {"tools": [F], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}},
            "tool_choice",
            None,
        ),
        ({"tool_choice": "required"}, "tool_choice", None),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
        ({"top_logprobs": 3}, "top_logprobs", "unsupported_parameter"),
        ({"model": 3}, "model", "invalid_type"),
    ],
)
def test_a_wrong_request_is_refused(more: dict[str, Any], field: str, code: str | None) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_response_request(json.dumps({"model": "m", "input": "Hm?", **more}).encode())
    assert refused.value.field == field
    assert code in (None, refused.value.code)


def test_no_json_is_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        read_response_request(b"{")
    assert refused.value.code == "invalid_json"


def test_a_format_is_passed_in_the_shape_of_chat_completions() -> None:
    schema = {"type": "json_schema", "name": "place", "schema": {"type": "object"}, "strict": True}
    request = read_response_request(json.dumps({"model": "m", "input": "", "text": {"format": schema}}).encode())
    ((name, value),) = request.passed
    assert (name, json.loads(value)) == (
        "response_format",
        {"type": "json_schema", "json_schema": {"name": "place", "schema": {"type": "object"}, "strict": True}},
    )
    assert request.echo()["text"]["format"] == schema


def test_a_tool_is_repeated_as_it_came() -> None:
    tools = [F, {"type": "function", "name": "g"}]
    request = read_response_request(json.dumps({"model": "m", "input": "", "tools": tools}).encode())
    first, second = request.echo()["tools"]
    assert (first["parameters"], second["parameters"]) == ({"type": "object"}, None)
    assert [each.parameters_json for each in functions_of(request.callable_tools)] == ['{"type": "object"}', ""]
    assert (request.passed, request.ignored, request.function_choice) == ((), (), None)
