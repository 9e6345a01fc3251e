"""Items as clients write them, and as they come back."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.errors import ProtocolError
from voicepipe.protocol.ga import GA, MAX_IMAGE_URL_CHARS
from voicepipe.protocol.items import read_item
from voicepipe.testing.strict_events import problems as shape_problems
from voicepipe.turn.conversation import (
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputImage,
    InputText,
    Item,
    Message,
    OutputAudio,
    OutputText,
)

READ: list[tuple[dict[str, Any], Item]] = [
    (
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "s"}]},
        Message("", "system", (InputText("s"),)),
    ),
    (
        {"type": "message", "role": "user", "id": "i", "content": [{"type": "input_text", "text": "u"}]},
        Message("i", "user", (InputText("u"),)),
    ),
    (
        {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA"}]},
        Message("", "user", (InputAudio(None),)),
    ),
    (
        {"type": "message", "role": "user", "content": [{"type": "input_audio", "transcript": "said"}]},
        Message("", "user", (InputAudio("said"),)),
    ),
    (
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,"}],
        },
        Message("", "user", (InputImage("data:image/png;base64,"),)),
    ),
    (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        Message("", "assistant", (OutputText("a"),)),
    ),
    (
        {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "a"}]},
        Message("", "assistant", (OutputAudio("a"),)),
    ),
    (
        {"type": "message", "role": "assistant", "status": "incomplete", "content": []},
        Message("", "assistant", (), "incomplete"),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        FunctionCall("", "c", "f", "{}"),
    ),
    ({"type": "function_call", "id": "i", "name": "f", "arguments": "{}"}, FunctionCall("i", "i", "f", "{}")),
    ({"type": "function_call_output", "call_id": "c", "output": ""}, FunctionOutput("", "c", "")),
]


@pytest.mark.parametrize(("given", "item"), READ)
def test_item_kinds(given: dict[str, Any], item: Item) -> None:
    assert read_item(given, "item") == item


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_text_aliases_for_any_role(role: Any, kind: str) -> None:
    """pipecat writes `input_text` for the agent; older clients write `text` for any role."""
    item = read_item({"type": "message", "role": role, "content": [{"type": kind, "text": "t"}]}, "item")
    part = OutputText("t") if role == "assistant" else InputText("t")
    assert item == Message("", role, (part,))


@pytest.mark.parametrize(("role", "part"), [("user", InputAudio("t")), ("assistant", OutputAudio("t"))])
def test_audio_alias(role: Any, part: Any) -> None:
    item = read_item({"type": "message", "role": role, "content": [{"type": "audio", "transcript": "t"}]}, "item")
    assert item == Message("", role, (part,))


def message(*content: object, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(content)}


@pytest.mark.parametrize(
    ("path", "code", "given"),
    [
        ("item.type", "missing_required_parameter", {}),
        ("item.type", "invalid_value", {"type": "mcp_call"}),
        ("item.role", "missing_required_parameter", {"type": "message", "content": []}),
        ("item.role", "invalid_value", {"type": "message", "role": "tool", "content": []}),
        ("item.content", "missing_required_parameter", {"type": "message", "role": "user", "content": None}),
        ("item.content", "invalid_type", {"type": "message", "role": "user", "content": "hi"}),
        ("item.content[0]", "invalid_type", message("hi")),
        ("item.content[1].type", "invalid_value", message({"type": "text", "text": ""}, {"type": "video"})),
        ("item.content[0].text", "missing_required_parameter", message({"type": "input_text"})),
        ("item.content[0].type", "invalid_value", message({"type": "input_audio"}, role="system")),
        ("item.content[0].type", "invalid_value", message({"type": "input_image"}, role="assistant")),
        ("item.content[0].audio", "invalid_type", message({"type": "input_audio", "audio": 1})),
        ("item.content[0].image_url", "invalid_value", message({"type": "input_image", "image_url": "file:///x"})),
        (
            "item.content[0].detail",
            "invalid_value",
            message({"type": "input_image", "image_url": "data:", "detail": "most"}),
        ),
        ("item.id", "string_above_max_length", {**message(), "id": "x" * 65}),
        ("item.id", "invalid_value", {**message(), "id": "root"}),
        ("item.status", "invalid_value", {**message(), "status": "new"}),
        ("item.call_id", "missing_required_parameter", {"type": "function_call", "name": "f", "arguments": "{}"}),
        ("item.arguments", "invalid_type", {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}),
        ("item.output", "missing_required_parameter", {"type": "function_call_output", "call_id": "c"}),
    ],
)
def test_bad_items_are_refused_by_path(path: str, code: str, given: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="expected") as refusal:
        read_item(given, "item")
    assert (refusal.value.field, refusal.value.code) == (path, code)


def test_longest_id_is_accepted() -> None:
    assert read_item({**message(), "id": "x" * 64}, "item").id == "x" * 64


@pytest.mark.parametrize("item", [item for _, item in READ])
def test_items_come_back_as_they_were_read(item: Item) -> None:
    """What we write of an item, we read as the same item; strict readers take it."""
    rendered = GA.item(item)
    assert shape_problems({"type": "conversation.item.retrieved", "event_id": "e", "item": rendered}) == []
    assert None not in [value for key, value in rendered.items()]
    given = {key: value for key, value in rendered.items() if value != ""}
    assert read_item(given | {k: v for k, v in rendered.items() if k == "output"}, "item") == item


def test_user_audio_has_the_key_transcript() -> None:
    """Section 4, items: a client dies without the key; null until it is known."""
    rendered = GA.item(Message("i", "user", (InputAudio(),)))
    assert rendered["content"] == [{"type": "input_audio", "transcript": None}]


def test_content_is_always_an_array() -> None:
    assert GA.item(Message("i", "assistant", (), "in_progress"))["content"] == []


def test_large_pictures_are_acknowledged_without_their_bytes() -> None:
    """Some clients close on a frame above 1 MiB."""
    small, large = InputImage("data:," + "x" * 100), InputImage("data:," + "x" * MAX_IMAGE_URL_CHARS)
    rendered = GA.item(Message("i", "user", (small, large)))
    assert rendered["content"][0]["image_url"] == small.url
    assert rendered["content"][1] == {"type": "input_image", "detail": "auto"}
    assert shape_problems({"type": "conversation.item.retrieved", "event_id": "e", "item": rendered}) == []
