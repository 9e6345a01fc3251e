"""Convert events, commands and settings to plain values for JSON, and back. Every object names its type in `is`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from voicepipe.telemetry.redact import redact
from voicepipe.turn.events import Event
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.settings import CoreSettings, TurnSettings

TEXTS: Final = frozenset(
    ("text", "words", "transcript", "delta", "arguments", "output", "instructions", "description", "parameters_json")
) | {"user_text", "agent_text", "played_text"}
"""Fields that contain the words of people, models and their instructions."""

_MAY_HOLD_SECRETS: Final = frozenset(
    ("why", "reason", "message", "instructions", "route", "output", "description", "parameters_json")
)
"""Texts that come complete: in a text that comes in pieces, the pieces would not be redacted as the whole is."""

_OF_SETTINGS: Final = frozenset(("instructions", "description", "parameters_json"))
"""Those of these texts that come again in each turn."""

_IMAGE_URL: Final = "url"
"""Left out: an image can be megabytes, and the core never reads it."""

_PAIRS: Final = "metadata"

_UNCHANGED: Final = frozenset((int, float, bool, NoneType))
"""Types whose values are plain, and no texts: most fields have one of them."""

_STORED_NAMES: Final = {"hidden_from_llm": "aside", "short_words": "believes_short"}
"""Field -> its name in journals and snapshots. Older versions write this name, and read it: while a cluster is
upgraded, a node of an older version may go on with a session of this one."""

Words = Callable[[str], str]
"""A function that replaces a text."""


def stored_name(field: str) -> str:
    """Return the name under which journals and snapshots have a field."""
    return _STORED_NAMES.get(field, field)


def as_it_is(text: str) -> str:
    """Return the text unchanged."""
    return text


def plain(value: Any, words: Words = as_it_is) -> Any:
    """Return the value as dicts, lists and scalars; `words` is applied to each text, and secrets are redacted.

    Sets are sorted, so that the same value always gives the same plain one.
    """
    kind: type = type(value)
    if kind in _UNCHANGED or isinstance(value, str | int | float):
        return value
    if kind is tuple or kind is list:
        return [plain(each, words) for each in value]
    if (names := stored_names(kind)) is not None:
        return _plain_object(value, names, words)
    if kind is Arm:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each, words) for key, each in value.items()}
    return sorted(value) if isinstance(value, frozenset | set) else [plain(each, words) for each in value]


@cache
def stored_names(kind: type) -> tuple[tuple[str, str], ...] | None:
    """Return (name, stored name) of the fields of a struct or dataclass; None for a class of another kind."""
    if issubclass(kind, Struct):
        return tuple((name, stored_name(name)) for name in kind.__struct_fields__)
    return tuple((each.name, stored_name(each.name)) for each in fields(kind)) if is_dataclass(kind) else None


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind))


def _plain_object(value: Any, names: tuple[tuple[str, str], ...], words: Words) -> dict[str, Any]:
    found: dict[str, Any] = {"is": type(value).__name__}
    for name, stored in names:
        each = getattr(value, name)
        found[stored] = each if type(each) in _UNCHANGED else _field(name, each, words)
    return found


def _field(name: str, value: Any, words: Words) -> Any:
    if isinstance(value, str):
        redaction = _redacted_once if name in _OF_SETTINGS else _redacted
        text = redaction(value) if name in _MAY_HOLD_SECRETS and value else value
        return "" if name == _IMAGE_URL else words(text) if name in TEXTS else text
    if name == _PAIRS:
        return [[key, _redacted(text) if words is as_it_is else ""] for key, text in value]
    return plain(value, words)


def _redacted(text: str) -> str:
    """Return the text without its secrets, at its old length: tokens are estimated from the lengths of texts."""
    redacted = redact(text)
    return text if redacted == text else redacted[: len(text)].ljust(len(text), "*")


_redacted_once = lru_cache(maxsize=128)(_redacted)
"""Only for texts of settings: what users and tools say is not kept."""


def typed(found: Any, kind: Any) -> Any:
    """Return the value of that type (an object, a union, a container, a scalar) from which `plain` made this.

    Unknown fields are skipped; fields that an older version did not write take their defaults.

    Raises:
        ValueError: it has another type; the text names the expected type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if _has_fields(kind):
        return _object(found)
    if origin in (Union, UnionType):
        return _one_of(found, inner)
    if origin is Literal:
        return found
    if kind is Arm:
        return Arm.read(typed(found, str))
    if origin is tuple:
        return _tuple(found, inner)
    if origin is frozenset:
        return frozenset(typed(each, inner[0]) for each in _list(found))
    if origin is not None and issubclass(origin, Mapping):
        return {key: typed(each, inner[1]) for key, each in found.items()}
    expected_type = (int, float) if kind is float else kind
    if kind is not Any and not isinstance(found, expected_type):
        raise ValueError(f"expected {kind.__name__}, got {found!r:.60}")
    return found


def _one_of(found: Any, kinds: tuple[Any, ...]) -> Any:
    if found is None and NoneType in kinds:
        return None
    if isinstance(found, dict) and "is" in found:
        return _object(found)
    return typed(found, next(kind for kind in kinds if kind is not NoneType))


def _tuple(found: Any, inner: tuple[Any, ...]) -> tuple[Any, ...]:
    each_of = _list(found)
    kinds = (inner[0],) * len(each_of) if inner[-1] is Ellipsis else inner
    return tuple(typed(each, kind) for each, kind in zip(each_of, kinds, strict=True))


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError(f"expected a list, got {found!r:.60}")
    return found


def _object(found: Any) -> Any:
    kind = _kinds().get(str(found.get("is"))) if isinstance(found, dict) else None
    if kind is None:
        raise ValueError(f"expected something that this version reads, got {found!r:.60}")
    hints = _stored_hints(kind)
    try:
        given = ((*hints[stored], each) for stored, each in found.items() if stored in hints)
        return kind(**{name: typed(each, hint) for name, hint, each in given})
    except (TypeError, KeyError) as why:
        raise ValueError(f"{kind.__name__}: {why}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _stored_hints(kind: type) -> dict[str, tuple[str, Any]]:
    """Return stored name -> (name, type) of the fields of a struct or dataclass."""
    return {stored_name(name): (name, hint) for name, hint in _hints(kind).items()}


@cache
def _kinds() -> dict[str, type]:
    """Return all types of a journal's events and settings, by name."""
    found: dict[str, type] = {}
    waiting: list[Any] = [Event, TurnSettings, CoreSettings]
    while waiting:
        kind = waiting.pop()
        if _has_fields(kind):
            if kind.__name__ not in found:
                found[kind.__name__] = kind
                waiting += _hints(kind).values()
        else:
            waiting += _parts(kind)
    return found


def _parts(kind: Any) -> Iterator[Any]:
    yield from (part for part in get_args(kind) if get_args(part) or _has_fields(part))
