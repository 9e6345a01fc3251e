"""How much of what was sent has been heard, when the client does not say: sound plays in real time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Playback:
    """The client's loudspeaker, as far as we can tell from here: it starts at once and never pauses."""

    ends_ms: int = 0
    """Session time at which all that was sent has been played."""

    def send(self, duration_ms: int, now_ms: int) -> int:
        """Queue sound behind what is playing; returns the instant at which it begins to play."""
        starts_ms = max(self.ends_ms, now_ms)
        self.ends_ms = starts_ms + duration_ms
        return starts_ms

    def flush(self, until_ms: int) -> None:
        """The client dropped what it would have played after this instant."""
        self.ends_ms = min(self.ends_ms, until_ms)
