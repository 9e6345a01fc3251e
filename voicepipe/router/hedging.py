"""Decide when to start the second model: the deadline hedge.

Let `S(t)` be the chance that a model is still silent after `t`, and let providers fail independently. A hedge to `b`
that starts `t` after `a` leaves `S_a(D) S_b(D - t)` of the turns over the deadline `D`. It is started at all in
`S_a(t)` of the turns, and wins some of them, `W(t)`. The planner picks the model and the instant with the least

    sum_k weight_k S_a(D_k) S_b(D_k - t)  +  weight x (read_b x S_a(t) + (written_b - written_a) x W(t))

over the deadline and some later deadlines, which represent calls that hang. Dean and Barroso, "The Tail at Scale" (CACM
56(2), 2013), hedge at the p95. That would be too late here: their deadline lies far after the p95, that of a turn
before it.

A model that has not read a session costs several times more at its first call than at later ones. So the first call
gets the credit of what it makes cheaper: the difference of a session's expected losses without and with that model's
cache, over the turns that a session still has on average.

What hedges cost is held to a cap in dollars a turn (`hedge_budget`), by a price on each dollar: the weight.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import sliding_window_view

from voicepipe.router.candidate import Candidate
from voicepipe.router.latency_stats import LatencyStats
from voicepipe.router.survival import GRID_MS, STEP_MS, Curve, quantile_ms

LATER_DEADLINES: Final = ((1_000, 0.5), (2_000, 0.5), (4_000, 2.0))
"""(ms, weight) beside the deadline itself, whose weight is 1."""

LATEST_HEDGE_MS: Final = 2_000
TIMES_MS: Final = GRID_MS[: LATEST_HEDGE_MS // STEP_MS + 1]
TIME_STEPS: Final = np.arange(len(TIMES_MS))

AFFINITY: Final = 0.05
"""Advantage that another model needs over the one that answered last: the worth of a warm cache."""

ANSWER_STRIDE: Final = 5
ANSWER_STEPS: Final = np.arange(0, 3_000 // STEP_MS, ANSWER_STRIDE)
"""The steps of the grid at which intervals begin; a hedge's answer is assumed in their middles, to compute its wins."""

ANSWER_EDGES: Final = np.append(ANSWER_STEPS, ANSWER_STEPS[-1] + ANSWER_STRIDE)
ANSWER_MIDDLE: Final = 2


class Hedge(Struct, frozen=True):
    """The best second model for a first one; `second` is None when the first alone is best."""

    loss: float
    second: int | None
    after_ms: float


class Losses(Struct, frozen=True):
    """The losses of hedges, (k, k, n_times): by first model, second model and the time at which the second starts."""

    by_time: Curve
    least: Curve
    """(k, k), the least of each pair."""

    def best(self, first: int, second: int) -> Hedge:
        """Return the best hedge of that pair."""
        return Hedge(self.least.item(first, second), second, TIMES_MS.item(self.by_time[first, second].argmin()))


class PlanBasis(Struct, frozen=True, kw_only=True):
    """Statistics and prices from which plans follow."""

    latency: LatencyStats
    now_ms: float
    weight: float
    """What spending `unit_usd` is worth in missed turns (`HedgeBudget.weight`)."""

    unit_usd: float
    tokens: tuple[float, float]
    """The input and output tokens of a usual turn."""

    stays: Curve
    """(n_turns,), by turn of a session: the share of sessions that have another one after it."""


