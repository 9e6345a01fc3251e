"""The store in a file: the port's promises, and those of a file."""

from __future__ import annotations

import _sqlite3
import asyncio
import ctypes
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final, cast

import pytest

from tests.telemetry.version_2 import BACK_TO_VERSION_2, record_of_version_2
from voicepipe.errors import ConfigError
from voicepipe.telemetry.record_json import record_json
from voicepipe.telemetry.rollups.query import stats
from voicepipe.telemetry.store import feedback, sqlite_file, turns
from voicepipe.telemetry.store.port import Cursor, StatsQuery, StoreError, TurnOrder, TurnQuery
from voicepipe.telemetry.store.schema import VERSION
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.telemetry.store.statements import Fetch, Work
from voicepipe.testing.conformance import turn_stats
from voicepipe.testing.conformance.turn_store import CHECKS, OpenStore, stored_turn
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace


@pytest.mark.parametrize("check", [*CHECKS, *turn_stats.CHECKS], ids=lambda check: check.__name__)
async def test_conformance(check: Callable[[OpenStore], Awaitable[None]], tmp_path: Path) -> None:
    """The port's promises."""
    await check(lambda: SqliteTurnStore.open(tmp_path / "turns.db"))


async def test_stored_turns_are_there_after_reopening(tmp_path: Path) -> None:
    """A restart forgets nothing, and migrates nothing twice."""
    for number in range(3):
        store = await SqliteTurnStore.open(tmp_path / "turns.db")
        await store.store([stored_turn(f"t{number}", number)])
        assert len((await store.list("p")).turns) == number + 1
        await store.close()


async def test_one_page_looks_for_words_in_so_many_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without a find goes on where it stopped, so no request reads a month of records."""
    monkeypatch.setattr(turns, "MAX_LIMIT", 2)
    monkeypatch.setattr(turns, "MAX_SEARCHED", 4)
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    await store.store([stored_turn(f"t{n}", n, user_text="a garden" if n < 2 else "a house") for n in range(10)])
    found, query = [], TurnQuery(words="garden")
    while True:
        page = await store.list("p", query)
        found.append([turn.record.id for turn in page.turns])
        if page.next is None:
            break
        query = replace(query, before=page.next)
    await store.close()
    assert found == [[], [], ["t1", "t0"]]


async def test_so_many_turns_of_all_projects_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones, with their scores and no others'."""
    monkeypatch.setattr(feedback, "MAX_TURNS", 3)
    monkeypatch.setattr(feedback, "_AT_ONCE", 2)
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    for project, times in (("p", (10, 40)), ("q", (20, 30, 50)), ("r", (5, 35))):
        await store.store([replace(stored_turn(f"t{ms}", ms, project=project), arm=Arm("e", str(ms))) for ms in times])
        for ms in times:
            await store.store_feedback(f"t{ms}", project, "user", ms / 100, 1)
    found = await store.by_arm(None, TurnQuery())
    assert [(turn.arm.pool, dict(turn.scores)) for turn in found] == [
        ("50", {"user": 0.5}),
        ("40", {"user": 0.4}),
        ("35", {"user": 0.35}),
    ]
    assert [turn.arm for turn in await store.by_arm("q", TurnQuery(until_ms=50))] == [Arm("e", "30"), Arm("e", "20")]
    await store.close()


def test_scores_are_read_of_the_selected_turns_alone() -> None:
    """Each statement names its turns."""
    work = feedback.by_arm("p", TurnQuery())
    assert "LIMIT" in cast(Fetch, next(work)).sql
    scores = work.send([(2, "b", 7, "e/x", 500, 0.0, "completed"), (1, "a", 4, "e/x", 500, 0.0, "failed")])
    assert list(cast(Fetch, scores).values) == [7, 4]
    with pytest.raises(StopIteration) as ended:
        work.send([(4, "user", 1.0)])
    assert [(turn.failed, dict(turn.scores)) for turn in ended.value.value] == [(False, {}), (True, {"user": 1.0})]


def memory_of_sqlite() -> int:
    """Bytes that all connections of this process hold, their pages above all (SQLite, sqlite3_memory_used)."""
    memory_used = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    memory_used.restype = ctypes.c_int64
    return int(memory_used())


