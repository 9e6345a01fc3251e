"""Count the text that was sent to each TTS."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class TtsUsage:
    """Characters as spoken, by provider. Text that is played from disk costs nothing, and is subtracted."""

    played: Counter[str] = field(default_factory=Counter)
    """Text whose audio is used."""

    unused: Counter[str] = field(default_factory=Counter)
    """Text of a TTS that lost to a faster TTS."""

    def give(self, provider: str, n_chars: int) -> None:
        """Add text given to a TTS."""
        self.played[provider] += n_chars

    def move(self, n_chars: int, *, since: str, to: str) -> None:
        """Move text to another TTS. The TTS before it failed with that text, and is not paid for it."""
        self.played[since] -= n_chars
        self.played[to] += n_chars

    def waste(self, provider: str, n_chars: int) -> None:
        """Add text given to a TTS beside the TTS whose audio is used. What it would have played from disk was
        subtracted from its used text, below zero once another TTS has that text.
        """
        n_cached = min(n_chars, max(0, -self.played[provider]))
        self.played[provider] += n_cached
        self.unused[provider] += n_chars - n_cached

    def recite(self, provider: str, n_chars: int) -> None:
        """Subtract text that was played from disk."""
        counter = self.unused if provider in self.unused else self.played
        counter[provider] -= n_chars
