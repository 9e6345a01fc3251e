"""Compare two runs for regressions of the turn latency, without reporting noise as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final

from voicepipe.bench.compare_runs import MeasuredTurn
from voicepipe.bench.simulate_report import GIVEN_UP_MS

Z: Final = 1.96
"""The z value of a 95 % interval."""

MIN_TURNS: Final = 72
"""With fewer turns even the slowest does not bound the 95th percentile from above with 97.5 %: 0.95^72 = 0.025."""

QUANTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def minus(self, other: Interval) -> Interval:
        """Return the difference of two independent figures.

        Source: square-and-add intervals; Newcombe, Interval estimation for the difference between independent
        proportions, Statistics in Medicine 17, 1998, method 10; for any figures Zou and Donner, ibid. 27, 2008.
        """
        value = self.value - other.value
        low = value - sqrt((self.value - self.low) ** 2 + (other.high - other.value) ** 2)
        high = value + sqrt((self.high - self.value) ** 2 + (other.value - other.low) ** 2)
        return Interval(value, low, high)


def percentile(values: Sequence[float], share: float = QUANTILE, *, z: float = Z) -> Interval:
    """Return a percentile of measured values, with its distribution-free interval: of 95 %, or by another `z` value.

    Source: order statistics with the normal approximation of the binomial; Conover, Practical Nonparametric
    Statistics, 3rd ed., 3.2.
    """
    ordered, n = sorted(values), len(values)
    reach = z * sqrt(n * share * (1 - share))
    place, low, high = ceil(n * share), floor(n * share - reach), ceil(n * share + reach)
    return Interval(*(float(ordered[min(max(i, 1), n) - 1]) for i in (place, low, high)))


def rate(n_hits: int, n: int) -> Interval:
    """Return a share, and its interval. Source: Wilson, Journal of the American Statistical Association 22, 1927."""
    share = n_hits / n
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    reach = Z / (1 + Z**2 / n) * sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return Interval(share, max(0.0, middle - reach), min(1.0, middle + reach))


@dataclass(frozen=True, slots=True)
class Check:
    """One figure before and after, and its allowed growth."""

    name: str
    before: Interval
    after: Interval
    bound: float
    scale: float = 1.0

    @property
    def change(self) -> Interval:
        """Return after less before."""
        return self.after.minus(self.before)

    @property
    def verdict(self) -> str:
        """Return `worse` (significantly past the bound), `noise` (past it, but not significantly) or `within`."""
        change = self.change
        if change.value <= self.bound:
            return "within"
        return "worse" if change.low > 0 else "noise"


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of two runs."""

    n_before: int
    n_after: int
    checks: tuple[Check, ...]
    min_turns: int

    @property
    def enough(self) -> bool:
        """Whether both runs have enough turns."""
        return min(self.n_before, self.n_after) >= self.min_turns

    @property
    def worse(self) -> bool:
        """Whether any figure is significantly past its bound."""
        return any(check.verdict == "worse" for check in self.checks)


def compare(
    before: Sequence[MeasuredTurn],
    after: Sequence[MeasuredTurn],
    *,
    p95_ms: float,
    misses: float,
    min_turns: int = MIN_TURNS,
) -> Compared:
    """Compare a run with an earlier one.

    Args:
        p95_ms: allowed growth of the 95th percentile of the turn latency.
        misses: allowed growth of the share of turns that were over their limit, or failed.
        min_turns: minimum number of turns in each run.

    A turn that failed before its first audio counts as missed, and its latency as that of a user who has hung up.
    """
    checks = (
        Check("p95 ms", percentile(_waits(before)), percentile(_waits(after)), p95_ms),
        Check("missed %", _missed(before), _missed(after), misses, scale=100.0),
    )
    return Compared(len(before), len(after), checks, min_turns)


def _waits(turns: Sequence[MeasuredTurn]) -> list[int]:
    return [GIVEN_UP_MS if turn.latency_ms is None else turn.latency_ms for turn in turns]


def _missed(turns: Sequence[MeasuredTurn]) -> Interval:
    return rate(sum(turn.missed for turn in turns), len(turns))


def table(compared: Compared) -> Iterator[str]:
    """Yield the comparison as lines of text."""
    yield f"{'':<10}{'before':>9}{'after':>9}{'change':>9}{'95 % interval':>20}{'allowed':>9}"
    for check in compared.checks:
        change, by = check.change, check.scale
        interval = f"{by * change.low:+.1f} to {by * change.high:+.1f}"
        figures = f"{by * check.before.value:>9.1f}{by * check.after.value:>9.1f}{by * change.value:>+9.1f}"
        yield f"{check.name:<10}{figures}{interval:>20}{by * check.bound:>+9.1f}  {check.verdict}"
    yield f"turns: {compared.n_before} before, {compared.n_after} after"
    if not compared.enough:
        yield f"too few turns: expected {compared.min_turns} of each"