class Planner:
    """The table of best hedges of one pool. `rebuild` it off the hot path; the rest is looking up."""

    def __init__(self, candidates: tuple[Candidate, ...], deadline_ms: int, hold_ms: float = 0.0) -> None:
        """`hold_ms`: until then a hedge answers only if the first one fails."""
        n = len(candidates)
        self._hold_step = int(hold_ms) // STEP_MS
        self.candidates, self.deadline_ms = candidates, deadline_ms
        self._deadlines = ((deadline_ms, 1.0), *((ms, w) for ms, w in LATER_DEADLINES if ms > deadline_ms))
        self._second_at = np.array([np.maximum(ms // STEP_MS - TIME_STEPS, 0) for ms, _ in self._deadlines])
        """(n_deadlines, n_times): how long a second model that starts at that time has had by the deadline."""

        self._silent = np.zeros((n, len(GRID_MS)))
        self._alone: list[float] = []
        self._cold: list[Losses] = []
        """By turn of the session, where the second model is cold."""

        self._warm = Losses(np.zeros((n, n, len(TIMES_MS))), np.zeros((n, n)))
        self._late: tuple[list[list[float]], list[list[float]]] = ([], [])
        """The losses of a second model that starts at the deadline, by first and second: where it is cold, and warm."""

        self._read = np.zeros((2, n))
        self._written = np.zeros(n)
        self._writes = np.zeros(n)
        self._stay = 0.0
        self._known: dict[tuple[int, int, int, int], Hedge] = {}

    def rebuild(self, basis: PlanBasis) -> None:
        """Compute the table again."""
        self._silent = silent = np.array([basis.latency.survival(each).curve(basis.now_ms) for each in self.candidates])
        self._price(basis.weight / basis.unit_usd, basis.tokens)
        self._stay = float(basis.stays[0])
        at = [ms // STEP_MS for ms, _ in self._deadlines]
        weights = np.array([w for _, w in self._deadlines])
        missed_by_first = silent[:, at] * weights
        losses = np.zeros((len(silent), len(silent), len(TIMES_MS)))
        # (k, n_times) for each deadline: the second is silent then, started at that time; or not started yet.
        for i, missed_by_second in enumerate(silent.take(self._second_at, axis=1).swapaxes(0, 1)):
            losses += missed_by_first[:, i, None, None] * missed_by_second
        losses += self._answers_price()
        started = silent[:, None, : len(TIMES_MS)]
        self._alone = missed_by_first.sum(axis=1).tolist()
        warm, cold = (losses + started * read[:, None] for read in self._read[::-1])
        self._warm = Losses(warm, warm.min(axis=2))
        self._cold = self._cold_losses(cold, started, basis.stays)
        at_deadline = min(self.deadline_ms, LATEST_HEDGE_MS) // STEP_MS
        self._late = cold[:, :, at_deadline].tolist(), warm[:, :, at_deadline].tolist()
        self._known.clear()

    def _price(self, weight_per_usd: float, tokens: tuple[float, float]) -> None:
        reads = [[each.read_usd(tokens[0], warm=warm) for each in self.candidates] for warm in (False, True)]
        self._read = weight_per_usd * np.array(reads)
        written = [each.answer_usd(0.0, tokens[1], warm=False) for each in self.candidates]
        self._written = weight_per_usd * np.array(written)
        writes = [each.answer_usd(0.0, each.tokens_per_s * STEP_MS / 1_000, warm=False) for each in self.candidates]
        self._writes = weight_per_usd * np.array(writes)

    def _answers_price(self) -> Curve:
        """Return what a hedge adds to the price of the answers, (k, k, n_times): below 0 if a cheaper one answers."""
        silent = self._silent
        answers = -np.diff(silent[:, ANSWER_EDGES], axis=1)
        until = self._hold_step
        audible = silent.copy()
        audible[:, :until] = silent[:, until : until + 1]
        wins = _expected_at(audible, answers, len(TIMES_MS))
        price: Curve = (self._written[None, :] - self._written[:, None])[:, :, None] * wins
        if until > ANSWER_MIDDLE:
            # While it is held, a hedge writes what is never played if the first one speaks.
            lost = np.maximum(silent[:, :until] - silent[:, until : until + 1], 0.0)
            left = np.zeros((len(lost), 2 * until + ANSWER_STRIDE))
            left[:, :until] = lost[:, ::-1].cumsum(axis=1)[:, ::-1]
            n_times = min(until - ANSWER_MIDDLE, len(TIMES_MS))
            n_answers = -(-(until - ANSWER_MIDDLE) // ANSWER_STRIDE)  # a later one is not held
            price[:, :, :n_times] += self._writes[None, :, None] * _expected_at(left, answers[:, :n_answers], n_times)
        return price

    def _cold_losses(self, cold: Curve, started: Curve, stays: Curve) -> list[Losses]:
        """Return the losses of hedges to a cold model, by turn of the session, from the last turn backwards: a hedge's
        loss, less what the session saves later on since that model has read it."""
        alone = np.array(self._alone)
        lasting = 1 / (1 - stays[-1])
        warm_turn = np.minimum(self._warm.least, alone[:, None])
        cold_value, warm_value = alone * lasting, warm_turn * lasting
        by_turn: list[Losses] = []
        for stay in reversed(stays.tolist()):
            credit = stay * np.maximum(cold_value[:, None] - warm_value, 0.0)
            by_time = started * credit[:, :, None]
            np.subtract(cold, by_time, out=by_time)
            least = by_time.min(axis=2)
            least.reshape(-1)[:: len(alone) + 1] = np.inf  # no model is its own second
            by_turn.append(Losses(by_time, least))
            cold_value = np.minimum(least.min(axis=1), alone) + stay * cold_value
            warm_value = warm_turn + stay * warm_value
        return by_turn[::-1]

    def medians_ms(self) -> dict[str, float]:
        """Return each model's median time to the first token, by spec."""
        return {each.spec: quantile_ms(curve, 0.5) for each, curve in zip(self.candidates, self._silent, strict=True)}

    def hedge(self, first: int, warm: int, allowed: int, turn: int) -> Hedge:
        """Return the best second model of those in `allowed`, for a session cached by the models in `warm` (bit
        masks), which has had this number of turns."""
        key = (first, warm, allowed, turn)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._hedge(first, warm, allowed, turn)
        return known

    def _hedge(self, first: int, warm: int, allowed: int, turn: int) -> Hedge:
        cold = self._cold[min(turn, len(self._cold) - 1)]
        best = Hedge(self._alone[first], None, 0.0)
        for second in range(len(self.candidates)):
            if second == first or not allowed >> second & 1:
                continue
            losses = self._warm if warm >> second & 1 else cold
            if losses.least.item(first, second) < best.loss:
                best = losses.best(first, second)
        return best

    def replacement(self, first: int, warm: int, allowed: int) -> int | None:
        """Return the best model of those in `allowed` to start at the deadline, when the first is alone and silent."""
        losses = {i: self._late[warm >> i & 1][first][i] for i in range(len(self.candidates)) if allowed >> i & 1}
        return min(losses, key=losses.__getitem__, default=None)

    def pays_late(self, first: int, hedge: Hedge, third: int, warm: int) -> bool:
        """Return whether it pays to start a third model at the deadline, when the others are still silent."""
        d = self.deadline_ms // STEP_MS
        silent = self._silent.item  # by model and step
        gain, cost = 0.0, float(self._read[warm >> third & 1][third])
        for ms, weight in self._deadlines[1:]:
            at = ms // STEP_MS
            missed = silent(first, at) / max(silent(first, d), 1e-9)
            if hedge.second is not None:
                second, since = hedge.second, int(hedge.after_ms) // STEP_MS
                missed *= silent(second, max(0, at - since)) / max(silent(second, max(0, d - since)), 1e-9)
            gain += weight * missed * (1 - silent(third, at - d))
        return gain > cost

    def score(self, first: int, warm: int, allowed: int, turn: int, *, last: int | None) -> float:
        """Return the loss of beginning with that model: misses, and its cost."""
        cold_read, warm_read = self._read[:, first].tolist()
        read = warm_read if warm >> first & 1 else warm_read + (1 - self._stay) * (cold_read - warm_read)
        score: float = self.hedge(first, warm, allowed, turn).loss + read + float(self._written[first])
        return score - AFFINITY * abs(score) if first == last else score


def _expected_at(values: Curve, answers: Curve, n_times: int) -> Curve:
    """Return what `values`, (k, n_steps), are on average when a hedge answers: (first, second, n_times), by the time at
    which it starts; `answers`, (k, n_answers), is the share of answers that take that time."""
    n, n_answers = answers.shape
    taken = sliding_window_view(values, ANSWER_STRIDE * (n_answers - 1) + 1, axis=1)[..., ::ANSWER_STRIDE]
    at = taken[:, ANSWER_MIDDLE : ANSWER_MIDDLE + n_times]  # by model, start and answer
    expected: Curve = np.dot(at.reshape(-1, n_answers), answers.T)
    return expected.reshape(n, n_times, n).transpose(0, 2, 1)
