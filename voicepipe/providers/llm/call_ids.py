"""Convert IDs of function calls to a vendor's format when a conversation comes from another vendor."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NINE: Final = re.compile(r"[A-Za-z0-9]{9}")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")


def nine(call_id: str) -> str:
    """Return the ID as 9 letters and digits, always the same for the same ID; an ID in this form is unchanged.

    Source: Mistral's refusal, "must be a-z, A-Z, 0-9, with a length of 9".
    """
    if _NINE.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8], "big")
    made = ""
    for _ in range(9):
        number, at = divmod(number, len(_ALPHABET))
        made += _ALPHABET[at]
    return made


def plain(call_id: str) -> str:
    """Return the ID with only letters, digits, `_` and `-`, as some APIs require."""
    return _NOT_PLAIN.sub("_", call_id)
