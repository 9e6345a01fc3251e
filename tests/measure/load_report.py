"""Report the load bench as a table and as CSV."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tests.measure.load_run import Load

HEAD: Final = (
    *("server", "users", "turns", "p50", "p95", "p99", "max", "added p50", "added p95"),
    *("turns with a gap", "CPU a user", "RSS", "errors", "late p95"),
)


def table(loads: Sequence[Load], minimum_ms: int | None) -> Iterator[str]:
    """Yield a line for each server and number of users, runs of the same joined. Times are ms from the last voiced
    sample to the first audible one, at the client; `added` is the time above the minimum."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{' --- |' * len(HEAD)}"
    for target, n_users in dict.fromkeys((load.target, load.n_users) for load in loads):
        same = [load for load in loads if (load.target, load.n_users) == (target, n_users)]
        yield f"| {' | '.join((target, str(n_users), *_cells(same, minimum_ms)))} |"


def problems(loads: Iterable[Load]) -> Iterator[str]:
    """Yield each kind of failure once with its number."""
    for load in loads:
        kinds = Counter([*load.errors, *(turn.error for turn in load.turns if turn.error)])
        for kind, number in kinds.most_common():
            yield f"{load.target}, {load.n_users} users: {number} x {kind}"


def latencies_ms(loads: Iterable[Load]) -> list[int]:
    """Return the latencies of all turns with played audio."""
    return [ms for load in loads for turn in load.turns if (ms := turn.latency_ms) is not None]


def compared(loads: Sequence[Load], first: str, second: str) -> Iterator[str]:
    """Yield how much lower the first server's latency is, by the medians of alternating rounds."""
    for n_users in dict.fromkeys(load.n_users for load in loads):
        medians = {
            name: [np.median(latencies_ms([load])) for load in loads if _is(load, name, n_users)]
            for name in (first, second)
        }
        gains = np.array(medians[second]) - np.array(medians[first])
        gains_text = ", ".join(f"{gain:.0f}" for gain in gains)
        earlier_ms = f"{np.median(gains):.0f} ms earlier than {second}"
        yield f"{first} is heard {earlier_ms}, {n_users} users (rounds: {gains_text})"


def write_csv(path: Path, loads: Iterable[Load]) -> None:
    """Write one line for each turn."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("server", "users", "round", "latency_ms", "sound_ms", "gaps", "longest_gap_ms", "error"))
        for number, load in enumerate(loads, start=1):
            for turn in load.turns:
                gaps = (len(turn.gaps_ms), max(turn.gaps_ms, default=0))
                figures = (turn.latency_ms, round(turn.sound_ms), *gaps, turn.error)
                lines.writerow((load.target, load.n_users, number, *figures))


def _is(load: Load, name: str, n_users: int) -> bool:
    return (load.target, load.n_users) == (name, n_users)


def _cells(same: Sequence[Load], minimum_ms: int | None) -> Iterator[str]:
    turns = [turn for load in same for turn in load.turns]
    waited = latencies_ms(same)
    yield str(len(turns))
    for figure in (*np.percentile(waited, (50, 95, 99)), max(waited)) if waited else ():
        yield f"{figure:.0f}"
    yield from () if waited else ("-",) * 4
    for percent in (50, 95):
        yield f"{np.percentile(waited, percent) - minimum_ms:.0f}" if waited and minimum_ms is not None else "-"
    yield f"{100 * sum(bool(turn.gaps_ms) for turn in turns) / max(1, len(turns)):.0f} %"
    costs = [load.cost for load in same if load.cost]
    yield f"{np.mean([cost.cpu_pct for cost in costs]) / same[0].n_users:.2f} %" if costs else "-"
    yield f"{max(c.rss_before_mib for c in costs):.0f} -> {max(c.rss_mib for c in costs):.0f} MiB" if costs else "-"
    yield str(sum(len(load.errors) + sum(bool(turn.error) for turn in load.turns) for load in same))
    yield f"{max(load.late_p95_ms for load in same):.0f}"
