"""Let a second model continue an unfinished answer: when the first has stalled, and which model.

Speech takes 3 to 4 tokens a second and models give 50 to 200, so seconds of audio are soon queued for the user. The
deadline is when the audio runs out, not when the text stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.ports.model import ModelRequest
from voicepipe.router.candidate import Candidate
from voicepipe.router.pool import Pool, SharedStats

MIN_STALL_MS: Final = 400
STALL_GAPS: Final = 8
"""No token for this many times the model's p95 gap, and at least `MIN_STALL_MS`, is a stall."""

SPARE_MS: Final = 150
"""Audio that should be left to play when another model's first words are expected: the synthesizer has to speak them
yet."""


class StallPolicy:
    """Decides after the first token of one answer whether the model has stalled, which model could continue, and how
    long that may wait. Pure: instants are passed in."""

    def __init__(self, pool: Pool, stats: SharedStats) -> None:
        self._pool, self._stats = pool, stats
        self.queued_ms: Callable[[], int] | None = None
        """Returns how much audio of the answer is still to be played, in ms; None: the answer has no audio."""

    def stall_ms(self, speaker: Candidate) -> float:
        """Return how long that model may be silent in its answer."""
        return max(MIN_STALL_MS, STALL_GAPS * self._stats.latency.pace(speaker).p95_ms())

    def backup(self, speaker: Candidate, now_ms: float) -> Candidate | None:
        """Return the model that would continue: of the healthy ones, the most likely to begin soon."""
        healthy = (each for each in self._pool.candidates if each is not speaker and self._is_healthy(each, now_ms))
        return min(healthy, key=lambda each: self._p95_ms(each, now_ms), default=None)

    def wait_ms(self, speaker: Candidate, silent_ms: float, now_ms: float) -> float:
        """Return how long to wait before the router calls another model; 0 or less: not at all.

        Later is better: the model may continue by itself, and a second answer costs money. Where the amount of audio
        left is unknown (a client that reads), the router calls another model as soon as the first has stalled.
        """
        left_ms = self.stall_ms(speaker) - silent_ms
        backup = self.backup(speaker, now_ms)
        if left_ms > 0 or self.queued_ms is None or backup is None:
            return left_ms
        return self.queued_ms() - self._p95_ms(backup, now_ms) - SPARE_MS

    def _is_healthy(self, candidate: Candidate, now_ms: float) -> bool:
        return self._stats.breaker(candidate).state(now_ms) == "closed"

    def _p95_ms(self, candidate: Candidate, now_ms: float) -> float:
        return self._stats.latency.quantile_ms(candidate, 0.95, now_ms)


def takes_prefill(request: ModelRequest) -> bool:
    """Return whether an unfinished answer may be sent as a prefill. Vendors refuse it for answers in a response
    format."""
    return all(name != "response_format" for name, _ in request.passed)