async def test_the_page_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They grow with the file, by some 2 kB a turn, up to their bound, however much is written after that."""
    monkeypatch.setattr(sqlite_file, "_CACHE_KB", 256)
    before = memory_of_sqlite()
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    for batch in range(20):
        await store.store([stored_turn(f"t{n}", n) for n in range(batch * 100, (batch + 1) * 100)])
    taken, written = memory_of_sqlite() - before, sum(entry.stat().st_size for entry in os.scandir(tmp_path))
    await store.close()
    assert written > 8 * 256 * 1_024
    assert 128 * 1_024 < taken < 1_024 * 1_024  # the bound, and what else three connections take
    assert memory_of_sqlite() - before < 64 * 1_024


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """The database and what SQLite puts beside it have mode 0600."""
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    await store.store([stored_turn("a")])
    modes = {stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path)}
    await store.close()
    assert modes == {0o600}


async def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    """Many open a file that isn't there yet: one makes the tables, all can write."""
    stores = await asyncio.gather(*(SqliteTurnStore.open(tmp_path / "turns.db") for _ in range(8)))
    await asyncio.gather(*(store.store([stored_turn(f"t{i}", i)]) for i, store in enumerate(stores)))
    assert len((await stores[0].list("p")).turns) == 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The refusal names both versions."""
    path = tmp_path / "turns.db"
    await (await SqliteTurnStore.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=rf"turns\.db: .*version 99.*up to {VERSION}"):
        await SqliteTurnStore.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["not a database at all, but long enough to be taken for one" * 20, "x"])
async def test_a_damaged_file_is_refused_and_left_alone(damage: str, tmp_path: Path) -> None:
    """The error names the file that SQLite can't read, and the file stays for an operator who wants to save it."""
    path = tmp_path / "turns.db"
    path.write_text(damage)
    with pytest.raises(ConfigError, match=r"turns\.db: expected a voicepipe database, .*left as it was"):
        await SqliteTurnStore.open(path)
    assert path.read_text() == damage


async def test_a_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """The settings are wrong; the refusal names the path."""
    with pytest.raises(ConfigError, match=r"gone.turns\.db"):
        await SqliteTurnStore.open(tmp_path / "gone" / "turns.db")


async def test_damage_found_later_is_an_error_of_the_call(tmp_path: Path) -> None:
    """A record that doesn't read fails the call that wanted it, not the store."""
    path = tmp_path / "turns.db"
    store = await SqliteTurnStore.open(path)
    await store.store([stored_turn("bad"), stored_turn("good")])
    with sqlite3.connect(path) as connection:
        of_bad = "number = (SELECT number FROM turns WHERE id = 'bad')"
        connection.execute(f"UPDATE records SET record = x'00' WHERE {of_bad}")
    connection.close()
    with pytest.raises(StoreError, match="turns: "):
        await store.get("bad", "p")
    assert await store.get("good", "p") == stored_turn("good")
    assert (await store.stats("p")).turns == 1
    while await store.maintain_step(2**50):
        pass
    assert (await store.stats("p")).turns == 1
    await store.close()


async def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """All or none: after the failure the store takes the next batch."""
    path = tmp_path / "turns.db"
    store = await SqliteTurnStore.open(path)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER fail BEFORE INSERT ON turns WHEN NEW.id = 'bad' BEGIN SELECT RAISE(FAIL, 'disk'); END"
        )
    connection.close()
    with pytest.raises(StoreError, match="disk"):
        await store.store([stored_turn("a"), stored_turn("bad")])
    assert await store.get("a", "p") is None
    await store.store([stored_turn("b")])
    assert [turn.record.id for turn in (await store.list("p")).turns] == ["b"]
    await store.close()


INDEXED: Final = (
    TurnQuery(),
    TurnQuery(session="s"),
    TurnQuery(agent="a"),
    TurnQuery(outcome="failed"),
    TurnQuery(over=True),
    TurnQuery(user="u"),
    TurnQuery(arm=Arm("x", "a")),
    TurnQuery(order="slowest"),
    TurnQuery(agent="a", since_ms=5, until_ms=9, before=Cursor(7, "x")),
)


@pytest.mark.parametrize("query", INDEXED, ids=str)
async def test_every_list_finds_its_turns_by_an_index(query: TurnQuery, tmp_path: Path) -> None:
    """A page of a large store reads a page, not the store, and sorts no more than that."""
    await (await SqliteTurnStore.open(tmp_path / "turns.db")).close()
    step = next(turns.page("p", query))
    assert isinstance(step, Fetch)
    connection = sqlite3.connect(tmp_path / "turns.db")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {step.sql}", tuple(step.values))]
    connection.close()
    assert any("INDEX turns_by_" in line for line in plan), plan
    assert not any(line.startswith("SCAN") for line in plan), plan
    assert sum("B-TREE" in line for line in plan) == 1, plan  # of the page alone


