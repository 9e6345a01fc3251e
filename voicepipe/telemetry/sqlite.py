"""Turns' records in one SQLite file, for all processes of one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from voicepipe.errors import ConfigError
from voicepipe.telemetry.record_json import record_from_json, record_json
from voicepipe.telemetry.store import NEWEST, KeptTurn, StoreError, TurnPage, TurnQuery, cursor, read_cursor

T = TypeVar("T")

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE turns (
            project TEXT NOT NULL,
            id TEXT NOT NULL,
            started_at_ms INTEGER NOT NULL,
            session TEXT NOT NULL,
            agent TEXT NOT NULL,
            outcome TEXT,
            total_ms INTEGER,
            over INTEGER NOT NULL,
            record TEXT NOT NULL,
            PRIMARY KEY (project, id)
        )
        """,
        "CREATE INDEX turns_by_time ON turns (project, started_at_ms, id)",
        "CREATE INDEX turns_by_session ON turns (project, session, started_at_ms, id)",
        "CREATE INDEX turns_by_agent ON turns (project, agent, started_at_ms, id)",
        "CREATE INDEX turns_by_outcome ON turns (project, outcome, started_at_ms, id)",
        "CREATE INDEX turns_by_over ON turns (project, over, started_at_ms, id)",
        "CREATE INDEX turns_by_total ON turns (project, total_ms)",
    ),
)
"""Statements that lead from version `i` (the file's `user_version`) to `i + 1`. Append; never edit a released one."""

BUSY_MS: Final = 5_000
"""How long to wait for another process's transaction; ours take a few ms."""

_PAUSE_MS: Final = 10
_PAGE_MIN_BYTES: Final = 512  # the smallest page, hence the smallest database (SQLite, Database File Format, 1.3.2)

_KEEP = """
    INSERT INTO turns (project, id, started_at_ms, session, agent, outcome, total_ms, over, record)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (project, id) DO UPDATE SET
        session = excluded.session, agent = excluded.agent, outcome = excluded.outcome,
        total_ms = excluded.total_ms, over = excluded.over, record = excluded.record
"""
_SELECT = "SELECT record, project, agent, started_at_ms FROM turns"


class SqliteTurnStore:
    """A `TurnStore` in a file. WAL: readers and the writer don't wait for one another.

    One thread writes and one reads, each with its own connection. `synchronous=NORMAL`: what was
    kept survives the death of this process; a power failure may take the last transactions with it
    but leaves the file whole (SQLite, PRAGMA synchronous).
    """

    def __init__(self, writer: _Lane, reader: _Lane) -> None:
        self._writer, self._reader = writer, reader

    @classmethod
    async def open(cls, path: Path) -> SqliteTurnStore:
        """Open the file, made if missing (mode 0600), and bring it to this version.

        Raises:
            ConfigError: SQLite can't read the file, or a newer voicepipe made it. It stays as it is.
        """
        writer, reader = _Lane("turns-writer"), _Lane("turns-reader")
        try:
            await writer.open(path, _migrate)
            await reader.open(path, _only_read)
        except BaseException:
            writer.abandon()
            reader.abandon()
            raise
        return cls(writer, reader)

    async def keep(self, turns: Sequence[KeptTurn]) -> None:
        """Store these turns in one transaction."""

        def write(connection: sqlite3.Connection) -> None:
            rows = [_row(turn) for turn in turns]  # encoded here: in the thread, and before the lock is taken
            with _transaction(connection):
                connection.executemany(_KEEP, rows)

        await self._writer.run(write)

    async def get(self, id: str, project: str) -> KeptTurn | None:
        """The turn of that id, or None when this project has none."""

        def read(connection: sqlite3.Connection) -> KeptTurn | None:
            row = connection.execute(f"{_SELECT} WHERE project = ? AND id = ?", (project, id)).fetchone()
            return _turn(row) if row else None

        return await self._reader.run(read)

    async def list(self, project: str, query: TurnQuery = NEWEST) -> TurnPage:
        """The project's turns that match, newest first."""

        def read(connection: sqlite3.Connection) -> TurnPage:
            where, values = _where(project, query)
            order = "ORDER BY started_at_ms DESC, id DESC LIMIT ?"
            # One more than asked for: it tells whether there is a next page.
            rows = connection.execute(f"{_SELECT} WHERE {where} {order}", (*values, query.limit + 1)).fetchall()
            turns = tuple(_turn(row) for row in rows[: query.limit])
            return TurnPage(turns, cursor(turns[-1]) if len(rows) > query.limit else None)

        return await self._reader.run(read)

    async def close(self) -> None:
        """Close both connections; what `keep` began is finished first."""
        await self._reader.close()
        await self._writer.close()


