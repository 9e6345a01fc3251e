"""Has a change made users wait longer? Two runs compared, so that noise is not called a regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final

from voicepipe.bench.compare_runs import Measured
from voicepipe.bench.simulate_report import GIVEN_UP_MS

Z: Final = 1.96
"""Of a 95 % interval."""

FEWEST: Final = 72
"""Of fewer turns not even the slowest bounds the 95th percentile from above with 97.5 %: 0.95^72 = 0.025."""

QUANTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and where it lies with 95 %."""

    value: float
    low: float
    high: float

    def minus(self, other: Interval) -> Interval:
        """The difference of two figures that know nothing of one another.

        Source: square-and-add intervals; Newcombe, Interval estimation for the difference between independent
        proportions, Statistics in Medicine 17, 1998, method 10; for any figures Zou and Donner, ibid. 27, 2008.
        """
        value = self.value - other.value
        low = value - sqrt((self.value - self.low) ** 2 + (other.high - other.value) ** 2)
        high = value + sqrt((self.high - self.value) ** 2 + (other.value - other.low) ** 2)
        return Interval(value, low, high)


def percentile(values: Sequence[int], share: float = QUANTILE) -> Interval:
    """A percentile of measured values, and its interval by their order, whatever their distribution.

    Source: order statistics with the normal approximation of the binomial; Conover, Practical Nonparametric
    Statistics, 3rd ed., 3.2.
    """
    ordered, n = sorted(values), len(values)
    reach = Z * sqrt(n * share * (1 - share))
    place, low, high = ceil(n * share), floor(n * share - reach), ceil(n * share + reach)
    return Interval(*(float(ordered[min(max(i, 1), n) - 1]) for i in (place, low, high)))


def rate(n_hits: int, n: int) -> Interval:
    """A share, and its interval. Source: Wilson, Journal of the American Statistical Association 22, 1927."""
    share = n_hits / n
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    reach = Z / (1 + Z**2 / n) * sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return Interval(share, max(0.0, middle - reach), min(1.0, middle + reach))


@dataclass(frozen=True, slots=True)
class Check:
    """One figure before and after, and how much larger it may have become."""

    name: str
    before: Interval
    after: Interval
    bound: float
    scale: float = 1.0

    @property
    def change(self) -> Interval:
        """After less before."""
        return self.after.minus(self.before)

    @property
    def verdict(self) -> str:
        """`worse`: past the bound, and no chance; `noise`: past it, but the two may be the same; `within`."""
        change = self.change
        if change.value <= self.bound:
            return "within"
        return "worse" if change.low > 0 else "noise"


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs."""

    n_before: int
    n_after: int
    checks: tuple[Check, ...]
    fewest: int

    @property
    def enough(self) -> bool:
        """Whether there are enough turns to tell."""
        return min(self.n_before, self.n_after) >= self.fewest

    @property
    def worse(self) -> bool:
        """Whether anything is worse than it may be."""
        return any(check.verdict == "worse" for check in self.checks)


def compare(
    before: Sequence[Measured], after: Sequence[Measured], *, p95_ms: float, misses: float, fewest: int = FEWEST
) -> Compared:
    """Hold a run against another.

    Args:
        p95_ms: how much the 95th percentile of the turn latency may grow.
        misses: how much the share of turns that were over their limit, or failed, may grow.
        fewest: turns that each run must have.

    A turn that failed before anything was heard counts as missed, and as heard when its user has hung up.
    """
    checks = (
        Check("p95 ms", percentile(_waits(before)), percentile(_waits(after)), p95_ms),
        Check("missed %", _missed(before), _missed(after), misses, scale=100.0),
    )
    return Compared(len(before), len(after), checks, fewest)


def _waits(turns: Sequence[Measured]) -> list[int]:
    return [GIVEN_UP_MS if turn.latency_ms is None else turn.latency_ms for turn in turns]


def _missed(turns: Sequence[Measured]) -> Interval:
    return rate(sum(turn.missed for turn in turns), len(turns))


def table(compared: Compared) -> Iterator[str]:
    """Lines of text for people."""
    yield f"{'':<10}{'before':>9}{'after':>9}{'change':>9}{'95 % interval':>20}{'allowed':>9}"
    for check in compared.checks:
        change, by = check.change, check.scale
        interval = f"{by * change.low:+.1f} to {by * change.high:+.1f}"
        figures = f"{by * check.before.value:>9.1f}{by * check.after.value:>9.1f}{by * change.value:>+9.1f}"
        yield f"{check.name:<10}{figures}{interval:>20}{by * check.bound:>+9.1f}  {check.verdict}"
    yield f"turns: {compared.n_before} before, {compared.n_after} after"
    if not compared.enough:
        yield f"too few to tell: expected {compared.fewest} of each"
