"""Checks Realtime server events against the `openai` package's own types. Needs openai and pydantic.

assert problems(event) == []                  # the GA shape
assert problems(event, dialect="beta") == []  # the older one
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from openai.types.beta.realtime.realtime_server_event import RealtimeServerEvent as BetaServerEvent
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

Dialect = Literal["ga", "beta"]

SERVER_SIDE_SESSION_FIELDS: Final = frozenset({"id", "object", "expires_at"})
"""What real servers add to the published session type, which is that of a request."""


def _classes(union: Any) -> Mapping[str, type[BaseModel]]:
    members = get_args(get_args(union)[0] if get_origin(union) is Annotated else union)
    named = {name: member for member in members for name in get_args(member.model_fields["type"].annotation)}
    return MappingProxyType(named)


EVENTS: Final[Mapping[Dialect, Mapping[str, type[BaseModel]]]] = MappingProxyType(
    {"ga": _classes(RealtimeServerEvent), "beta": _classes(BetaServerEvent)}
)
"""By dialect, each event's published type by the event's name."""


@cache
def _adapter(published: type[BaseModel]) -> TypeAdapter[BaseModel]:
    return TypeAdapter(published)


def problems(event: Mapping[str, Any], *, dialect: Dialect = "ga") -> list[str]:
    """What keeps one emitted event from being exactly of its published shape, as `path: kind: text`; [] if nothing.

    Unknown members count, at any depth, and so do values that would only pass after a conversion.
    """
    published = EVENTS[dialect].get(str(event.get("type")))
    if published is None:
        return [f"type: unknown event {event.get('type')!r}"]
    found = [] if event.get("event_id") else ["event_id: missing"]
    session = event.get("session")
    if isinstance(session, dict):
        event = {**event, "session": {k: v for k, v in session.items() if k not in SERVER_SIDE_SESSION_FIELDS}}
    try:
        _adapter(published).validate_python(dict(event), strict=True, extra="forbid")
    except ValidationError as error:
        found += [f"{'.'.join(map(str, e['loc']))}: {e['type']}: {e['msg']}" for e in error.errors()]
    return found


def require_strict(events: list[Mapping[str, Any]], *, dialect: Dialect = "ga") -> None:
    """Fail with every problem of every event.

    Raises:
        AssertionError: naming each event that is not of its published shape.
    """
    found = [f"{event.get('type')}: {p}" for event in events for p in problems(event, dialect=dialect)]
    assert not found, "\n".join(found)
