"""Learn the distribution of one provider's times to the first output: its shape slowly, its pace at once.

A provider in a bad minute answers everything several times later. So a time is the product of two values, and on bins
that grow by the same factor a sum: a draw from the shape, and the pace, a whole number of bins. The pace is a hidden
state with a posterior (a discrete Bayes filter): it stays for minutes, drifts a little, and jumps now and then. A few
late answers in a row move the posterior; one straggler doesn't. The shape is a life table (Kaplan, Meier,
"Nonparametric Estimation from Incomplete Observations", J. Amer. Statist. Assoc. 53 (1958)): of the calls still silent
at the beginning of a bin, the share that answered within it.

A loser that is closed after 300 ms has shown only that it takes longer than 300 ms. Leaving it out, or taking the 300
ms for its answer, would make a slow model look fast. Both parts learn from it as from a censored time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Curve = npt.NDArray[np.float64]
"""(n_steps,), the share that is still silent after 0, `STEP_MS`, 2 `STEP_MS`, ..."""

N_BINS: Final = 71
EDGES_MS: Final = np.concatenate([[0.0], np.geomspace(40.0, 12_000.0, N_BINS)])
"""(72,), bins grow by 8.5 % from 40 ms to 12 s; the first begins at 0."""

EDGES: Final[tuple[float, ...]] = tuple(EDGES_MS.tolist())
"""The same as numbers: faster to search for one time."""

STEP_MS: Final = 10
HORIZON_MS: Final = 5_000
GRID_MS: Final = np.arange(0, HORIZON_MS + 1, STEP_MS, dtype=np.float64)

SIGMA: Final = 0.5
"""Spread of the lognormal around a published median: that of healthy providers."""

STRAGGLER_SHARE: Final = 0.02
STRAGGLER_SHAPE: Final = 1.5
"""Share of the prior that follows a Pareto law beyond the lognormal, and the law's shape: queues, cold replicas."""

HANG_SHARE: Final = 0.015
"""Share of the prior that lies beyond all bins: calls hang."""

PRIOR_SAMPLES: Final = 40.0
"""Answers that the prior's shape is worth."""

SHAPE_HALF_LIFE: Final = 600.0
"""Answers after which an answer counts half for the shape."""

SHAPE_FADE: Final = 0.5 ** (1 / SHAPE_HALF_LIFE)
"""The same for each answer."""

FASTEST, SLOWEST = -22, 32
"""Paces in bins: a sixth of the published time to 13 times it."""

PACES: Final = np.arange(FASTEST, SLOWEST + 1)
N_PACES: Final = len(PACES)

SHAPE_BINS: Final = np.clip(np.arange(N_BINS)[:, None] - PACES, 0, N_BINS - 1)
"""(N_BINS, N_PACES): the bin of the shape, by the bin of a time and the pace."""

USUAL_PACES: Final = np.exp(-0.5 * (PACES / 1.5) ** 2) / np.exp(-0.5 * (PACES / 1.5) ** 2).sum()
"""What is usual before any answer: as published, within 12 %."""

MIN_LIKELIHOOD: Final = 1e-6
"""Of a time at any pace, so that no time is impossible."""

HALF_LIFE_MS: Final = 120_000
"""Half-life of the probability of a pace that differs from the usual one: that of a provider's bad minutes."""

JUMP_SHARE: Final = 0.05
"""Of the distribution after a jump, the part that may be any pace; the rest is as usual."""

DRIFT_PER_S: Final = 0.02
"""Chance of a step to a neighbouring pace, per second."""

STAYED_HALF_LIFE_MS: Final = 3_600_000
"""Half-life of the time for which each pace stayed: these times are what is usual."""

PRIOR_STAYED_MS: Final = 100_000
"""Time that the published pace is worth among them."""

PRIOR_STAYED: Final = USUAL_PACES * PRIOR_STAYED_MS

MAX_COUNTED_MS: Final = 10_000
"""Time that one answer counts for at most: where there is little traffic, nothing is known of the time between two."""

