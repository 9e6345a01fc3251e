"""Gemini's thought signatures: they must be sent back with a function call, and have no field in a conversation."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 4_096
"""Calls of all sessions of one model; a signature is needed for the answer to the call, seconds later."""

UNKNOWN_SIGNATURE: Final = "skip_thought_signature_validator"
"""Replacement for an unknown signature: another vendor made the call, or another process received it. Source:
ai.google.dev, "Thought signatures"."""


class ThoughtSignatures:
    """Stores the signatures of the latest calls, by the calls' IDs; the oldest are dropped."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, str] = OrderedDict()

    def keep(self, call_id: str, signature: str) -> None:
        """Store the signature that came with a call."""
        self._of[call_id] = signature
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def of(self, call_id: str) -> str | None:
        """Return the signature that came with a call, or None."""
        return self._of.get(call_id)
