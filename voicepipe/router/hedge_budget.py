"""Hold what hedges cost to a cap in dollars: a budget that never spends what it has not earned.

The hedge budget is a token bucket of dollars. Each turn earns a share of the cap, and pays what it cost above the
first choice alone. A hedge needs its worst-case cost in the budget, less what running turns hold. A turn holds the
worst-case cost of its plan until a model answers, then what the calls that were started are expected to cost. So in any
`WINDOW_TURNS` turns in a row, hedges cost at most `MAX_COST_OF_CAP` times the cap. Answers longer than usual can bring
the budget below 0: then no hedge is started until it is above again. Failovers (`llm.usage.failover_usd`) are not
counted: a model that failed, or that is alone and silent at the deadline, is replaced at any cost.

Each process of a server has a budget of its own, which holds its part of what the server's would. In a window, n full
budgets of C dollars spend n * C, and each turn what it earns, in whichever process it is. So a turn earns
`MAX_COST_OF_CAP` times the cap less n * C / `WINDOW_TURNS`, and the bound is that of one process. This is exact where
the budgets have the same size, and where the processes have equally many turns. But each budget can hold one hedge, at
`MIN_EARNED_SHARE` of the cap for each turn: where that takes more than its part, the bound is n * C above that share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_TURNS: Final = 500
MAX_COST_OF_CAP: Final = 1.05
"""Most that hedges cost in `WINDOW_TURNS` turns, as a multiple of the cap."""

FIRST_TURNS: Final = 2
"""Turns whose caps are in the budget at its first start, at least; and one hedge, as soon as its price is known."""

EARNED_SHARE: Final = 0.95
"""Share of the cap that a turn earns. The rest is room in the budget, over `WINDOW_TURNS`: a bad minute of a
provider costs more at once."""

MIN_EARNED_SHARE: Final = 0.5
"""The same, where a single hedge costs more than that room."""

SPARE_HEDGES: Final = 1.5
"""Of the cheapest hedge, what the full budget holds at least, where the bound allows it."""

MIN_SPARE_HEDGES: Final = 1.25
"""The same, where the part of one process of several is smaller. With `RESERVED_SHARE`, a hedge needs 1.11."""

RESERVED_SHARE: Final = 0.1
"""Share of the full budget that is left for hedges to models that have read their session."""

FIRST_WEIGHT: Final = 0.1
MIN_WEIGHT, MAX_WEIGHT = 1e-4, 50.0
MIN_LOG_WEIGHT, MAX_LOG_WEIGHT = math.log(MIN_WEIGHT), math.log(MAX_WEIGHT)

TARGET: Final = 0.75
"""Share of the full budget to keep: a hedge that pays off is to be affordable when it comes."""

GAIN: Final = 2.0
"""Change of the logarithm of the weight from a full budget to an empty one."""

DRIFT: Final = 0.004
"""Change of the logarithm of the weight in a turn, by how far the budget is below its target."""


@dataclass(slots=True)
class BudgetHold:
    """The money of a budget that one running turn holds."""

    usd: float


class HedgeBudget:
    """The hedge budget of one pool in one process, and the price of its dollars."""

    def __init__(self, cap_usd: float, *, n_processes: int = 1) -> None:
        """`n_processes`: the processes of the server; each has such a budget of the pool."""
        self.cap_usd = cap_usd
        """The mean limit for a turn's cost above that of the first choice alone."""

        self._n_processes = n_processes
        self._is_new = True
        self._held_usd = 0.0
        self._capacity_usd = self._part_usd(EARNED_SHARE)
        self.level_usd = min(FIRST_TURNS * cap_usd, self._capacity_usd)
        """Earned and not spent yet; below 0: spent and not earned yet."""

        self.reserved_usd = RESERVED_SHARE * self._capacity_usd
        """What is reserved for hedges to models that have read their session: they are the cheapest ones."""

        self._log_weight = math.log(FIRST_WEIGHT)

    @property
    def available_usd(self) -> float:
        """Return what a hedge may cost at most."""
        return self.level_usd - self._held_usd

    @property
    def earned_usd(self) -> float:
        """Return what a turn earns."""
        earned_usd = MAX_COST_OF_CAP * self.cap_usd - self._n_processes * self._capacity_usd / WINDOW_TURNS
        return max(earned_usd, MIN_EARNED_SHARE * self.cap_usd)

    @property
    def weight(self) -> float:
        """Return what the loss of one answer in time may cost, in units of `unit_usd`: the Lagrange multiplier of the
        cap. It rises while the budget is below its target."""
        return max(MIN_WEIGHT, min(math.exp(self._log_weight + GAIN * self._shortfall()), MAX_WEIGHT))

    def unit_usd(self, turn_usd: float) -> float:
        """Return the money that a weight of 1 stands for: the cost of a turn; with a free model, the cap of a turn."""
        return max(turn_usd, self.cap_usd, 1e-9)

    def enlarge_for(self, hedge_usd: float) -> None:
        """Let the full budget hold more than one hedge of this cost, the cheapest of the pool. Each turn then earns
        less, so that the bound remains. The budget never shrinks, for the same reason. A new one can pay for the first
        such hedge."""
        part_usd = self._part_usd(MIN_EARNED_SHARE)
        spare_usd = min(SPARE_HEDGES * hedge_usd, part_usd)
        least_usd = min(MIN_SPARE_HEDGES * hedge_usd, part_usd * self._n_processes)
        self._capacity_usd = max(self._capacity_usd, spare_usd, least_usd)
        self.reserved_usd = RESERVED_SHARE * self._capacity_usd
        if self._is_new and hedge_usd > self.cap_usd:
            self.level_usd = max(self.level_usd, min(hedge_usd + self.reserved_usd, self._capacity_usd))
        self._is_new = False

    def hold(self, usd: float) -> BudgetHold:
        """Hold the worst-case cost of a turn that begins."""
        self._held_usd += usd
        return BudgetHold(usd)

    def release(self, hold: BudgetHold, *, all_but_usd: float = 0.0) -> None:
        """Release what a turn holds, but for what it may still cost."""
        if (released_usd := hold.usd - max(0.0, all_but_usd)) > 0:
            self._held_usd -= released_usd
            hold.usd -= released_usd

    def spent(self, extra_usd: float) -> None:
        """Record a turn's cost above that of the first choice alone, without failovers; below 0 if it cost less."""
        self._is_new = False
        self.level_usd = min(self._capacity_usd, self.level_usd + self.earned_usd - extra_usd)
        log_weight = self._log_weight + DRIFT * self._shortfall()
        self._log_weight = max(MIN_LOG_WEIGHT, min(log_weight, MAX_LOG_WEIGHT))

    def restore(self, level_usd: float, weight: float) -> None:
        """Continue a former budget after a restart. Only its debt counts: savings start again at 0, so that no number
        of restarts gets around the cap.

        Raises:
            ValueError: a value is not possible.
        """
        if not (math.isfinite(level_usd) and MIN_WEIGHT <= weight <= MAX_WEIGHT):
            raise ValueError(f"expected a level in dollars and a weight, got {level_usd} and {weight}")
        self.level_usd, self._is_new = min(level_usd, 0.0), False
        self._log_weight = math.log(weight)

    def _part_usd(self, earned_share: float) -> float:
        """Return what the budget of one process may hold, where each turn earns this share of the cap."""
        return (MAX_COST_OF_CAP - earned_share) * WINDOW_TURNS * self.cap_usd / self._n_processes

    def _shortfall(self) -> float:
        """Return how far the budget is below its target, as a share of the full one; below 0: above it."""
        return TARGET - max(0.0, self.level_usd) / self._capacity_usd if self._capacity_usd else TARGET