async def test_the_slowest_of_a_long_time_are_found_by_their_latency(tmp_path: Path) -> None:
    """Not by going through all of that time."""
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    await store.store([stored_turn("a", 5)])
    work = turns.page("p", TurnQuery(order="slowest", since_ms=1, until_ms=9))
    count = next(work)
    assert isinstance(count, Fetch)
    assert "count(*)" in count.sql
    step = work.send([(10**6,)])
    assert isinstance(step, Fetch)
    connection = sqlite3.connect(tmp_path / "turns.db")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {step.sql}", tuple(step.values))]
    connection.close()
    await store.close()
    assert any("INDEX turns_by_total" in line for line in plan), plan
    assert not any("INDEX turns_by_time" in line for line in plan), plan


@pytest.mark.parametrize("order", [None, "newest", "slowest"])
async def test_turns_of_sessions_with_a_part_of_an_id_are_found_by_session(
    order: TurnOrder | None, tmp_path: Path
) -> None:
    """Not by going through all turns of the month that is shown."""
    await (await SqliteTurnStore.open(tmp_path / "turns.db")).close()
    if order is None:
        work: Work[object] = stats("p", StatsQuery(text="00077", since_ms=1, until_ms=9, step_ms=60_000))
    else:
        work = turns.page("p", TurnQuery(text="00077", since_ms=1, until_ms=9, order=order))
    step = next(work)
    assert isinstance(step, Fetch)
    while "LIMIT" not in step.sql or "FROM turns" not in step.sql:
        step = work.send([("sess_1",), ("sess_2",)] if "FROM sessions" in step.sql else [(10**6,)])
        assert isinstance(step, Fetch)
    connection = sqlite3.connect(tmp_path / "turns.db")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {step.sql}", tuple(step.values))]
    connection.close()
    assert any("INDEX turns_by_session" in line for line in plan), plan
    others = ("INDEX turns_by_time", "INDEX turns_by_outcome", "INDEX turns_by_total")
    assert not any(other in line for other in others for line in plan), plan


VERSION_1: Final = """
    CREATE TABLE turns (
        project TEXT NOT NULL, id TEXT NOT NULL, started_at_ms INTEGER NOT NULL, session TEXT NOT NULL,
        agent TEXT NOT NULL, outcome TEXT, total_ms INTEGER, over INTEGER NOT NULL, record TEXT NOT NULL,
        PRIMARY KEY (project, id)
    );
    CREATE INDEX turns_by_time ON turns (project, started_at_ms, id);
    CREATE INDEX turns_by_session ON turns (project, session, started_at_ms, id);
    CREATE INDEX turns_by_agent ON turns (project, agent, started_at_ms, id);
    CREATE INDEX turns_by_outcome ON turns (project, outcome, started_at_ms, id);
    CREATE INDEX turns_by_over ON turns (project, over, started_at_ms, id);
    CREATE INDEX turns_by_total ON turns (project, total_ms);
    PRAGMA user_version = 1;
"""
"""The tables as released before there were figures."""


async def test_a_file_of_the_first_version_keeps_its_turns(tmp_path: Path) -> None:
    """All turns stay, are found by every field of their records, and are counted."""
    path = tmp_path / "turns.db"
    turns = [
        stored_turn("a", 5_000, project="p", agent="sales"),
        stored_turn("b", 65_000, project="p", total_verdict="over", providers=(("llm", "groq/x"),)),
        stored_turn("c", 70_000, project="q", outcome="failed", total_ms=None, total_verdict=None, session="other"),
    ]
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    for turn in turns:
        of = turn.record
        row = (turn.project, of.id, turn.started_at_ms, of.session, turn.agent, of.outcome, of.total_ms)
        values = (*row, of.total_verdict == "over", record_json(of, "default").decode())
        connection.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    connection.commit()
    connection.close()
    store = await SqliteTurnStore.open(path)
    assert [await store.get(turn.record.id, turn.project) for turn in turns] == turns
    assert (await store.list("p", TurnQuery(provider="groq", over=True))).turns == (turns[1],)
    assert [session.session for session in (await store.sessions("q")).sessions] == ["other"]
    assert (await store.stats("p")).turns == 2
    while await store.maintain_step(2**50):
        pass
    assert (await store.stats(None)).outcomes == {"completed": 2, "failed": 1}
    await store.close()
    await (await SqliteTurnStore.open(path)).close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from voicepipe.telemetry.rollups.retention import Retention, maintain
from voicepipe.telemetry.record_writer import RecordWriterOptions, RecordWriter
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.conformance.turn_store import stored_turn

