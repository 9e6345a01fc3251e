"""Detect when a bench's latency has changed by more than chance and by more than a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

from voicepipe.bench.compare import Interval, percentile
from voicepipe.bench.scheduled.run_log import BenchRun

Figure = Literal["p50", "p95"]

FIGURES: Final[dict[Figure, float]] = {"p50": 0.50, "p95": 0.95}

Z: Final = 2.58
"""The z value of a 99 % interval."""

MIN_BEFORE: Final = 40
"""Answers of earlier runs, for a median. A p95 that is slower needs about 130, and one that is faster as many in the
latest run."""

MIN_AFTER: Final = 10


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure of the latest run beside that of the runs before it."""

    figure: Figure
    before: Interval
    after: Interval
    has_drifted: bool
    """Whether the 99 % interval of the difference excludes 0, and the difference is beyond the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRule:
    """The bounds of drift."""

    share: float
    """The least change, as a share of the figure before."""

    baseline_runs: int
    """Runs before the latest one that it is compared with."""


def changes(runs: Sequence[BenchRun], rule: DriftRule) -> tuple[FigureChange, ...]:
    """Compare the latest measured run of one model with those before it; empty with too few answers."""
    measured = [run for run in runs if run.result == "measured"]
    if not measured:
        return ()
    *earlier, latest = measured
    before = [value for run in earlier[-rule.baseline_runs :] for value in run.latencies_ms]
    after = latest.latencies_ms
    if len(before) < MIN_BEFORE or len(after) < MIN_AFTER:
        return ()
    return tuple(_change(figure, share, before, after, rule) for figure, share in FIGURES.items())


def _bounds_above(n: int, share: float) -> bool:
    """Return whether one of `n` values bounds the percentile from above: of 20, none is surely above the p95."""
    return n * share + Z * sqrt(n * share * (1 - share)) <= n


def _change(
    figure: Figure, share: float, before: Sequence[float], after: Sequence[float], rule: DriftRule
) -> FigureChange:
    was, is_now = percentile(before, share, z=Z), percentile(after, share, z=Z)
    change = is_now.minus(was)
    is_slower = change.low > 0 and _bounds_above(len(before), share)
    is_certain = is_slower or (change.high < 0 and _bounds_above(len(after), share))
    return FigureChange(figure, was, is_now, is_certain and abs(change.value) >= rule.share * was.value)
