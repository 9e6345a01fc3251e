"""Read items of the conversation as clients write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pybase64

from voicepipe.protocol.json_fields import (
    MAX_ECHOED_CHARS,
    MAX_ID_CHARS,
    JsonObject,
    flag,
    listing,
    missing,
    one_of,
    record,
    refuse_length,
    required,
    text,
    wrong_value,
)
from voicepipe.protocol.published_fields import ITEM, refuse_unknown
from voicepipe.turn.conversation import (
    ROOT,
    ApprovalAnswer,
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputImage,
    InputText,
    Item,
    ItemStatus,
    Message,
    OutputAudio,
    OutputText,
    Part,
    Role,
)

Find = Callable[[str], Item | None]
"""Returns the conversation's item of that id, or None."""

_ROLES: Final[tuple[Role, ...]] = ("system", "user", "assistant")
_KINDS: Final = ("message", "function_call", "function_call_output", "mcp_approval_response")
_TEXTS: Final = ("input_text", "output_text", "text")
_SOUNDS: Final = ("input_audio", "output_audio", "audio")
_STATUSES: Final[tuple[ItemStatus, ...]] = ("completed", "incomplete", "in_progress")


def read_item(value: object, path: str) -> Item:
    """Read an item that a client adds. Its `id` is "" when the client gave none; audio bytes in it are not kept.

    Raises:
        ProtocolError: a field is missing, has the wrong type or an unknown value.
    """
    given = record(value, path)
    kind = one_of(required(given, "type", path, "a string"), f"{path}.type", _KINDS)
    refuse_unknown(given, ITEM, path)
    item_id, status = _read_id(given, path), _read_status(given, path)
    if kind == "message":
        role = one_of(required(given, "role", path, "a string"), f"{path}.role", _ROLES)
        message = Message(item_id, role, _read_content(given, role, path), status)
        refuse_length(len(message.text()), f"{path}.content")
        return message
    if kind == "function_call":
        call_id = _text_at(given, "call_id", path) if given.get("call_id") is not None else item_id
        if not call_id:
            raise missing(f"{path}.call_id", "a string")
        return FunctionCall(item_id, call_id, _text_at(given, "name", path), _text_at(given, "arguments", path), status)
    if kind == "mcp_approval_response":
        approve = flag(required(given, "approve", path, "true or false"), f"{path}.approve")
        reason = "" if given.get("reason") is None else _text_at(given, "reason", path)
        return ApprovalAnswer(item_id, _text_at(given, "approval_request_id", path), approve, reason, status)
    return FunctionOutput(item_id, _text_at(given, "call_id", path), _text_at(given, "output", path), status)


def recordings(item: JsonObject, path: str) -> bytes:
    """Return the audio in a user's item that `read_item` has accepted, end to end. Audio with a transcript is left out:
    it is known.

    Raises:
        ProtocolError: it is no base64.
    """
    if item.get("type") != "message" or item.get("role") != "user":
        return b""
    found = bytearray()
    for position, part in enumerate(item["content"]):
        if part["type"] in _SOUNDS and part.get("audio") and not part.get("transcript"):
            at = f"{path}.content[{position}].audio"
            try:
                found += pybase64.b64decode(part["audio"], validate=True)
            except ValueError:
                raise wrong_value(at, "base64 with padding", part["audio"]) from None
    return bytes(found)


def read_context(value: object, path: str, find: Find) -> tuple[Item, ...]:
    """Read the `input` of a `response.create`: items, and references to items of the conversation.

    Raises:
        ProtocolError: an item cannot be read, or `find` returns no item for the referenced id.
    """
    return tuple(_read_or_find(item, f"{path}[{i}]", find) for i, item in enumerate(listing(value, path)))


def _read_or_find(value: object, path: str, find: Find) -> Item:
    given = record(value, path)
    if given.get("type") != "item_reference":
        return read_item(given, path)
    item_id = _text_at(given, "id", path)
    found = find(item_id)
    if found is None:
        raise wrong_value(f"{path}.id", "the id of an item of the conversation", item_id)
    return found


def _text_at(given: JsonObject, key: str, path: str) -> str:
    value = required(given, key, path, "a string")
    return text(value, f"{path}.{key}", max_chars=None if key == "image_url" else MAX_ECHOED_CHARS)


def _read_id(given: JsonObject, path: str) -> str:
    value = given.get("id")
    if value is None:
        return ""
    item_id = text(value, f"{path}.id", max_chars=MAX_ID_CHARS)
    if item_id == ROOT:
        raise wrong_value(f"{path}.id", 'an id other than "root", the front of the conversation', item_id)
    return item_id


def _read_status(given: JsonObject, path: str) -> ItemStatus:
    value = given.get("status")
    status = "completed" if value is None else one_of(value, f"{path}.status", _STATUSES)
    # Nothing will finish an item that its client calls unfinished, so it is complete as it is.
    return "incomplete" if status == "incomplete" else "completed"


def _read_content(given: JsonObject, role: Role, path: str) -> tuple[Part, ...]:
    value = required(given, "content", path, "an array")
    parts = listing(value, f"{path}.content")
    return tuple(_read_part(part, role, f"{path}.content[{i}]") for i, part in enumerate(parts))


def _read_part(value: object, role: Role, path: str) -> Part:
    """Read one part. Its kind follows from the role: clients write `input_text` for the agent, and `text` for any
    role.
    """
    given = record(value, path)
    allowed = _TEXTS if role == "system" else (*_TEXTS, *_SOUNDS, *(("input_image",) if role == "user" else ()))
    kind = one_of(required(given, "type", path, "a string"), f"{path}.type", allowed)
    if kind in _TEXTS:
        words = _text_at(given, "text", path)
        return OutputText(words) if role == "assistant" else InputText(words)
    if kind in _SOUNDS:
        return _read_sound(given, role, path)
    return _read_image(given, path)


def _read_sound(given: JsonObject, role: Role, path: str) -> Part:
    for key in ("audio", "transcript"):
        if given.get(key) is not None:
            text(given[key], f"{path}.{key}")
    transcript = given.get("transcript")
    return OutputAudio(transcript or "") if role == "assistant" else InputAudio(transcript)


def _read_image(given: JsonObject, path: str) -> InputImage:
    url = _text_at(given, "image_url", path)
    if not url.startswith(("data:", "https:", "http:")):
        raise wrong_value(f"{path}.image_url", "a data: or https: URL", url)
    detail = given.get("detail")
    if detail is None:
        return InputImage(url, n_chars=len(url))
    return InputImage(url, one_of(detail, f"{path}.detail", ("auto", "low", "high")), len(url))


def found_nothing(item_id: str) -> Item | None:
    """Find no item: a `Find` for an empty conversation."""
    return None
