"""The strategy `silence`: exactly the silence that was set, whatever the evidence."""

from __future__ import annotations

from voicepipe.turn.endpointing.held import start_ms
from voicepipe.turn.endpointing.strategy import Decision, Evidence


class Silence:
    """For clients that set `silence_duration_ms`, and wherever another strategy fails."""

    def __init__(self, silence_ms: int) -> None:
        self.longest_ms = silence_ms

    def decide(self, evidence: Evidence) -> Decision:
        """Return the silence that was set, and a start within it."""
        return Decision(start_ms(self.longest_ms, evidence), self.longest_ms)
