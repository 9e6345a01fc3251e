"""Locks: fields of a session that its client may not change, and fields that it may not see."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from voicepipe.auth.claims import Lock
from voicepipe.auth.token_limits import broken_locks
from voicepipe.errors import ProtocolError
from voicepipe.protocol.extensions import echo
from voicepipe.protocol.ga import session_object
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.settings import ReplySettings
from voicepipe.values import replace

Locks = tuple[Lock, ...]

HIDEABLE: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "instructions": {"instructions": "", "prompt": None},
        "tools": {"tools": (), "mcp": ()},
        "audio.input.transcription": {"transcription": None},
    }
)
"""Fields that can be shown empty, and their empty values. Clients compute from the rest: an empty format would break
their playback.
"""

_OF_REPLY: Final = (
    "audible",
    "instructions",
    "tools",
    "tool_choice",
    "tool_server",
    "max_output_tokens",
    "temperature",
    "speed",
)


def check_locks(session: SessionConfig, locks: Locks) -> None:
    """Check locks against their session: a lock on a field that does not exist would lock nothing.

    Raises:
        ProtocolError: a field is not in the session, or cannot be hidden.
    """
    whole = _whole(session)
    for position, lock in enumerate(locks):
        at = f"voicepipe.locks[{position}]"
        if not _has(whole, lock.path):
            raise ProtocolError(
                f"Expected the dotted path of a field of the session, such as instructions, got {lock.field!r}.",
                field=f"{at}.field",
            )
        if lock.hidden and lock.field not in HIDEABLE:
            raise ProtocolError(
                f"Expected one of {', '.join(HIDEABLE)} for a hidden field, got {lock.field!r}.", field=f"{at}.hidden"
            )


def check_update(before: SessionConfig, after: SessionConfig, locks: Locks) -> None:
    """Refuse an update that changes a locked field. An update that repeats the current value is allowed: clients send
    all fields.

    Raises:
        ProtocolError: `field` is the first such field's path in the session.
    """
    broken = broken_locks(_whole(before), _whole(after), locks) if locks else ()
    if broken:
        raise ProtocolError(
            "The client secret of this session locks the field: leave it out.",
            field=f"session.{broken[0]}",
            code="field_locked",
        )


def check_reply(session: SessionConfig, reply: ReplySettings, locks: Locks) -> None:
    """Refuse a reply with its own value for a locked field: otherwise `response.create` would bypass the lock.

    Raises:
        ProtocolError: `field` is the first such field's path.
    """
    if locks:
        requested: dict[str, Any] = {name: getattr(reply, name) for name in _OF_REPLY}
        if reply.server_tools != session.server_tools:  # it names some of the session's MCP servers
            requested["mcp"] = ()
        check_update(session, replace(session, **requested, voice=reply.voice or session.voice), locks)


def visible(session: SessionConfig, locks: Locks) -> SessionConfig:
    """Return the session with its hidden fields empty."""
    emptied: dict[str, Any] = {}
    for lock in locks:
        if lock.hidden:
            emptied |= HIDEABLE.get(lock.field, {})
    return replace(session, **emptied) if emptied else session


def _whole(session: SessionConfig) -> JsonObject:
    """Return the session including the fields beyond the published ones."""
    return echo(session_object(session), session.extensions)


def _has(session: JsonObject, path: tuple[str, ...]) -> bool:
    """Return whether the path leads to a field, or into a field that is null now and may be an object later."""
    value: Any = session
    for name in path:
        if value is None:
            return True
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True
