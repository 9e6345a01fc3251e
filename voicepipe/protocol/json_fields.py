"""Read a client's JSON field by field with its path, so that every refusal names its field.

Each reader takes a value and its dotted path. It returns the value with its type known, or raises ProtocolError with
what was expected and what came. Codes are the hosted service's own: `invalid_type`, `invalid_value`,
`missing_required_parameter`, `string_above_max_length`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from voicepipe.errors import ProtocolError

JsonObject = dict[str, Any]
"""A JSON object, as decoded or to be encoded."""

MAX_DEPTH: Final = 64
"""How deep a client's JSON may nest. JSON Schemas of tools stay under 20; encoders give up at some hundreds."""

MAX_ID_CHARS: Final = 64
"""The longest id of an item (the published types have 32 for new ones; clients send uuids with prefixes)."""

MAX_ECHOED_CHARS: Final = 150_000
"""The longest text that the server sends back to its client: some clients close on a frame above 1 MiB, and a character
may take several bytes in JSON. About 35,000 tokens of English.
"""

_QUOTED_CHARS: Final = 60
_ABSENT: Final = object()

_Choice = TypeVar("_Choice", bound=str)


def displayed(value: object) -> str:
    """Return a value as an error's text shows it: short, whatever was sent."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "an object"
        case list():
            return f"an array of {len(value)}"
        case int() if value.bit_length() > 64:
            return "a huge integer"
        case str() if len(value) > _QUOTED_CHARS:
            return repr(value[:_QUOTED_CHARS] + "...")
        case _:
            return repr(value)


def wrong_type(path: str, expected: str, value: object) -> ProtocolError:
    """Return the refusal of a value with the wrong type for its field."""
    return ProtocolError(f"{path}: expected {expected}, got {displayed(value)}", field=path, code="invalid_type")


def wrong_value(path: str, expected: str, value: object) -> ProtocolError:
    """Return the refusal of a value that has the right type and is not allowed for its field."""
    return ProtocolError(f"{path}: expected {expected}, got {displayed(value)}", field=path, code="invalid_value")


def missing(path: str, expected: str) -> ProtocolError:
    """Return the refusal of an object that lacks a field."""
    return ProtocolError(f"{path}: expected {expected}, got nothing", field=path, code="missing_required_parameter")


def text(value: object, path: str, *, max_chars: int | None = None) -> str:
    """Return a string of at most `max_chars` characters."""
    if not isinstance(value, str):
        raise wrong_type(path, "a string", value)
    if max_chars is not None and len(value) > max_chars:
        why = f"{path}: expected at most {max_chars} characters, got {len(value)}"
        raise ProtocolError(why, field=path, code="string_above_max_length")
    return value


def flag(value: object, path: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise wrong_type(path, "true or false", value)
    return value


def number(value: object, path: str, *, low: float, high: float) -> float:
    """Return a number from `low` to `high`, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(path, "a number", value)
    if not low <= value <= high:
        raise wrong_value(path, f"{low:g} to {high:g}", value)
    return float(value)


def whole(value: object, path: str, *, low: int, high: int) -> int:
    """Return an integer from `low` to `high`, both allowed. `500.0` is an integer: JSON has only numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(path, "an integer", value)
    if not low <= value <= high:
        raise wrong_value(path, f"{low} to {high}", value)
    if value != int(value):
        raise wrong_type(path, "an integer", value)
    return int(value)


def one_of(value: object, path: str, choices: tuple[_Choice, ...]) -> _Choice:
    """Return one of the strings `choices`."""
    expected = " or ".join(f'"{choice}"' for choice in choices)
    if not isinstance(value, str):
        raise wrong_type(path, expected, value)
    for choice in choices:
        if choice == value:
            return choice
    raise wrong_value(path, expected, value)


def record(value: object, path: str) -> JsonObject:
    """Return an object."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object", value)
    return value


def listing(value: object, path: str) -> list[object]:
    """Return an array."""
    if not isinstance(value, list):
        raise wrong_type(path, "an array", value)
    return value


def required(owner: Mapping[str, object], key: str, path: str, expected: str) -> object:
    """Return the value at `key` of the object at `path`; a null counts as missing."""
    value = owner.get(key)
    if value is None:
        raise missing(f"{path}.{key}", expected)
    return value


def refuse_length(n_chars: int, path: str) -> None:
    """Check that texts which are sent back to their client have together no more than MAX_SHOWN_CHARS.

    Raises:
        ProtocolError: they have more.
    """
    if n_chars > MAX_ECHOED_CHARS:
        why = f"{path}: expected at most {MAX_ECHOED_CHARS} characters, got {n_chars}"
        raise ProtocolError(why, field=path, code="string_above_max_length")


def refuse_depth(value: object, path: str) -> None:
    """Check that `value` nests no deeper than MAX_DEPTH.

    Raises:
        ProtocolError: it nests deeper.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return
    raise ProtocolError(f"{path}: expected at most {MAX_DEPTH} levels, got more", field=path, code="invalid_value")


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


Reader = Callable[[object, str], Any]
"""(value, path) -> the value that the configuration holds. A null comes as None."""


def changes(update: JsonObject, table: Mapping[str, tuple[str, Reader]], path: str) -> dict[str, Any]:
    """Return what `update` requests to change, by the names of the configuration's fields.

    `table` maps a dotted key of the update to a field's name and its reader. A key that is absent, or unknown to the
    table, changes nothing.

    Raises:
        ProtocolError: a reader refused a value, or a step of a dotted key is not an object.
    """
    found: dict[str, Any] = {}
    for dotted, (name, reader) in table.items():
        value = _at(update, dotted, path)
        if value is not _ABSENT:
            found[name] = reader(value, f"{path}.{dotted}")
    return found


def _at(update: JsonObject, dotted: str, path: str) -> object:
    value: object = update
    for step in dotted.split("."):
        if value is None:
            return _ABSENT
        owner = record(value, path)
        if step not in owner:
            return _ABSENT
        value, path = owner[step], f"{path}.{step}"
    return value
