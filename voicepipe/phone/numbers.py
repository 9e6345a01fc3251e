"""Phone numbers as carriers write them, brought to the form of E.164 with its `+`."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"[1-9][0-9]{4,14}")
_WITHHELD: Final = frozenset({"anonymous", "unknown", "restricted", "unavailable", "private"})


def e164(text: str) -> str:
    """Return a number with its `+`, and any other address as it came; empty: the number is withheld."""
    if text.casefold() in _WITHHELD:
        return ""
    return f"+{text}" if _DIGITS.fullmatch(text) else text