class _Lane:
    """A thread and the one connection that it uses."""

    def __init__(self, name: str) -> None:
        # The executor's queue has no bound of its own: it holds one entry for each caller that waits
        # for an answer, so those callers (requests, and one sink) are its bound.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None

    async def open(self, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        def work() -> None:
            try:
                _make_or_recognise(path)
                self._connection = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)
                prepare(self._connection)
            except ConfigError as refusal:
                self._let_go()
                raise ConfigError(f"{path}: {refusal}") from None
            except (sqlite3.Error, OSError) as why:
                self._let_go()
                raise ConfigError(
                    f"{path}: expected a voicepipe database, but it can't be read: {why}. The file was left as it was; "
                    "move it away to start with an empty one, or try `sqlite3 FILE .recover`."
                ) from why

        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            try:
                return work(self._opened())
            except (sqlite3.Error, ValueError) as why:  # ValueError: a record that can't be written or read as JSON
                raise StoreError(f"turns: {why}") from why

        self._opened()  # once closed there is no thread to ask
        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    async def close(self) -> None:
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
        self.abandon()

    def abandon(self) -> None:
        """Let the thread go without waiting for it."""
        self._thread.shutdown(wait=False)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("the store is closed")
        return self._connection

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _make_or_recognise(path: Path) -> None:
    """Make the file, for its owner alone; refuse one that is too short to be SQLite's.

    SQLite takes a file of a few bytes for an empty database, and writes over it. A file that is
    there is not opened here: closing it would drop the locks that this process's other connections
    hold on it (SQLite, How To Corrupt An SQLite Database File, 2.2).
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if 0 < path.stat().st_size < _PAGE_MIN_BYTES:
        raise sqlite3.DatabaseError("file is not a database")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE to COMMIT: the write lock is taken at once, where waiting for it is allowed."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # also when COMMIT itself failed, on a full disk
            connection.execute("ROLLBACK")


def _migrate(connection: sqlite3.Connection) -> None:
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    with _transaction(connection):  # of two processes that start at once, the second finds the work done
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"this database has version {version}, made by a newer voicepipe; "
                f"this one knows versions up to {len(MIGRATIONS)}"
            )
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Of two that switch a new file at once SQLite refuses one, at once: it doesn't let them wait for one another."""
    pause = threading.Event()
    for _ in range(BUSY_MS // _PAUSE_MS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as why:
            if why.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            pause.wait(_PAUSE_MS / 1_000)
    raise sqlite3.OperationalError(f"another process held it for {BUSY_MS} ms")


def _only_read(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")


def _row(turn: KeptTurn) -> tuple[object, ...]:
    record = turn.record
    return (
        turn.project,
        record.id,
        turn.started_at_ms,
        record.session,
        turn.agent,
        record.outcome,
        record.total_ms,
        record.total_verdict == "over",
        record_json(record).decode(),
    )


def _turn(row: tuple[str, str, str, int]) -> KeptTurn:
    text, project, agent, started_at_ms = row
    return KeptTurn(record_from_json(text), project, agent, started_at_ms)


def _where(project: str, query: TurnQuery) -> tuple[str, list[object]]:
    conditions = ["project = ?"]
    values: list[object] = [project]
    wanted = {"session": query.session, "agent": query.agent, "outcome": query.outcome, "over": query.over}
    for column, value in wanted.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if query.before is not None:
        conditions.append("(started_at_ms, id) < (?, ?)")
        values.extend(read_cursor(query.before))
    return " AND ".join(conditions), values
