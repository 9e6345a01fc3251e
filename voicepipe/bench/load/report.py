"""Report the load bench: the table, what each server carries, failures, a profile, and a CSV of the turns."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.bench.load.concurrent_users import LoadRun
from voicepipe.bench.load.profiled_server import Profile
from voicepipe.bench.load.rows import Row

HEAD: Final = (
    *("server", "sessions", "turns", "p50", "p95", "max", "added p50", "added p95", "turns with a gap"),
    *("CPU a session", "CPU to open", "memory before", "a session", "errors", "late p95"),
)

LOAD_ADDS_MS: Final = 100
"""A server carries a number of sessions if p95 is less than this above the median of one session, ..."""

GAP_SHARE: Final = 0.05
"""... fewer turns than this have a gap, and none failed."""

TOP: Final = 10

MAX_SHARE: Final = 0.95
"""A function in nearly all samples is the event loop's, and no cause."""


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each row. `added` is the time above the minimum."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{' --- |' * len(HEAD)}"
    for row in rows:
        yield f"| {' | '.join(_cells(row))} |"


def _cells(row: Row) -> Iterator[str]:
    yield from (row.server, str(row.users), str(row.turns))
    yield from (_number(ms) for ms in (row.p50_ms, row.p95_ms, row.max_ms))
    for ms in (row.p50_ms, row.p95_ms):
        yield _number(ms - row.minimum_ms if ms is not None and row.minimum_ms is not None else None)
    yield f"{100 * row.gap_share:.0f} %"
    yield _number(row.cpu_pct, 2, " %")
    yield _number(row.open_cpu_ms, 1, " ms")
    yield _number(row.rss_base_mib, 0, " MiB")
    yield _number(row.rss_session_mib, 2, " MiB")
    yield str(row.n_errors)
    yield f"{row.late_p95_ms:.0f}"


def _number(value: float | None, digits: int = 0, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def carried(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many sessions each server carries, of the numbers measured up to the first that is too many."""
    for server in dict.fromkeys(row.server for row in rows):
        own = sorted((row for row in rows if row.server == server), key=lambda row: row.users)
        alone_ms = own[0].p50_ms if own[0].users == 1 else None
        if alone_ms is None:
            continue
        most = 0
        for row in own:
            if not _is_carried(row, alone_ms):
                break
            most = row.users
        yield (
            f"{server} carries {most} sessions: p95 less than {LOAD_ADDS_MS} ms above one session's median, "
            f"gaps in fewer than {GAP_SHARE:.0%} of the turns, no errors"
        )


def _is_carried(row: Row, alone_ms: float) -> bool:
    p95 = row.p95_ms
    return p95 is not None and p95 - alone_ms < LOAD_ADDS_MS and row.gap_share < GAP_SHARE and row.n_errors == 0


def problems(loads: Iterable[LoadRun]) -> Iterator[str]:
    """Yield each kind of failure once with its number."""
    for load in loads:
        kinds = Counter([*load.errors, *(turn.error for turn in load.turns if turn.error)])
        for kind, number in kinds.most_common():
            yield f"{load.target}, {load.n_users} users: {number} x {kind}"


def latencies_ms(loads: Iterable[LoadRun]) -> list[int]:
    """Return the latencies of all turns with played audio."""
    return [ms for load in loads for turn in load.turns if (ms := turn.latency_ms) is not None]


def compared(loads: Sequence[LoadRun], first: str, second: str) -> Iterator[str]:
    """Yield how much lower the first server's latency is, by the medians of alternating rounds."""
    for n_users in dict.fromkeys(load.n_users for load in loads):
        medians = {
            name: [np.median(latencies_ms([load])) for load in loads if _is(load, name, n_users)]
            for name in (first, second)
        }
        gains = np.array(medians[second]) - np.array(medians[first])
        gains_text = ", ".join(f"{gain:.0f}" for gain in gains)
        earlier_ms = f"{np.median(gains):.0f} ms earlier than {second}"
        yield f"{first} answers {earlier_ms}, {n_users} users (rounds: {gains_text})"


def _is(load: LoadRun, name: str, n_users: int) -> bool:
    return (load.target, load.n_users) == (name, n_users)


def profile_lines(profile: Profile, title: str) -> Iterator[str]:
    """Yield the functions with the most CPU of the event loop's thread: their own, and with all that they call."""
    if not profile.n_samples:
        yield f"{title}: no samples"
        return
    yield f"{title}: {profile.n_samples} samples of the event loop's thread"
    packages: Counter[str] = Counter()
    for name, number in profile.own.items():
        packages[".".join(name.partition(":")[0].split(".")[:2])] += number
    parts = {name: number for name, number in profile.whole.items() if number < MAX_SHARE * profile.n_samples}
    for head, counts in (("package", packages), ("function", profile.own), ("with its calls", parts)):
        yield ""
        yield f"| {head} | share |"
        yield "| --- | --- |"
        for name, number in Counter(counts).most_common(TOP if counts is not parts else 3 * TOP):
            yield f"| {name} | {100 * number / profile.n_samples:.1f} % |"


def write_csv(path: Path, loads: Iterable[LoadRun]) -> None:
    """Write one line for each turn."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("server", "users", "round", "latency_ms", "sound_ms", "gaps", "longest_gap_ms", "error"))
        for number, load in enumerate(loads, start=1):
            for turn in load.turns:
                gaps = (len(turn.gaps_ms), max(turn.gaps_ms, default=0))
                figures = (turn.latency_ms, round(turn.sound_ms), *gaps, turn.error)
                lines.writerow((load.target, load.n_users, number, *figures))
