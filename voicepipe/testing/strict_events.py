"""Check Realtime server events against the `openai` package's own types. Needs openai and pydantic.

assert problems(event) == []                  # the GA shape
assert problems(event, dialect="beta") == []  # the older one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from openai.types.beta.realtime.realtime_server_event import RealtimeServerEvent as BetaServerEvent
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

from voicepipe.protocol import extensions

Dialect = Literal["ga", "beta"]

SERVER_SIDE_SESSION_FIELDS: Final = frozenset({"id", "object", "expires_at"})
"""Members that real servers add to the published session type, which is that of a request."""


NEVER_NULL: Final = frozenset({"id", "type", "status", "role", "name", "call_id", "object", "detail", "image_url"})
"""Members that clients in other languages expect to be absent or a string (zod's `optional()`)."""


def _classes(union: Any) -> Mapping[str, type[BaseModel]]:
    members = get_args(get_args(union)[0] if get_origin(union) is Annotated else union)
    named = {name: member for member in members for name in get_args(member.model_fields["type"].annotation)}
    return MappingProxyType(named)


EVENTS: Final[Mapping[Dialect, Mapping[str, type[BaseModel]]]] = MappingProxyType(
    {"ga": _classes(RealtimeServerEvent), "beta": _classes(BetaServerEvent)}
)
"""Dialect -> event name -> published type."""


@cache
def _adapter(published: type[BaseModel]) -> TypeAdapter[BaseModel]:
    return TypeAdapter(published)


def problems(event: Mapping[str, Any], *, dialect: Dialect = "ga", extended: bool = False) -> list[str]:
    """Return the differences of an event from its published shape, as `path: kind: text`; [] if there are none.

    Unknown members count, at any depth, and so do values that would only pass after a conversion. With `extended`, the
    package's own events and members are checked against its own types.
    """
    if extended and str(event.get("type")) in extensions.SERVER_EVENTS:
        return _extension_faults(event)
    published = EVENTS[dialect].get(str(event.get("type")))
    if published is None:
        return [f"type: unknown event {event.get('type')!r}"]
    found = [] if event.get("event_id") else ["event_id: missing"]
    found += [fault for item in _items(event) for fault in _item_faults(item)]
    session = event.get("session")
    if isinstance(session, dict):
        opted_in = {extensions.OPT_IN} if extended else set()
        event = {**event, "session": _comparable(_without(session, opted_in), dialect)}
    if event.get("type") == "transcription_session.updated":
        # The published type requires a secret, and documents that it comes over REST only.
        event = {**event, "session": {"client_secret": {"value": "", "expires_at": 0}, **event["session"]}}
    try:
        _adapter(published).validate_python(dict(event), strict=True, extra="forbid")
    except ValidationError as error:
        found += [f"{'.'.join(map(str, e['loc']))}: {e['type']}: {e['msg']}" for e in error.errors()]
    return found


def _extension_faults(event: Mapping[str, Any]) -> list[str]:
    try:
        extensions.read_server_event(msgspec.json.encode(event))
    except msgspec.ValidationError as error:
        return [str(error)]
    return []


def _without(session: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in session.items() if key not in names}


def _comparable(session: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return a session without the server's own fields and names, which the published types lack."""
    visible = {key: value for key, value in session.items() if key not in SERVER_SIDE_SESSION_FIELDS}
    if dialect == "ga":
        return visible
    visible.pop("model", None)  # the older types have a fixed list of models
    if session.get("object") == "realtime.transcription_session":
        visible["input_audio_transcription"] = None
    return visible


def _items(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if isinstance(event.get("item"), dict):
        yield event["item"]
    response = event.get("response")
    if isinstance(response, dict):
        yield from response.get("output") or ()


def _item_faults(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield faults that the published types allow and that break some client."""
    parts = item.get("content", []) if item.get("type") == "message" else []
    if not isinstance(parts, list) or (item.get("type") == "message" and "content" not in item):
        yield "item.content: an array, even when it is empty"
        return
    for owner in (item, *parts):
        yield from (f"item.{key}: null" for key in NEVER_NULL & owner.keys() if owner[key] is None)
    for part in parts:
        if part.get("type") == "input_audio" and "transcript" not in part:
            yield "item.content.transcript: missing"


def require_strict(events: list[Mapping[str, Any]], *, dialect: Dialect = "ga") -> None:
    """Fail with every problem of every event.

    Raises:
        AssertionError: naming each event that is not of its published shape.
    """
    found = [f"{event.get('type')}: {p}" for event in events for p in problems(event, dialect=dialect)]
    assert not found, "\n".join(found)
