"""The changes that a client's `session.update` requests: tables from its keys to the configuration's fields."""

from __future__ import annotations

from typing import Any, Final

from voicepipe.errors import ProtocolError
from voicepipe.protocol import published_fields
from voicepipe.protocol.extensions import read_extensions
from voicepipe.protocol.json_fields import (
    MAX_ECHOED_CHARS,
    JsonObject,
    Reader,
    changes,
    flag,
    listing,
    number,
    one_of,
    record,
    refuse_depth,
    required,
    text,
)
from voicepipe.protocol.prompt import read_prompt
from voicepipe.protocol.session_types import (
    FLAT_FORMATS,
    KINDS,
    SessionKind,
    read_audible,
    read_flat_format,
    read_format,
    read_max_tokens,
    read_session_tools,
    read_tool_choice,
    read_transcription,
    read_truncation,
    read_turn_detection,
    read_voice,
)

MIN_SPEED: Final = 0.25
MAX_SPEED: Final = 1.5
"""The published limits of `audio.output.speed`."""


def requested_changes(update: object) -> dict[str, Any]:
    """Return the fields of the configuration that a client's `session` object sets, by name, with their new values.

    Raises:
        ProtocolError: a value has the wrong type or is out of range, or no such field is published; `field` is its
            dotted path.
    """
    session = record(update, "session")
    refuse_depth(session, "session")
    flat = is_flat(session)
    published_fields.refuse_unknown(session, _FLAT_FIELDS if flat else _NESTED_FIELDS)
    found = changes(session, _FLAT if flat else _NESTED, "session")
    return {
        name: value
        for name, value in found.items()
        if name != _CHECKED and (value is not None or name not in _NEVER_NULL)
    }


def is_flat(update: JsonObject) -> bool:
    """Return whether an update has the older shape: a key that only the older shape has, and none that only the
    published shape has.
    """
    return not _ONLY_NESTED & update.keys() and bool(_ONLY_FLAT & update.keys())


def is_published(update: object) -> bool:
    """Return whether this update shows that the client uses the published shape, whatever the handshake had."""
    return isinstance(update, dict) and bool(_ONLY_NESTED & update.keys())


def published(flat: JsonObject, kind: SessionKind) -> JsonObject:
    """Return a session in the older, flat shape in the published shape; keys that are unknown there are left out.

    Raises:
        ProtocolError: a value has the wrong type or is out of range; `field` is its key.
    """
    try:
        requested_changes(flat)
    except ProtocolError as why:
        raise ProtocolError(why.why, field=(why.field or "").removeprefix("session."), code=why.code) from None
    session: JsonObject = {"type": kind}
    for key, (name, _) in _FLAT.items():
        if key in flat and name != _CHECKED:
            form = name in ("input_format", "output_format") and flat[key] is not None
            _put(session, _PUBLISHED_KEYS[name], {"type": FLAT_FORMATS[flat[key]]} if form else flat[key])
    return session


def _put(session: JsonObject, dotted: str, value: object) -> None:
    *owners, last = dotted.split(".")
    for owner in owners:
        session = session.setdefault(owner, {})
    session[last] = value


def _read_instructions(value: object, path: str) -> str:
    return "" if value is None else text(value, path, max_chars=MAX_ECHOED_CHARS)


def _read_kind(value: object, path: str) -> SessionKind | None:
    return None if value is None else one_of(value, path, KINDS)


def _read_speed(value: object, path: str) -> float | None:
    return None if value is None else number(value, path, low=MIN_SPEED, high=MAX_SPEED)


def _read_voice(value: object, path: str) -> str | None:
    return None if value is None else read_voice(value, path)


def _read_temperature(value: object, path: str) -> float | None:
    return None if value is None else number(value, path, low=0.0, high=2.0)


def _check_tracing(value: object, path: str) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        one_of(value, path, ("auto",))
        return
    for key in ("workflow_name", "group_id"):
        if value.get(key) is not None:
            text(value[key], f"{path}.{key}")


