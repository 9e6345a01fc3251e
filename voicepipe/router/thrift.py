"""Holds what hedging costs to a cap in dollars a turn, by the price that it puts on a call more."""

from __future__ import annotations

import math
from typing import Final

FIRST_WEIGHT: Final = 0.05
LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 5.0

MEMORY: Final = 0.002
"""Of the running mean of what was spent: about 500 turns."""

STEP: Final = 0.02
"""How fast the weight follows; slow enough that hedges of one bad minute don't forbid those of the next."""


AIM: Final = 0.95
"""Of the cap: a call in place of one that failed is made whatever it costs, so it needs some room."""


class Thrift:
    """`weight` is what the loss of one answer in time may cost: the Lagrange multiplier of the cap, found online."""

    def __init__(self, cap_usd: float) -> None:
        self.cap_usd = cap_usd
        """More than the first choice alone would have cost, on average, for each turn."""

        self.weight = FIRST_WEIGHT
        self._mean = 0.0

    def unit_usd(self, turn_usd: float) -> float:
        """The money that a weight of 1 stands for: what a turn costs; with a free model, what may be spent on one."""
        return max(turn_usd, self.cap_usd, 1e-9)

    def spent(self, extra_usd: float, turn_usd: float) -> None:
        """A turn cost so much more than `turn_usd`, what the first choice alone would have cost; or less, below 0."""
        unit = self.unit_usd(turn_usd)
        self._mean += MEMORY * (extra_usd / unit - self._mean)
        over = max(-1.0, min(self._mean - AIM * self.cap_usd / unit, 1.0))
        self.weight = max(LEAST_WEIGHT, min(self.weight * math.exp(STEP * over), MOST_WEIGHT))
