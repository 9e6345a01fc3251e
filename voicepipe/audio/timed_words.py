"""Words with their times in a stretch of audio."""

from __future__ import annotations

from msgspec import Struct


class TimedWord(Struct, frozen=True):
    """A word, and when it was said: seconds from the beginning of the stretch."""

    start_s: float
    end_s: float
    text: str
    speaker: str | None = None
    """Who said it, as the provider labels speakers; None: it labels none."""

    def later(self, by_s: float) -> TimedWord:
        """Return the word in a stretch that begins `by_s` earlier; a time before that one's beginning is 0."""
        return TimedWord(max(0.0, self.start_s + by_s), max(0.0, self.end_s + by_s), self.text, self.speaker)
