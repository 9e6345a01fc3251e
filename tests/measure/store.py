"""Measure a store of turns with a month of sessions: `python -m tests.measure.store --turns 1000000`.

With `--days 2` the turns are those of two days: a busy machine's, whose hours have thousands of turns.

Fills a store with generated turns in batches as the record writer writes them, aggregates them as the server does,
and sends it the dashboard's queries: write rate, size on disk, and the median and 95th percentile of
each query. Beside the rates and the medians stands the CPU time of this process, which other work on the machine moves
least. `--postgres URL` uses a Postgres whose schema `voicepipe` is empty, and leaves the turns there; its own CPU time
is not counted. Otherwise it is SQLite in a folder that is deleted.

A million turns take longer than a machine can be kept quiet for. `--folder FOLDER` keeps the SQLite file, so that the
run can be done in two: with `--write-only` the turns are written, and the next run with that folder sums them up and
sends the queries.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import structs

from tests.measure.store_turns import MONTH_MS, PROJECT, made_up
from voicepipe import clock
from voicepipe.bench.report_cells import markdown, quantiles
from voicepipe.errors import VoicepipeError
from voicepipe.telemetry.store.port import MINUTE_MS, SessionQuery, StatsQuery, StoredTurn, TurnQuery, TurnStore
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace

BATCH: Final = 500
"""Turns in one transaction: ten times those of a very busy machine's record writer in a quarter of a second."""

HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
SHOW_EVERY_MS: Final = 5_000

RANGES: Final = (
    ("1 min", MINUTE_MS, MINUTE_MS),
    ("15 min", 15 * MINUTE_MS, MINUTE_MS),
    ("1 h", HOUR_MS, MINUTE_MS),
    ("24 h", DAY_MS, 15 * MINUTE_MS),
    ("7 d", 7 * DAY_MS, 6 * HOUR_MS),
    ("30 d", MONTH_MS, DAY_MS),
)

"""A dashboard range: its name, its length, and the step of its series."""

Question = tuple[str, Callable[[TurnStore], Awaitable[object]]]


@dataclass(slots=True)
class Spent:
    """Time that was spent on all turns."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of this process, with its threads."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Add the time of the block."""
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self.wall_s += time.monotonic() - began_s
            self.cpu_s += time.process_time() - began_cpu_s

    def text(self, n_turns: int, done: str) -> str:
        """Return the rate, and the CPU time of a turn."""
        return (
            f"{n_turns / max(1e-3, self.wall_s):.0f} {done} a second ({1e6 * self.cpu_s / n_turns:.0f} us of CPU each)"
        )


