"""The choice of what the LLM reads of a conversation that is longer than its window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from voicepipe.errors import ConfigError
from voicepipe.turn.cost import CHARS_PER_TOKEN

RETAINED_SHARE: Final = 0.75
"""Share of the limits that the LLM goes on reading once its history is too long.

Less than all: the history's beginning, which vendors keep in a cache, then changes once in many turns instead of with
each turn.
"""

CONTEXT_FULL: Final = "context_length_exceeded"
"""The error code of a response for which the conversation is too long, where `disabled` forbids to leave any of it out.
OpenAI's code for that; its Realtime API publishes the behaviour and no code.
"""


class Truncation(Struct, frozen=True, kw_only=True):
    """A client's choice of what happens to a conversation that is longer than the LLM's window."""

    kind: Literal["auto", "disabled", "retention_ratio"] = "auto"
    """`disabled`: nothing is left out, and the response fails instead."""

    retention_ratio: float = RETAINED_SHARE
    """Share of the limit down to which the oldest items are left out, 0 to 1."""

    post_instructions: int | None = None
    """Limit of the conversation in tokens, without instructions and tools; None: only the window's own."""

    def __post_init__(self) -> None:
        if not 0 <= self.retention_ratio <= 1:
            raise ConfigError(f"retention_ratio: expected 0 to 1, got {self.retention_ratio}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """Limits of the items that the LLM reads for one answer."""

    n_items: int
    n_chars: int
    """Characters of text, without images."""

    retained_share: float = RETAINED_SHARE
    """Share of both limits that stays once one of them is exceeded."""


def chars_of(tokens: float) -> int:
    """Return the length of the longest text that is estimated at `tokens` tokens."""
    return int(tokens * CHARS_PER_TOKEN)
