"""Hold the cost of hedging to a cap in dollars a turn, by a price on each additional call."""

from __future__ import annotations

import math
from typing import Final

FIRST_WEIGHT: Final = 0.05
LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 5.0

MEMORY: Final = 0.002
"""Length of the running mean of the cost: about 500 turns."""

STEP: Final = 0.02
"""Step of the weight; small enough that hedges of one bad minute don't forbid those of the next."""


AIM: Final = 0.95
"""Share of the cap to aim for: a call in place of a failed one is made at any cost, so it needs some reserve."""


class HedgeBudget:
    """A cap on the cost of hedging. `weight`, its Lagrange multiplier, is the accepted cost of one late answer."""

    def __init__(self, cap_usd: float) -> None:
        self.cap_usd = cap_usd
        """The mean limit for a turn's cost above that of the first choice alone."""

        self.weight = FIRST_WEIGHT
        self._mean = 0.0

    def unit_usd(self, turn_usd: float) -> float:
        """Return the money of a weight of 1: the cost of a turn; with a free model, the cap of a turn."""
        return max(turn_usd, self.cap_usd, 1e-9)

    def spent(self, extra_usd: float, turn_usd: float) -> None:
        """Record a turn's cost above `turn_usd`, the cost of the first choice alone; below 0 if it cost less."""
        unit = self.unit_usd(turn_usd)
        self._mean += MEMORY * (extra_usd / unit - self._mean)
        over = max(-1.0, min(self._mean - AIM * self.cap_usd / unit, 1.0))
        self.weight = max(LEAST_WEIGHT, min(self.weight * math.exp(STEP * over), MOST_WEIGHT))
