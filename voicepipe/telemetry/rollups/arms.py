"""Compare the arms of A/B experiments by latency, cost and quality, each with its 95 % interval. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field

from voicepipe.turn.record.arm import NO_ARM, Arm

Z: Final = 1.959964
"""The 97.5 % quantile of the normal distribution, for intervals of 95 %."""

MIN_GOOD: Final = 0.5
"""The lowest score that counts as good."""

MIN_SCORES: Final = 20
"""Minimum number of scores of each arm for a winner: Wilson's interval is too narrow for few scores."""

SOURCES: Final = ("user", "judge")
"""Sources of scores; users count before a model."""


class ArmTurn(Struct, frozen=True):
    """The fields of a turn that the comparison needs."""

    arm: Arm
    total_ms: int | None
    usd: float
    failed: bool
    scores: Mapping[str, float]
    """Source -> score, from 0 to 1."""


class Estimate(Struct, frozen=True):
    """A figure with its 95 % interval: it contains the true figure in 95 of 100 experiments."""

    value: float
    low: float
    high: float


class Quality(Struct, frozen=True, kw_only=True):
    """The scores of one source."""

    scores: int
    good: int
    share: Estimate
    """Share of good scores, with Wilson's interval."""


class ArmFigures(Struct, frozen=True, kw_only=True):
    """One arm of an experiment, or (with an empty name) the turns in no arm."""

    pool: str
    turns: int
    failed: int
    latency_ms: Estimate | None
    """The median turn latency, with the interval of its rank; None: no turn had audible output."""

    usd: Estimate
    """The mean cost of a turn."""

    quality: Mapping[str, Quality] = field(default_factory=dict)
    """Source -> quality; a source without scores is missing."""


class ExperimentFigures(Struct, frozen=True, kw_only=True):
    """The arms of an experiment side by side."""

    name: str
    arms: tuple[ArmFigures, ...]
    winner: str | None
    """The pool whose quality is better than that of every other arm, beyond the intervals; None: no pool is."""


def experiments(turns: Iterable[ArmTurn]) -> tuple[ExperimentFigures, ...]:
    """Return the experiments of these turns by name, each with its arms and, last, the turns in no arm."""
    by_arm: dict[Arm, list[ArmTurn]] = defaultdict(list)
    for turn in turns:
        by_arm[turn.arm].append(turn)
    unassigned = by_arm.pop(NO_ARM, [])
    by_name: dict[str, list[Arm]] = defaultdict(list)
    for arm in sorted(by_arm):
        by_name[arm.experiment].append(arm)
    in_no_arm = [_figures("", unassigned)] if unassigned else []
    found = []
    for name, arms in sorted(by_name.items()):
        figures = [_figures(arm.pool, by_arm[arm]) for arm in arms]
        figures += in_no_arm
        found.append(ExperimentFigures(name=name, arms=tuple(figures), winner=winner_of(figures)))
    return tuple(found)


def winner_of(arms: Sequence[ArmFigures]) -> str | None:
    """Return the pool that is better than all others by the scores of one source, or None.

    The interval of the winner must lie above the intervals of all other arms. That is stricter than a test of the
    difference at 5 %, which makes up for repeated looks. The turns in no arm take part only for a source that has
    scored some of them: a model as judge scores only turns in arms. They belong to no pool: if they are the best, no
    pool wins.
    """
    for source in SOURCES:
        scored = [(arm, quality) for arm in arms if (quality := arm.quality.get(source)) is not None]
        n_compared = sum(bool(arm.pool) or source in arm.quality for arm in arms)
        if len(scored) < max(2, n_compared) or min(quality.scores for _, quality in scored) < MIN_SCORES:
            continue
        best, best_quality = max(scored, key=lambda each: each[1].share.value)
        if all(best_quality.share.low > quality.share.high for arm, quality in scored if arm is not best):
            return best.pool or None
    return None


def wilson(good: int, n: int) -> Estimate:
    """Return a share with Wilson's score interval (1927), which is valid also for few scores and extreme shares."""
    share, weight = good / n, Z * Z / n
    center = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    return Estimate(share, max(0.0, center - half), min(1.0, center + half))


def median_of(values: Sequence[int]) -> Estimate:
    """Return the median with the interval of its rank, which assumes no distribution."""
    ordered, n = sorted(values), len(values)
    half = Z * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return Estimate(statistics.median(ordered), ordered[low], ordered[high])


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean with its interval, for the normal distribution."""
    array = np.asarray(values, dtype=np.float64)  # `statistics.stdev` sums fractions: 20,000 take 0.1 s
    mean = float(array.mean())
    half = Z * float(array.std(ddof=1)) / math.sqrt(len(array)) if len(array) > 1 else 0.0
    return Estimate(mean, mean - half, mean + half)


def _figures(pool: str, turns: Sequence[ArmTurn]) -> ArmFigures:
    latencies = [turn.total_ms for turn in turns if turn.total_ms is not None]
    quality = {}
    for source in SOURCES:
        scores = [turn.scores[source] for turn in turns if source in turn.scores]
        if scores:
            good = sum(score >= MIN_GOOD for score in scores)
            quality[source] = Quality(scores=len(scores), good=good, share=wilson(good, len(scores)))
    return ArmFigures(
        pool=pool,
        turns=len(turns),
        failed=sum(turn.failed for turn in turns),
        latency_ms=median_of(latencies) if latencies else None,
        usd=mean_of([turn.usd for turn in turns]),
        quality=quality,
    )