MAX_PENDING: Final = 32
"""Times that wait until a curve is requested: to learn from one takes longer than to note it. With more, each call
learns from one."""


class Survival:
    """The distribution of one model's times to the first token."""

    def __init__(self, median_ms: float) -> None:
        silent = _prior_silent(median_ms)
        self._prior_silent = PRIOR_SAMPLES * silent[:-1]
        self._prior_spoke = -PRIOR_SAMPLES * np.diff(silent)
        self._silent = np.zeros(N_BINS)
        self._spoke = np.zeros(N_BINS)
        self._shape: tuple[Curve, Curve] | None = None
        self._stayed_ms = np.zeros(N_PACES)
        self._posterior = self._after_jump()
        self._at_ms: float | None = None
        self._pending: deque[tuple[float, float, bool]] = deque()  # bounded by `_record`: the oldest is learned from

    def spoke(self, after_ms: float, now_ms: float) -> None:
        """Record an answer that began this long after the request."""
        self._record(after_ms, now_ms, True)

    def was_silent(self, for_ms: float, now_ms: float) -> None:
        """Record a call that was closed this long after the request, without an answer."""
        self._record(for_ms, now_ms, False)

    @property
    def has_times(self) -> bool:
        """Return whether a time was recorded since the start, or since `restore`."""
        return self._at_ms is not None or bool(self._pending)

    def curve(self, now_ms: float) -> Curve:
        """Return the share of answers that are still silent, on `GRID_MS`. Falls back to the usual pace as evidence
        fades."""
        self._learn()
        silent, _ = self._table()
        # At pace k, an edge has the share of the edge k bins before it.
        padded = np.concatenate([np.ones(SLOWEST), silent, np.full(-FASTEST, silent[-1])])
        mixed = np.convolve(padded, self._expected(now_ms), "valid")
        mixed[0] = 1.0
        curve: Curve = np.interp(GRID_MS, EDGES_MS, mixed)
        return curve

    def learned(self) -> dict[str, list[float]]:
        """Return the counts that outlive a restart: of the shape, and of the time in each pace."""
        self._learn()
        counts = {"silent": self._silent, "spoke": self._spoke, "stayed_ms": self._stayed_ms}
        return {name: [round(each, 4) for each in values.tolist()] for name, values in counts.items()}

    def restore(self, learned: Mapping[str, Sequence[float]]) -> None:
        """Continue from such counts, at the usual pace.

        Raises:
            ValueError: they are not such counts.
        """
        names = ("silent", "spoke", "stayed_ms")
        silent, spoke, stayed_ms = (np.array(learned.get(name, ()), np.float64) for name in names)
        for counts, n in ((silent, N_BINS), (spoke, N_BINS), (stayed_ms, N_PACES)):
            if counts.shape != (n,) or not np.isfinite(counts).all() or (counts < 0).any():
                raise ValueError(f"expected {n} counts of 0 or more for each model")
        self._pending.clear()  # these counts replace what came before
        self._silent, self._spoke, self._stayed_ms = silent, spoke, stayed_ms
        self._posterior, self._at_ms, self._shape = self._after_jump(), None, None

    def _record(self, ms: float, now_ms: float, spoke: bool) -> None:
        self._pending.append((ms, now_ms, spoke))
        if len(self._pending) > MAX_PENDING:
            self._learn_one(*self._pending.popleft())

    def _learn(self) -> None:
        for ms, now_ms, spoke in self._pending:
            self._learn_one(ms, now_ms, spoke)
        self._pending.clear()

    def _learn_one(self, ms: float, now_ms: float, spoke: bool) -> None:
        silent, answered = self._table()
        at = self._bin(ms)
        bins = SHAPE_BINS[at]
        posterior = self._expected(now_ms)
        posterior *= np.maximum((answered if spoke else silent)[bins], MIN_LIKELIHOOD)
        posterior /= posterior.sum()
        counts: Curve = np.bincount(bins, posterior, N_BINS).astype(np.float64, copy=False)
        self._shape_learns(counts, 1.0 if spoke else _waited_share(ms, at), spoke)
        passed_ms = 0.0 if self._at_ms is None else min(max(0.0, now_ms - self._at_ms), MAX_COUNTED_MS)
        self._stayed_ms *= 0.5 ** (passed_ms / STAYED_HALF_LIFE_MS)
        self._stayed_ms += passed_ms * posterior
        self._posterior, self._at_ms = posterior, max(now_ms, self._at_ms or now_ms)

    def _shape_learns(self, counts: Curve, share: float, spoke: bool) -> None:
        """Count a time, spread over bins. A call that was closed counts in its bin for the share that was waited
        through, as actuaries do. Without it, models that are always closed after the same time would look as if all of
        them answered then."""
        self._silent *= SHAPE_FADE
        self._silent += counts[::-1].cumsum()[::-1]
        if share < 1:
            self._silent -= (1 - share) * counts
        self._spoke *= SHAPE_FADE
        if spoke:
            self._spoke += counts
        self._shape = None

    def _table(self) -> tuple[Curve, Curve]:
        """Return the shape: the share that is silent at each edge, (72,), and the share that answers in each bin."""
        shape = self._shape
        if shape is None:
            at_risk = self._prior_silent + self._silent
            spoke = self._prior_spoke + self._spoke
            silent = np.ones(N_BINS + 1)
            np.multiply.accumulate(1 - np.minimum(spoke / np.maximum(at_risk, 1e-9), 1.0), out=silent[1:])
            self._shape = shape = silent, silent[:-1] - silent[1:]
        return shape

    def _expected(self, now_ms: float) -> Curve:
        """Return the probability of each pace at that time, before its answer; a new array."""
        posterior: Curve = self._posterior
        passed_ms = 0.0 if self._at_ms is None else max(0.0, now_ms - self._at_ms)
        if not passed_ms:
            return posterior.copy()
        lost = 1 - 0.5 ** (passed_ms / HALF_LIFE_MS)
        step = min(0.25, DRIFT_PER_S * passed_ms / 1_000)
        expected: Curve = (1 - 2 * step) * posterior
        stepped = step * posterior
        expected[1:] += stepped[:-1]
        expected[:-1] += stepped[1:]
        expected *= 1 - lost
        expected += lost * self._after_jump()
        expected /= expected.sum()
        return expected

    def _after_jump(self) -> Curve:
        usual = PRIOR_STAYED + self._stayed_ms
        prior: Curve = usual * ((1 - JUMP_SHARE) / usual.sum()) + JUMP_SHARE / N_PACES
        return prior

    @staticmethod
    def _bin(ms: float) -> int:
        return min(bisect_right(EDGES, ms) - 1, N_BINS - 1)


def _prior_silent(median_ms: float) -> Curve:
    """Return the share that is silent at each edge, (72,), for a published median."""
    past = np.log(np.maximum(EDGES_MS, 1e-3) / median_ms)
    usual = np.array([0.5 * math.erfc(each / (SIGMA * math.sqrt(2))) for each in past])
    late = np.exp(-STRAGGLER_SHAPE * np.maximum(past - SIGMA, 0.0))
    silent: Curve = (1 - STRAGGLER_SHARE - HANG_SHARE) * usual + STRAGGLER_SHARE * late + HANG_SHARE
    return silent


def _waited_share(ms: float, at: int) -> float:
    """Return the part of a time's bin that was waited through."""
    return min(1.0, (ms - EDGES[at]) / (EDGES[at + 1] - EDGES[at]))


def quantile_ms(curve: npt.NDArray[np.floating[Any]], q: float) -> float:
    """Return when a share `q` has answered by this curve, in ms, at most `HORIZON_MS`."""
    reached = np.nonzero(curve <= 1 - q)[0]
    return float(GRID_MS[reached[0]]) if len(reached) else float(HORIZON_MS)
