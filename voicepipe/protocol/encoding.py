"""Encode events as bytes, whatever text a vendor put in them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from voicepipe.protocol.json_fields import JsonObject

_ENCODER: Final = msgspec.json.Encoder()


def encode(event: JsonObject | msgspec.Struct | None) -> bytes:
    """Return an event as UTF-8 JSON. Half a surrogate pair in its texts becomes U+FFFD."""
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:  # a vendor's text with half a surrogate pair
        return _ENCODER.encode(_all_well_formed(msgspec.to_builtins(event)))


def well_formed(text: str) -> str:
    """Return `text` as it can be encoded: surrogate pairs joined, lone halves replaced (U+FFFD)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _all_well_formed(value: object) -> object:
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {well_formed(key): _all_well_formed(inner) for key, inner in value.items()}
        case list():
            return [_all_well_formed(inner) for inner in value]
        case _:
            return value


def id_text(text: str) -> str:
    """Return `text` without what would need escaping in JSON: a client may choose a session's id."""
    return re.sub(r"[^A-Za-z0-9_.-]", "", text)
