"""The items of a responses request: read from the wire, and stored. No I/O.

Source: OpenAI API reference, "Create a model response". Fields of an item that mean nothing to another LLM
(`annotations`, `status`, `phase`) are skipped, as are items of reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from voicepipe.errors import ProtocolError, validation_place
from voicepipe.protocol.chat_messages import MAX_PARTS, CallId, FunctionName
from voicepipe.protocol.chat_request import validation_refusal
from voicepipe.protocol.json_fields import JsonObject


class InputText(Struct, frozen=True, tag_field="type", tag="input_text"):
    """A text of the client."""

    text: str


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    """A text of the LLM."""

    text: str


class Refusal(Struct, frozen=True, tag_field="type", tag="refusal"):
    """The text with which an LLM refused to answer; it is passed on as text."""

    refusal: str


class InputImage(Struct, frozen=True, tag_field="type", tag="input_image"):
    """An image of the client."""

    image_url: Annotated[str, Meta(pattern=r"^(?:https://|data:image/)")]
    detail: Literal["auto", "low", "high", "original"] = "auto"


Part = InputText | OutputText | Refusal | InputImage


class MessageItem(Struct, frozen=True, tag_field="type", tag="message"):
    """A message of any role."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[Part], Meta(max_length=MAX_PARTS)]


class CallItem(Struct, frozen=True, tag_field="type", tag="function_call"):
    """A function call of the LLM. `arguments` is JSON as text."""

    call_id: CallId
    name: FunctionName
    arguments: str


class OutputItem(Struct, frozen=True, tag_field="type", tag="function_call_output"):
    """The result of a function call."""

    call_id: CallId
    output: str | Annotated[list[InputText], Meta(max_length=MAX_PARTS)]


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The reasoning of an LLM, which no other LLM reads."""


class ReferenceItem(Struct, frozen=True, tag_field="type", tag="item_reference"):
    """An item of a stored response, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


Item = MessageItem | CallItem | OutputItem
InputItem = Item | ReasoningItem | ReferenceItem

_MESSAGE: Final = {"type": "message"}


def read_items(written: str | Sequence[Mapping[str, Any]]) -> list[InputItem]:
    """Read the `input` of a request. A message may leave out its type.

    Raises:
        ProtocolError: an item is of no known shape; `field` is its path.
    """
    if isinstance(written, str):
        return [MessageItem("user", [InputText(written)])]
    typed = [each if "type" in each else _MESSAGE | dict(each) for each in written]
    try:
        items: list[InputItem] = msgspec.convert(typed, list[InputItem])
    except msgspec.ValidationError as wrong:
        why, path = validation_place(wrong)
        # msgspec writes the path of a list as `$[0].content`, which keeps its `$`.
        raise validation_refusal(why, f"input{path.removeprefix('$')}") from None
    for position, item in enumerate(items):
        _check_parts(item, f"input[{position}]")
    return items


def _check_parts(item: InputItem, path: str) -> None:
    if isinstance(item, MessageItem) and item.role != "user" and not isinstance(item.content, str):
        for position, part in enumerate(item.content):
            if isinstance(part, InputImage):
                why = f"A message of role {item.role!r} can't hold an image."
                raise ProtocolError(why, field=f"{path}.content[{position}].type", code="invalid_value")


def check_calls(earlier: Iterable[Item], items: Sequence[Item]) -> None:
    """Check that each result has its call before it, and each call its result after it.

    Args:
        earlier: the items of earlier responses, which a request goes on from.
        items: those of the request itself.

    Raises:
        ProtocolError: in the published words.
    """
    waiting = dict[str, None]()
    before = list(earlier)
    for position, item in enumerate([*before, *items], -len(before)):
        if isinstance(item, CallItem):
            waiting[item.call_id] = None
        elif isinstance(item, OutputItem):
            if item.call_id not in waiting:
                why = f"No tool call found for function call output with call_id {item.call_id}."
                raise ProtocolError(why, field=f"input[{max(position, 0)}].call_id", code="invalid_value")
            del waiting[item.call_id]
    for call_id in waiting:
        raise ProtocolError(f"No tool output found for function call {call_id}.", field="input", code="invalid_value")


def instruction_position(items: Iterable[InputItem]) -> int | None:
    """Return the position of the first item that instructs the model."""
    for position, item in enumerate(items):
        if isinstance(item, MessageItem) and item.role in ("system", "developer"):
            return position
    return None


def to_wire(item: Item, id_: str) -> JsonObject:
    """Return an item as it is stored and listed, under its id."""
    wire: JsonObject = {"id": id_, "status": "completed", **msgspec.to_builtins(item)}
    if isinstance(item, MessageItem):
        wire["content"] = [_part_wire(part, item.role) for part in parts_of(item.content)]
    return wire


def stored_items(written: Iterable[JsonObject]) -> list[Item]:
    """Return items that `to_wire`, or a response, has written."""
    items: list[Item] = msgspec.convert(list(written), list[Item])
    return items


def parts_of(content: str | Sequence[Part]) -> Sequence[Part]:
    """Return the parts of a message; text alone is one."""
    return (InputText(content),) if isinstance(content, str) else content


def _part_wire(part: Part, role: str) -> JsonObject:
    if role == "assistant" and isinstance(part, InputText | OutputText):
        return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
    wire: JsonObject = msgspec.to_builtins(part)
    return wire