class ReportingStore:
    "Says on stdout how far the store has come: what is said was kept."
    def __init__(self, turns): self.turns, self.stored = turns, asyncio.Event()
    async def store(self, turns):
        await self.turns.store(turns)
        print(max(turn.started_at_ms for turn in turns), flush=True)
        self.stored.set()

async def main():
    reporting = ReportingStore(await SqliteTurnStore.open(Path(sys.argv[1])))
    often = Retention(keep_days=36_500, max_bytes=10**12, maintain_every_ms=1, trim_every_ms=1, pause_ms=1)
    async with RecordWriter(reporting, RecordWriterOptions(flush_ms=5)) as record_writer, asyncio.TaskGroup() as group:
        group.create_task(maintain(reporting.turns, often))
        number = 0
        while True:
            for number in range(number + 1, number + 21):
                record_writer.offer(stored_turn(f"t{number}", number))
            await reporting.stored.wait()
            reporting.stored.clear()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_killed_writer_loses_no_batch_that_was_written(tmp_path: Path) -> None:
    """After kill -9 in mid-work, figures being summed up too, the file opens, whole up to the last batch."""
    path = tmp_path / "turns.db"
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    async with asyncio.timeout(WAIT_S):
        stored_numbers = [int(await writer.stdout.readline()) for _ in range(5)]
        writer.send_signal(signal.SIGKILL)
        rest = await writer.stdout.read()
        assert await writer.wait() == -signal.SIGKILL
    stored_numbers += [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    store = await SqliteTurnStore.open(path)
    (newest,) = (await store.list("p", TurnQuery(limit=1))).turns
    assert newest.started_at_ms >= max(stored_numbers)
    assert await store.get("t1", "p") is not None
    await store.store([stored_turn("after", 2**45)])
    while await store.maintain_step(2**50):
        pass
    assert (await store.stats("p")).turns == newest.started_at_ms + 1
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (count,) = connection.execute("SELECT count(*) FROM turns WHERE id != 'after'").fetchone()
    connection.close()
    assert count == newest.started_at_ms  # nothing in the middle is missing either


class HeldFile:
    """A connection to a file that another process holds: each try waits for SQLite's busy timeout."""

    def __init__(self) -> None:
        self.n_tries, self.now_ms = 0, 0

    def execute(self, statement: str) -> None:
        self.n_tries += 1
        self.now_ms += sqlite_file.BUSY_MS
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise busy


def test_a_file_that_another_process_holds_is_given_up_after_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try waits by itself: hundreds of them would keep the start waiting for most of an hour."""
    file = HeldFile()
    monkeypatch.setattr(sqlite_file, "monotonic_ms", lambda: file.now_ms)
    with pytest.raises(sqlite3.OperationalError, match=f"held it for {sqlite_file.BUSY_MS} ms"):
        sqlite_file._use_wal(cast(sqlite3.Connection, file))
    assert file.n_tries == 1


async def test_a_file_of_version_3_is_upgraded(tmp_path: Path) -> None:
    """Its sessions have no summaries yet."""
    path = tmp_path / "turns.db"
    store = await SqliteTurnStore.open(path)
    await store.store([stored_turn("a", session="s1")])
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        file.executescript("DROP TABLE feedback; ALTER TABLE sessions DROP COLUMN summary; PRAGMA user_version = 3")
    store = await SqliteTurnStore.open(path)
    assert await store.summary("p", "s1") == ""
    assert await store.store_summary("p", "s1", "They called.")
    await store.close()


async def test_a_file_of_version_4_is_upgraded(tmp_path: Path) -> None:
    """Its turns have no feedback yet."""
    path = tmp_path / "turns.db"
    store = await SqliteTurnStore.open(path)
    await store.store([stored_turn("a")])
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        file.executescript("DROP TABLE feedback; PRAGMA user_version = 4")
    store = await SqliteTurnStore.open(path)
    assert await store.store_feedback("a", "p", "user", 1.0, 5)
    await store.close()


async def test_a_file_of_version_2_is_upgraded(tmp_path: Path) -> None:
    """Its columns and tables, and the fields of its records; opening it twice changes nothing more."""
    path, turn = tmp_path / "turns.db", stored_turn("a", 5)
    store = await SqliteTurnStore.open(path)
    await store.store([turn])
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        file.executescript(f"{BACK_TO_VERSION_2}; PRAGMA user_version = 2")
        ((data,),) = file.execute("SELECT record FROM records").fetchall()
        file.execute("UPDATE records SET record = ?", (record_of_version_2(data),))
        file.commit()
    for _ in range(2):
        store = await SqliteTurnStore.open(path)
        assert await store.get("a", "p") == turn
        assert (await store.stats("p")).measured == 1
        await store.close()
