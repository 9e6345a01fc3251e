"""The strategy `adaptive`: the less finished the user sounds, the longer the wait.

Other systems decide with one threshold and two waits. Here the wait is one continuous function of what is known: how
the speech ended, how the words end, how long this user's pauses are. A little more evidence changes the wait by a
little.
"""

from __future__ import annotations

from typing import Final

from voicepipe.turn.endpointing.held import UNKNOWN, stall, start_ms
from voicepipe.turn.endpointing.strategy import Decision, Evidence

_CLOSED_SHARE: Final = 0.2
"""Complete words shorten the wait by up to this share of it."""

_HOLD_SHARE: Final = 0.5
"""How much a held ending adds to the wait; cubed, so that only strong evidence adds much. Without evidence the wait
stays as it was set.
"""

_PACE_SHARE: Final = 1.25
"""A user who went on after a pause may pause as long the next time. The wait covers that up to this share of what was
set: one long thought does not make a slow user.
"""

_MOST_UNFINISHED: Final = Evidence(final_pitch_st=0.0, unfinished=1.0)


class Adaptive:
    """Waits between 0.74 and 2.31 of `silence_ms`."""

    def __init__(self, silence_ms: int) -> None:
        self._silence_ms = silence_ms
        self.longest_ms = self._wait_ms(_MOST_UNFINISHED)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the wait for this evidence, and a start within it."""
        wait_ms = self._wait_ms(evidence)
        return Decision(start_ms(wait_ms, evidence), wait_ms)

    def _wait_ms(self, evidence: Evidence) -> int:
        pitch_and_words = _HOLD_SHARE * (stall(evidence) ** 3 - UNKNOWN**3)
        factor = 1 + pitch_and_words + _CLOSED_SHARE * min(0.0, evidence.unfinished)
        pace = min(_PACE_SHARE * self._silence_ms, evidence.longest_pause_ms)
        return round(max(factor * self._silence_ms, pace))
