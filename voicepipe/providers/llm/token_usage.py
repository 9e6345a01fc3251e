"""Parse a vendor's token counts, so that no malformed count can break an answer.

A malformed count (negative, a fraction, beyond `MAX_TOKENS`, not a number) makes the whole usage unknown: the answer
remains valid, and its tokens are estimated from its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from voicepipe.ports.model import Usage

T = TypeVar("T")
Fields = dict[str, Any]


def fields_of(raw: msgspec.Raw) -> Fields:
    """Return a usage object's fields; none if it is missing, `null` or not an object."""
    if not len(raw):
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def inner(fields: Fields, name: str) -> Fields:
    """Return the fields of a nested object; none if there is no object of that name."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def usage_of(*, input: Any, output: Any, cached: Any = None, written: Any = None) -> Usage | None:
    """Return the usage of these counts, each of them None where the vendor sends none.

    Cache reads and writes are part of the input, so never more. None: no counts were sent, or one of them is malformed.
    """
    if input is None and output is None:
        return None
    counts = [_count(value) for value in (input, output, cached, written)]
    if any(count is None for count in counts):
        return None
    read, wrote, hit, put = (count or 0 for count in counts)
    hit = min(hit, read)
    usage = Usage(input_tokens=read, output_tokens=wrote, cached_tokens=hit, cache_write_tokens=min(put, read - hit))
    return usage if usage.is_possible else None


def added(*values: Any) -> Any:
    """Return the sum of counts that a vendor reports separately; None without any count, a malformed value if a count
    is malformed."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) if all(_count(value) is not None for value in known) else -1


def _count(value: Any) -> int | None:
    """Return the count, 0 for none; a whole number written as a fraction (12.0) is valid too."""
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None


def lenient(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return the same decoder for servers that write NaN or Infinity, which are not JSON: both are read as null."""

    def decoded(data: bytes) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError:
            if b"NaN" not in data and b"Infinity" not in data:
                raise
            return decode(_without_constants(data))

    return decoded


def _without_constants(data: bytes) -> bytes:
    """Return the same JSON with null for NaN and Infinity; the unchanged data if it still is not JSON."""
    try:
        return json.dumps(json.loads(data, parse_constant=lambda _: None)).encode()
    except (ValueError, RecursionError):
        return data
