"""Store turns' records in one SQLite file, for all processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from voicepipe.errors import ConfigError
from voicepipe.storage import advice, kind_of
from voicepipe.telemetry.store.port import RecordRefused, StoreError
from voicepipe.telemetry.store.sql import SqlTurnStore
from voicepipe.telemetry.store.sqlite_file import BUSY_MS, make_or_recognise, migrate, only_read, transaction
from voicepipe.telemetry.store.statements import Execute, Fetch, Row, Work

T = TypeVar("T")

_REFUSED: Final = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE}


class SqliteTurnStore(SqlTurnStore):
    """A `TurnStore` in a file. WAL: readers and the writer don't wait for one another.

    One thread writes, one reads, and one sums up, each with its own connection. `synchronous=NORMAL`: stored turns
    survive a crash of this process. A power failure may lose the last transactions but leaves the file consistent
    (SQLite, PRAGMA synchronous).
    """

    @classmethod
    async def open(cls, path: Path) -> SqliteTurnStore:
        """Open the file, made if missing (mode 0600), and bring it to this version.

        Raises:
            ConfigError: SQLite can't read the file, or a newer voicepipe made it. The file is not changed then.
        """
        writer, reader, slow_reader = (
            _ConnectionThread("turns-writer"),
            _ConnectionThread("turns-reader"),
            _ConnectionThread("turns-slow-reader"),
        )
        try:
            await writer.open(path, migrate)
            await reader.open(path, only_read)
            await slow_reader.open(path, only_read)
        except BaseException:
            for thread in (writer, reader, slow_reader):
                thread.abandon()
            raise
        return cls(_File(writer, reader, slow_reader))


class _File:
    """The `Database` on a file."""

    def __init__(self, writer: _ConnectionThread, reader: _ConnectionThread, slow_reader: _ConnectionThread) -> None:
        self._writer, self._reader, self._slow_reader = writer, reader, slow_reader

    async def read(self, work: Work[T], *, slow: bool = False) -> T:
        thread = self._slow_reader if slow else self._reader
        return await thread.run(lambda connection: run_work(connection, work, "BEGIN"))

    async def write(self, work: Work[T]) -> T:
        return await self._writer.run(lambda connection: run_work(connection, work, "BEGIN IMMEDIATE"))

    async def used_bytes(self) -> int:
        def read(connection: sqlite3.Connection) -> int:
            pages, free, bytes_each = (
                int(connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
            return (pages - free) * bytes_each

        return await self._slow_reader.run(read)

    async def close(self) -> None:
        for thread in (self._slow_reader, self._reader, self._writer):
            await thread.close()


class _ConnectionThread:
    """A thread and the one connection that it uses."""

    def __init__(self, name: str) -> None:
        # The executor's queue has no bound of its own: it holds one entry for each coroutine that waits for an
        # answer, so those coroutines (requests, and one record writer) are its bound.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None

    async def open(self, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        def work() -> None:
            try:
                make_or_recognise(path)
                self._connection = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)
                prepare(self._connection)
            except ConfigError as refusal:
                self._disconnect()
                raise ConfigError(f"{path}: {refusal}") from None
            except (sqlite3.Error, OSError) as why:
                self._disconnect()
                otherwise = "move it away to start with an empty one, or try `sqlite3 FILE .recover`."
                raise ConfigError(
                    f"{path}: expected a voicepipe database, but it can't be read: {why}. The file was left as it was; "
                    f"{advice(kind_of(why), otherwise)}"
                ) from why

        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            try:
                return work(self._opened())
            except (sqlite3.Error, ArithmeticError, ValueError, zlib.error) as why:
                if _is_of_the_record(why):
                    raise RecordRefused(f"turns: {why}") from why
                raise StoreError(f"turns: {why}", kind_of(why)) from why

        self._opened()  # once closed there is no thread for the request
        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    async def close(self) -> None:
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self.abandon()

    def abandon(self) -> None:
        """Release the thread without waiting for it."""
        self._thread.shutdown(wait=False)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("the store is closed")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_of_the_record(why: Exception) -> bool:
    """Return whether a value can't be stored or read, independent of the disk."""
    return not isinstance(why, sqlite3.Error) or getattr(why, "sqlite_errorcode", 0) & 0xFF in _REFUSED


def run_work(connection: sqlite3.Connection, work: Work[T], begin: str) -> T:
    """Run work; its code before the first statement runs before the lock is taken."""
    try:
        step = next(work)
        with transaction(connection, begin):
            while True:
                try:
                    step = work.send(_execute(connection, step))
                except StopIteration as done:
                    result: T = done.value
                    break
    except StopIteration as done:
        result = done.value
    return result


def _execute(connection: sqlite3.Connection, step: Fetch | Execute) -> Sequence[Row]:
    if isinstance(step, Execute):
        connection.executemany(step.sql, step.rows)
        return ()
    return connection.execute(step.sql, tuple(step.values)).fetchall()
