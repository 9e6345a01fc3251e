"""How much text each voice was given to speak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Voiced:
    """Characters as they are said, by provider. What a voice says from disk costs nothing, and is taken off."""

    heard: Counter[str] = field(default_factory=Counter)
    """What the caller was to hear."""

    in_vain: Counter[str] = field(default_factory=Counter)
    """Said by a voice that another was sooner than."""

    def give(self, provider: str, n_chars: int) -> None:
        """A voice gets more to say."""
        self.heard[provider] += n_chars

    def move(self, n_chars: int, *, since: str, to: str) -> None:
        """Another voice says so much of it. The one before it failed with that, and is not paid for it."""
        self.heard[since] -= n_chars
        self.heard[to] += n_chars

    def waste(self, provider: str, n_chars: int) -> None:
        """A voice was given that beside the one that is heard."""
        self.in_vain[provider] += n_chars

    def recite(self, provider: str, n_chars: int) -> None:
        """So much of what a voice was given came from disk."""
        book = self.in_vain if provider in self.in_vain else self.heard
        book[provider] -= n_chars
