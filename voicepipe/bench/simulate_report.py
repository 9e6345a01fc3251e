"""Report a simulation: misses of the budget, quantiles and cost, as a table and as CSV."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

GIVEN_UP_MS: Final = 10_500
"""Latency of a turn without an answer: a user who has hung up."""

COLUMNS: Final = (
    *("pool", "policy", "n", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "missed", "over_1s", "calls_a_turn"),
    *("cost_factor", "usd_per_1000_turns", "lost_share", "most_spent", "failover_factor", "speakers"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """The results of one policy with one pool."""

    pool: str
    policy: str
    n: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    missed: float
    """The share of turns without a token by the deadline."""

    over_1s: float
    calls_a_turn: float
    usd_per_turn: float
    cost_factor: float
    """As a multiple of the cost of the first model alone."""

    lost_share: float
    """The share of the cost for calls that were closed without being used."""

    most_spent: float
    """The most that hedges cost in 500 turns in a row, as a multiple of the cap; `nan` without a cap."""

    failover_factor: float
    """What failovers cost, which no cap bounds, as a multiple of the cost of the first model alone."""

    speakers: tuple[tuple[str, float], ...]
    """(model, share of the turns that it answered)."""


def line_of(
    pool: str,
    policy: str,
    ttft_ms: Sequence[float],
    *,
    deadline_ms: int,
    calls: Sequence[int],
    usd: Sequence[float],
    lost_usd: Sequence[float],
    failover_usd: Sequence[float],
    speakers: Sequence[str],
    most_spent: float,
    single_usd: float | None,
) -> PolicyResult:
    """Sum up turns. `single_usd` is the cost of a turn with the first model alone; None: these turns are it."""
    times = np.minimum(np.array(ttft_ms), GIVEN_UP_MS)
    mean_usd, mean_failover_usd = float(np.mean(usd)), float(np.mean(failover_usd))
    spoke = Counter(speakers)
    p50, p95, p99, p999 = (float(value) for value in np.percentile(times, (50, 95, 99, 99.9)))
    return PolicyResult(
        pool=pool,
        policy=policy,
        n=len(times),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        p999_ms=p999,
        missed=float(np.mean(times > deadline_ms)),
        over_1s=float(np.mean(times > 1_000)),
        calls_a_turn=float(np.mean(calls)),
        usd_per_turn=mean_usd,
        cost_factor=mean_usd / single_usd if single_usd else 1.0 if single_usd is None else math.nan,
        lost_share=float(np.sum(lost_usd)) / float(np.sum(usd)) if mean_usd else 0.0,
        most_spent=most_spent,
        failover_factor=mean_failover_usd / (mean_usd if single_usd is None else single_usd or math.nan),
        speakers=tuple((name, n / len(times)) for name, n in spoke.most_common() if name),
    )


HEAD: Final = (
    f"{'policy':<22}{'p50':>6}{'p95':>7}{'p99':>7}{'p99.9':>8}{'missed':>9}{'> 1 s':>8}{'calls':>7}{'cost':>7}"
    f"{'lost':>7}{'of cap':>8}{'failover':>10}  answered by"
)


def line_text(line: PolicyResult) -> str:
    """Return one line of the table, in ms, shares of the turns, calls, and multiples of the first model's cost."""
    who = " ".join(f"{round(100 * share)}% {name}" for name, share in line.speakers)
    quantiles = f"{line.p50_ms:>6.0f}{line.p95_ms:>7.0f}{line.p99_ms:>7.0f}{line.p999_ms:>8.0f}"
    shares = f"{line.missed:>9.2%}{line.over_1s:>8.2%}{line.calls_a_turn:>7.2f}"
    money = f"{line.cost_factor:>7.2f}{line.lost_share:>7.1%}{line.most_spent:>8.2f}{line.failover_factor:>10.3f}"
    return f"{line.policy:<22}{quantiles}{shares}{money}  {who}"


def write_csv(path: Path, lines: Sequence[PolicyResult]) -> None:
    """Write all lines."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(list(_cells(line)) for line in lines)


def _cells(line: PolicyResult) -> Iterator[object]:
    yield from (line.pool, line.policy, line.n)
    yield from (round(ms, 1) for ms in (line.p50_ms, line.p95_ms, line.p99_ms, line.p999_ms))
    yield from (round(line.missed, 5), round(line.over_1s, 5), round(line.calls_a_turn, 4))
    yield from (round(line.cost_factor, 4), round(1_000 * line.usd_per_turn, 5), round(line.lost_share, 4))
    yield from (round(line.most_spent, 4), round(line.failover_factor, 4))
    yield " ".join(f"{name}={share:.4f}" for name, share in line.speakers)
