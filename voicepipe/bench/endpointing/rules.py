"""The rules that the bench compares: strategies of the port, and waits by a probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.bench.endpointing.traces import Pause, Step
from voicepipe.turn.endpointing.strategy import Decision

SHORTEST_WAIT_MS: Final = 350
LONGEST_WAIT_MS: Final = 720
SURE: Final = 0.8
DOUBTFUL: Final = 0.3
"""The wait falls from the longest at this probability to the shortest at the other, linearly."""

START_MS: Final = 180
START_FROM: Final = 0.3
"""Work begins after this silence where the turn is over with this probability, else with the wait."""


def wait_ms(probability: float) -> int:
    """Return the silence after which the answer may be audible."""
    share = min(1.0, max(0.0, (SURE - probability) / (SURE - DOUBTFUL)))
    return round(SHORTEST_WAIT_MS + share * (LONGEST_WAIT_MS - SHORTEST_WAIT_MS))


class WaitRule:
    """Waits by the probability of the pause's evidence."""

    def __init__(self, probability: Callable[[Pause], float]) -> None:
        self._probability = probability

    def decide(self, pause: Pause, step: Step) -> Decision:
        """Return the wait, and the start of work."""
        probability = self._probability(pause)
        audible_ms = wait_ms(probability)
        return Decision(START_MS if probability >= START_FROM else audible_ms, audible_ms)

    def resumed(self, pause: Pause) -> None:
        """Nothing: the rule has no memory."""