def main(arguments: list[str] | None = None) -> int:
    """Print the table, and progress on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.store", description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000, help="how many to write (100000)")
    parser.add_argument("--days", type=int, default=30, help="over how many days they are spread (30)")
    parser.add_argument("--repeats", type=int, default=30, help="how often each question is asked (30)")
    parser.add_argument("--postgres", metavar="URL", help="a database without turns; SQLite without it")
    parser.add_argument(
        "--folder", type=Path, help="keep the SQLite file here; its turns, if any, are not written again"
    )
    parser.add_argument("--write-only", action="store_true", help="end when the turns are written, with --folder")
    options = parser.parse_args(arguments)
    if (options.write_only and options.folder is None) or (options.postgres and options.folder):
        parser.error("expected --folder with --write-only, and not with --postgres")
    try:
        lines = asyncio.run(
            written(options.folder, options.turns, days=options.days)
            if options.write_only
            else measured(
                options.turns,
                days=options.days,
                repeats=options.repeats,
                postgres=options.postgres,
                folder=options.folder,
            )
        )
    except VoicepipeError as why:
        _say(f"store: {why}")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


async def written(folder: Path, n_turns: int, *, days: int = 30) -> list[str]:
    """Fill the store of a folder; return the line that says how fast.

    Raises:
        VoicepipeError: the store cannot be opened, has turns already, or fails.
    """
    async with _opened(None, folder) as store:
        if await _newest_ms(store) is not None:
            raise VoicepipeError("expected a folder without turns")
        wrote = await _fill(store, n_turns, clock.unix_ms(), days)
    return [f"{n_turns} turns: {wrote.text(n_turns, 'written')}"]


async def measured(
    n_turns: int, *, repeats: int, days: int = 30, postgres: str | None = None, folder: Path | None = None
) -> list[str]:
    """Fill a store, query it, and return the report line by line. The turns of a folder's store are not written again.

    Raises:
        VoicepipeError: the store cannot be opened, has turns already that no folder keeps, or fails.
    """
    async with _opened(postgres, folder) as store:
        newest_ms, wrote = await _newest_ms(store), None
        if newest_ms is not None and folder is None:
            raise VoicepipeError("expected a database without turns")
        until_ms = clock.unix_ms() if newest_ms is None else newest_ms + 1
        if newest_ms is None:
            wrote = await _fill(store, n_turns, until_ms, days)
        summed_up = await _maintain(store, until_ms)
        size_bytes = await store.size_bytes()
        rows = [await _timed(store, name, query_store, repeats) for name, query_store in questions(until_ms)]
    rates = [*([] if wrote is None else [wrote.text(n_turns, "written")]), summed_up.text(n_turns, "summed up")]
    return [
        f"{n_turns} turns: {', '.join(rates)}, {size_bytes / 1e6:.0f} MB, {size_bytes / n_turns:.0f} bytes a turn",
        "",
        *markdown(("question", "p50 ms", "p95 ms", "CPU p50 ms"), rows),
    ]


async def _newest_ms(store: TurnStore) -> int | None:
    """Return when the newest turn began."""
    page = await store.list(None, TurnQuery(limit=1))
    return page.turns[0].started_at_ms if page.turns else None


def questions(until_ms: int) -> Iterator[Question]:
    """Yield the dashboard's queries, by name."""
    for name, long_ms, step_ms in RANGES:
        query = StatsQuery(since_ms=until_ms - long_ms, until_ms=until_ms, step_ms=step_ms)
        yield f"figures, {name}", _stats(query)
        yield f"figures, {name}, by model", _stats(replace(query, by="model"))
        yield f"figures, {name}, one agent", _stats(replace(query, agent="sales"))
        late = replace(query, agent="sales", over=True, by="model")
        yield f"figures, {name}, one agent's late turns by model", _stats(late)
        worst = TurnQuery(order="slowest", since_ms=query.since_ms, until_ms=until_ms)
        yield f"worst turns, {name}", _list(worst)
    yield "newest turns", _list(TurnQuery())
    yield "worst turns of all", _list(TurnQuery(order="slowest"))
    for turn_query in (
        TurnQuery(agent="sales"),
        TurnQuery(route="careful"),
        TurnQuery(provider="groq"),
        TurnQuery(model="openai/gpt-5-mini"),
        TurnQuery(language="fr"),
        TurnQuery(outcome="failed"),
        TurnQuery(arm=Arm("summer", "fast")),
        TurnQuery(over=True),
        TurnQuery(user="user-77"),
        TurnQuery(text="00077"),
        TurnQuery(model="nobody/nothing"),
        TurnQuery(words="charged twice"),
        TurnQuery(words="nobody says this"),
        TurnQuery(agent="sales", outcome="failed", over=False),
    ):
        named = structs.asdict(turn_query)
        said = " ".join(f"{name}={value}" for name, value in named.items() if value not in (None, 50, "newest"))
        yield f"turns with {said}", _list(turn_query)
    session = "sess_" + "0" * 20
    yield "one session's turns", _list(TurnQuery(session=session))
    yield "one session's figures", _stats(StatsQuery(session=session))
    yield "one user's figures", _stats(StatsQuery(user="user-77"))
    yield "one turn", lambda store: store.get("turn_" + "0" * 20, PROJECT)
    yield "newest sessions", lambda store: store.sessions(PROJECT)
    yield "sessions with 00077 in the id", lambda store: store.sessions(PROJECT, SessionQuery(text="00077"))


def _stats(query: StatsQuery) -> Callable[[TurnStore], Awaitable[object]]:
    return lambda store: store.stats(PROJECT, query)


def _list(query: TurnQuery) -> Callable[[TurnStore], Awaitable[object]]:
    return lambda store: store.list(PROJECT, query)


@asynccontextmanager
async def _opened(postgres: str | None, folder: Path | None) -> AsyncIterator[TurnStore]:
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="vp-store-") as place:
        path = Path(place, "turns.sqlite3")
        store = await (PostgresTurnStore.open(postgres) if postgres else SqliteTurnStore.open(path))
        try:
            yield store
        finally:
            await store.close()


async def _fill(store: TurnStore, n_turns: int, until_ms: int, days: int) -> Spent:
    """Fill the store; return the time of its writes, without the generation of turns."""
    turns = made_up(n_turns, until_ms=until_ms, over_ms=days * DAY_MS)
    done, spent, reported_at_ms = 0, Spent(), 0
    while batch := await asyncio.to_thread(lambda: list[StoredTurn](islice(turns, BATCH))):
        with spent.counting():
            await store.store(batch)
        done += len(batch)
        if (now_ms := clock.monotonic_ms()) - reported_at_ms >= SHOW_EVERY_MS:
            reported_at_ms = now_ms
            _say(f"{done} of {n_turns} turns written, {spent.text(done, 'written')}")
    return spent


async def _maintain(store: TurnStore, until_ms: int) -> Spent:
    spent, n_pieces, reported_at_ms = Spent(), 0, clock.monotonic_ms()
    with spent.counting():
        while await store.maintain_step(until_ms):
            n_pieces += 1
            if clock.monotonic_ms() - reported_at_ms >= SHOW_EVERY_MS:
                reported_at_ms = clock.monotonic_ms()
                _say(f"{n_pieces} buckets summed up")
    return spent


async def _timed(
    store: TurnStore, name: str, query_store: Callable[[TurnStore], Awaitable[object]], repeats: int
) -> list[str]:
    _say(name)
    took = []
    for _ in range(repeats):
        took.append(spent := Spent())
        with spent.counting():
            await query_store(store)
    p50_ms, p95_ms, _ = quantiles([1_000 * each.wall_s for each in took])
    cpu_p50_ms, *_ = quantiles([1_000 * each.cpu_s for each in took])
    return [name, f"{p50_ms:.1f}", f"{p95_ms:.1f}", f"{cpu_p50_ms:.1f}"]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
