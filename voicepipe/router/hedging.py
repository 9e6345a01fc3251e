"""Decide when to start the second model: the deadline hedge.

Let `S(t)` be the chance that a model is still silent after `t`, and let providers fail independently. A hedge to `b`
that starts `t` after `a` leaves `S_a(D) S_b(D - t)` of the turns over the deadline `D`. It is started at all in
`S_a(t)` of the turns. The planner picks the model and the instant with the least

    sum_k weight_k S_a(D_k) S_b(D_k - t)  +  weight x cost_b x S_a(t)

over the deadline and some later deadlines, which represent calls that hang. Dean and Barroso, "The Tail at Scale" (CACM
56(2), 2013), hedge at the p95. That would be too late here: their deadline lies far after the p95, that of a turn
before it.

What hedges cost is held to a cap in dollars a turn, by a price on each additional call: the weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from voicepipe.router.candidate import Candidate
from voicepipe.router.latency_stats import GRID_MS, STEP_MS, Curve, LatencyStats, warmer

LATER_DEADLINES: Final = ((1_000, 0.5), (2_000, 0.5), (4_000, 2.0))
"""(ms, weight) beside the deadline itself, whose weight is 1."""

LATEST_HEDGE_MS: Final = 2_000
TIMES_MS: Final = GRID_MS[: LATEST_HEDGE_MS // STEP_MS + 1]

LOYALTY: Final = 0.05
"""Advantage that another model needs over the one that answered last: the worth of a warm cache."""

FIRST_WEIGHT: Final = 0.05
LEAST_WEIGHT, MOST_WEIGHT = 1e-4, 5.0

SPENT_MEMORY: Final = 0.002
"""Of the running mean of what was spent: about 500 turns."""

STEP: Final = 0.02
"""How fast the weight follows; slow enough that hedges of one bad minute don't forbid those of the next."""

AIM: Final = 0.95
"""Share of the cap to aim for: a call in place of a failed one is made at any cost, so it needs some reserve."""


@dataclass(frozen=True, slots=True)
class Hedge:
    """The best second model for a first one; `second` is None when the first alone is best."""

    loss: float
    second: int | None
    after_ms: float


class Planner:
    """The table of best hedges of one pool. `rebuild` it off the hot path; the rest is looking up."""

    def __init__(self, candidates: tuple[Candidate, ...], deadline_ms: int) -> None:
        self.candidates, self.deadline_ms = candidates, deadline_ms
        self._deadlines = ((deadline_ms, 1.0), *((ms, w) for ms, w in LATER_DEADLINES if ms > deadline_ms))
        self._alone: list[float] = []
        self._loss: list[list[float]] = []
        self._after_ms: list[list[float]] = []
        self._cost: list[float] = []
        self._known: dict[tuple[int, int, int], Hedge] = {}

    def rebuild(
        self, latency: LatencyStats, now_ms: float, *, weight: float, unit_usd: float, tokens: tuple[float, float]
    ) -> None:
        """Compute the table again, from the present statistics.

        Args:
            weight: what spending `unit_usd` is worth in missed turns (`HedgeBudget.weight`).
            tokens: the input and output tokens of a usual turn.
        """
        cold = [latency.survival(each).curve(now_ms) for each in self.candidates]
        # (2k, n_steps): each model cold, then each with the session's earlier turns in its cache.
        silent = np.array([*cold, *map(warmer, cold)])
        read, answer = self._costs(weight, unit_usd, tokens)
        at = [ms // STEP_MS for ms, _ in self._deadlines]
        weights = np.array([w for _, w in self._deadlines])
        missed_by_first = silent[:, at] * weights
        # (n_deadlines, 2k, n_times): the second is silent at the deadline, started at that time; or not started yet.
        steps = np.arange(len(TIMES_MS))
        missed_by_second = np.array([np.where(steps <= d, silent[:, np.maximum(d - steps, 0)], 1.0) for d in at])
        losses = np.einsum("ad,dbt->abt", missed_by_first, missed_by_second)
        losses += silent[:, None, : len(TIMES_MS)] * read[None, :, None]
        best = losses.argmin(axis=2)
        self._alone = missed_by_first.sum(axis=1).tolist()
        self._loss = np.take_along_axis(losses, best[:, :, None], axis=2)[:, :, 0].tolist()
        self._after_ms = TIMES_MS[best].tolist()
        self._cost = answer
        self._known.clear()

    def _costs(self, weight: float, unit_usd: float, tokens: tuple[float, float]) -> tuple[Curve, list[float]]:
        read, answer = [], []
        for warm in (False, True):
            for each in self.candidates:
                read.append(weight * each.read_usd(tokens[0], warm=warm) / unit_usd)
                answer.append(weight * each.answer_usd(*tokens, warm=warm) / unit_usd)
        return np.array(read), answer

    def hedge(self, first: int, warm: int, allowed: int) -> Hedge:
        """Return the best second model of those in `allowed`, for a session cached by the models in `warm` (bit
        masks)."""
        key = (first, warm, allowed)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._hedge(first, warm, allowed)
        return known

    def _hedge(self, first: int, warm: int, allowed: int) -> Hedge:
        a = self._row(first, warm)
        best = Hedge(self._alone[a], None, 0.0)
        for second in range(len(self.candidates)):
            if second == first or not allowed >> second & 1:
                continue
            b = self._row(second, warm)
            if self._loss[a][b] < best.loss:
                best = Hedge(self._loss[a][b], second, self._after_ms[a][b])
        return best

    def score(self, first: int, warm: int, allowed: int, *, last: int | None) -> float:
        """Return the loss of beginning with that model: misses, and its cost."""
        score = self.hedge(first, warm, allowed).loss + self._cost[self._row(first, warm)]
        return score - LOYALTY * abs(score) if first == last else score

    def _row(self, candidate: int, warm: int) -> int:
        return candidate + (len(self.candidates) if warm >> candidate & 1 else 0)


class HedgeBudget:
    """`weight` is what the loss of one answer in time may cost: the Lagrange multiplier of the cap, found online."""

    def __init__(self, cap_usd: float) -> None:
        self.cap_usd = cap_usd
        """The mean limit for a turn's cost above that of the first choice alone."""

        self.weight = FIRST_WEIGHT
        self._mean = 0.0

    def unit_usd(self, turn_usd: float) -> float:
        """Return the money that a weight of 1 stands for: the cost of a turn; with a free model, the cap of a turn."""
        return max(turn_usd, self.cap_usd, 1e-9)

    def spent(self, extra_usd: float, turn_usd: float) -> None:
        """Record a turn's cost above `turn_usd`, the cost of the first choice alone; below 0 if it cost less."""
        unit = self.unit_usd(turn_usd)
        self._mean += SPENT_MEMORY * (extra_usd / unit - self._mean)
        over = max(-1.0, min(self._mean - AIM * self.cap_usd / unit, 1.0))
        self.weight = max(LEAST_WEIGHT, min(self.weight * math.exp(STEP * over), MOST_WEIGHT))
