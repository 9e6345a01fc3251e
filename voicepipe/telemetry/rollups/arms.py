"""Compare the arms of A/B experiments by latency, cost and quality, each with its 95 % interval. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

Z: Final = 1.959964
"""The 97.5 % quantile of the normal distribution, for intervals of 95 %."""

GOOD: Final = 0.5
"""A score from here on counts as good."""

MIN_SCORES: Final = 20
"""Scores of an arm below which nothing is said of a winner, whatever the interval: Wilson's is too narrow for few."""

SOURCES: Final = ("user", "judge")
"""Who scores; users count before a model."""


@dataclass(frozen=True, slots=True)
class ArmTurn:
    """A turn as the comparison needs it."""

    arm: str
    """`experiment/pool`; empty: the turn was in no arm."""

    total_ms: int | None
    usd: float
    failed: bool
    scores: Mapping[str, float]
    """Source -> score, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and the interval that holds the true one in 95 of 100 experiments."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The scores of one source."""

    scores: int
    good: int
    share: Estimate
    """Share of good ones, with Wilson's interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One arm of an experiment, or (with an empty name) the turns in no arm."""

    pool: str
    turns: int
    failed: int
    latency_ms: Estimate | None
    """The median turn latency, with the interval of its rank; None: no turn had audible output."""

    usd: Estimate
    """The mean cost of a turn."""

    quality: Mapping[str, Quality] = field(default_factory=dict)
    """Source -> its scores; a source without scores is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentFigures:
    """The arms of an experiment side by side."""

    name: str
    arms: tuple[ArmFigures, ...]
    winner: str | None
    """The pool whose quality is better than that of every other arm, beyond the intervals; None: none is."""


def experiments(turns: Iterable[ArmTurn]) -> tuple[ExperimentFigures, ...]:
    """Return the experiments of these turns by name, each with its arms and, last, the turns in no arm."""
    by_arm: dict[str, list[ArmTurn]] = defaultdict(list)
    for turn in turns:
        by_arm[turn.arm].append(turn)
    rest = by_arm.pop("", [])
    names: dict[str, list[str]] = defaultdict(list)
    for arm in sorted(by_arm):
        names[arm.partition("/")[0]].append(arm)
    in_no_arm = [_figures("", rest)] if rest else []
    made = []
    for name, arms in sorted(names.items()):
        figures = [_figures(arm.partition("/")[2], by_arm[arm]) for arm in arms]
        figures += in_no_arm
        made.append(ExperimentFigures(name=name, arms=tuple(figures), winner=winner_of(figures)))
    return tuple(made)


def winner_of(arms: Sequence[ArmFigures]) -> str | None:
    """Return the pool that is better than all others by the scores of one source, or None.

    Its interval must lie above that of each other arm. That is stricter than a test of the difference at 5 %, which
    makes up for looking again and again. The turns in no arm count only where that source has scored some: a model as
    judge scores those of arms alone. They can't win, since they belong to no pool: where they are the best, none does.
    """
    for source in SOURCES:
        scored = [(arm, quality) for arm in arms if (quality := arm.quality.get(source)) is not None]
        n_compared = sum(bool(arm.pool) or source in arm.quality for arm in arms)
        if len(scored) < max(2, n_compared) or min(quality.scores for _, quality in scored) < MIN_SCORES:
            continue
        best, its = max(scored, key=lambda each: each[1].share.value)
        if all(its.share.low > quality.share.high for arm, quality in scored if arm is not best):
            return best.pool or None
    return None


def wilson(good: int, n: int) -> Estimate:
    """Return a share with Wilson's score interval (1927), which is right for few and for extreme shares too."""
    share, weight = good / n, Z * Z / n
    center = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    return Estimate(share, max(0.0, center - half), min(1.0, center + half))


def median_of(values: Sequence[int]) -> Estimate:
    """Return the median with the interval of its rank, which needs no law of the values."""
    ordered, n = sorted(values), len(values)
    half = Z * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half))
    return Estimate(statistics.median(ordered), ordered[low], ordered[high])


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean with its interval by the normal law."""
    known = np.asarray(values, dtype=np.float64)  # `statistics.stdev` sums fractions: 20,000 take 0.1 s
    mean = float(known.mean())
    half = Z * float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return Estimate(mean, mean - half, mean + half)


def _figures(pool: str, turns: Sequence[ArmTurn]) -> ArmFigures:
    latencies = [turn.total_ms for turn in turns if turn.total_ms is not None]
    quality = {}
    for source in SOURCES:
        scores = [turn.scores[source] for turn in turns if source in turn.scores]
        if scores:
            good = sum(score >= GOOD for score in scores)
            quality[source] = Quality(scores=len(scores), good=good, share=wilson(good, len(scores)))
    return ArmFigures(
        pool=pool,
        turns=len(turns),
        failed=sum(turn.failed for turn in turns),
        latency_ms=median_of(latencies) if latencies else None,
        usd=mean_of([turn.usd for turn in turns]),
        quality=quality,
    )
