"""Gemini's thought signatures: what must go back with a function's call, and what has no place in a conversation."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 4_096
"""Calls of all sessions of one model; a signature is needed for the answer to the call, seconds later."""

NONE_KEPT: Final = "skip_thought_signature_validator"
"""What stands for a signature that is not known: another vendor made the call, or another process heard it.
Source: ai.google.dev, "Thought signatures"."""


class Signatures:
    """Remembers the signatures of the latest calls, by the calls' ids; the oldest are forgotten."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, str] = OrderedDict()

    def keep(self, call_id: str, signature: str) -> None:
        """Remember the signature that came with a call."""
        self._of[call_id] = signature
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def of(self, call_id: str) -> str | None:
        """The signature that came with a call, or None."""
        return self._of.get(call_id)