def _check_include(value: object, path: str) -> None:
    for position, each in enumerate(() if value is None else listing(value, path)):
        one_of(each, f"{path}[{position}]", ("item.input_audio_transcription.logprobs",))


def _check_flag(value: object, path: str) -> None:
    if value is not None:
        flag(value, path)


def _check_reasoning(value: object, path: str) -> None:
    if value is not None:
        record(value, path)


def _check_noise_reduction(value: object, path: str) -> None:
    if value is None or value is False:
        return
    kind = required(record(value, path), "type", path, '"near_field" or "far_field"')
    one_of(kind, f"{path}.type", ("near_field", "far_field"))


def _ignore(value: object, path: str) -> None:
    """Take any value: what the server sent and gets back, or what only some clients use."""


_CHECKED: Final = ""
"""The place of a field that is checked and has no effect."""

_SHARED: Final[dict[str, tuple[str, Reader]]] = {
    "instructions": ("instructions", _read_instructions),
    "tools": ("tools", read_session_tools),
    "tool_choice": ("tool_choice", read_tool_choice),
    "temperature": ("temperature", _read_temperature),
    "tracing": (_CHECKED, _check_tracing),
    "include": (_CHECKED, _check_include),
    "prompt": ("prompt", lambda value, path: None if value is None else read_prompt(value, path)),
    "providerData.voicepipe": ("extensions", read_extensions),
    **dict.fromkeys(("id", "object", "expires_at", "client_secret", "model", "prompt_cache_key"), (_CHECKED, _ignore)),
}
_NESTED: Final[dict[str, tuple[str, Reader]]] = {
    **_SHARED,
    "type": ("kind", _read_kind),
    "output_modalities": ("audible", read_audible),
    "max_output_tokens": ("max_output_tokens", read_max_tokens),
    "truncation": ("truncation", read_truncation),
    "audio.input.format": ("input_format", read_format),
    "audio.input.turn_detection": ("turn_detection", read_turn_detection),
    "audio.input.transcription": ("transcription", read_transcription),
    "audio.input.noise_reduction": (_CHECKED, _check_noise_reduction),
    "parallel_tool_calls": (_CHECKED, _check_flag),
    "reasoning": (_CHECKED, _check_reasoning),
    "audio.output.format": ("output_format", read_format),
    "audio.output.voice": ("voice", _read_voice),
    "audio.output.speed": ("speed", _read_speed),
    "audio.output.model": (_CHECKED, _ignore),
}
_FLAT: Final[dict[str, tuple[str, Reader]]] = {
    **_SHARED,
    "modalities": ("audible", read_audible),
    "max_response_output_tokens": ("max_output_tokens", read_max_tokens),
    "input_audio_format": ("input_format", read_flat_format),
    "turn_detection": ("turn_detection", read_turn_detection),
    "input_audio_transcription": ("transcription", read_transcription),
    "input_audio_noise_reduction": (_CHECKED, _check_noise_reduction),
    "output_audio_format": ("output_format", read_flat_format),
    "voice": ("voice", _read_voice),
    "speed": ("speed", _read_speed),
}
_NESTED_FIELDS: Final = published_fields.by_object(_NESTED)
_FLAT_FIELDS: Final = published_fields.by_object(_FLAT)
_PUBLISHED_KEYS: Final = {name: dotted for dotted, (name, _) in _NESTED.items() if name != _CHECKED}
"""A field of the configuration -> its place in the published shape."""

_ONLY_NESTED: Final = frozenset({"type", "audio", "output_modalities", "max_output_tokens"})
_ONLY_FLAT: Final = frozenset(_FLAT) - frozenset(_SHARED)
_NEVER_NULL: Final = frozenset({"kind", "voice", "speed", "prompt"})
"""Fields for which a null does not turn anything off: SDKs write null for what the application left out."""
