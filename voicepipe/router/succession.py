"""After the first token: has the speaker stalled, who could go on, and how long may that wait?

Speech takes 3 to 4 tokens a second and models give 50 to 200, so seconds of sound soon lie ahead of the caller: the
deadline is when that runs out, not when the text stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.router.candidate import Candidate
from voicepipe.router.pool import Experience, Pool

LEAST_STALL_MS: Final = 400
STALL_GAPS: Final = 8
"""No token for so many times the model's p95 gap, and at least `LEAST_STALL_MS`, is a stall."""

SPARE_MS: Final = 150
"""Sound that should be left to play when another model's first words are expected: a voice has to speak them yet."""


class Succession:
    """Decides for one answer. Pure: instants are passed in."""

    def __init__(self, pool: Pool, experience: Experience, queued_ms: Callable[[], int] | None) -> None:
        self._pool, self._experience, self._queued_ms = pool, experience, queued_ms

    def stall_ms(self, speaker: Candidate) -> float:
        """How long that model may be silent in its answer."""
        return max(LEAST_STALL_MS, STALL_GAPS * self._experience.board.pace(speaker).p95_ms())

    def backup(self, speaker: Candidate, now_ms: float) -> Candidate | None:
        """Who would go on: of the healthy ones the one that is the surest to begin soon."""
        healthy = (each for each in self._pool.candidates if each is not speaker and self._is_healthy(each, now_ms))
        return min(healthy, key=lambda each: self._p95_ms(each, now_ms), default=None)

    def wait_ms(self, speaker: Candidate, silent_ms: float, now_ms: float) -> float:
        """How long to wait before somebody else is asked; 0 or less: not at all.

        Later is better: the speaker may go on by itself, and a second answer costs money. Where nobody knows how much
        sound is left (a client that reads), it is asked as soon as the speaker has stalled.
        """
        left_ms = self.stall_ms(speaker) - silent_ms
        backup = self.backup(speaker, now_ms)
        if left_ms > 0 or self._queued_ms is None or backup is None:
            return left_ms
        return self._queued_ms() - self._p95_ms(backup, now_ms) - SPARE_MS

    def _is_healthy(self, candidate: Candidate, now_ms: float) -> bool:
        return self._experience.breaker(candidate).state(now_ms) == "closed"

    def _p95_ms(self, candidate: Candidate, now_ms: float) -> float:
        return self._experience.board.quantile_ms(candidate, 0.95, now_ms)
