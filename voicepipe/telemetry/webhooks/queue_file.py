"""The queue of webhook deliveries in a SQLite file, of one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from voicepipe.clock import unix_ms
from voicepipe.errors import ConfigError
from voicepipe.storage import advice, kind_of
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.store.sqlite import run_work
from voicepipe.telemetry.store.sqlite_file import BUSY_MS, transaction
from voicepipe.telemetry.store.statements import Work

T = TypeVar("T")

FILE_NAME: Final = "webhooks.sqlite3"

MIGRATIONS: Final = (
    (
        """
        CREATE TABLE deliveries (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            webhook TEXT NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL,
            project TEXT NOT NULL,
            session TEXT NOT NULL,
            body BLOB NOT NULL,
            made_at_ms INTEGER NOT NULL,
            attempts INTEGER NOT NULL DEFAULT 0,
            due_ms INTEGER NOT NULL,
            why TEXT NOT NULL DEFAULT '',
            dead_at_ms INTEGER,
            UNIQUE (webhook, id)
        ) STRICT
        """,
        "CREATE INDEX sessions ON deliveries (session)",
        "CREATE INDEX waiting ON deliveries (webhook, due_ms) WHERE dead_at_ms IS NULL",
        "CREATE INDEX dead ON deliveries (webhook, dead_at_ms, number) WHERE dead_at_ms IS NOT NULL",
    ),
)
"""Entry n brings the file from version n to n + 1. Entries are never edited, only added."""


class QueueFile:
    """The `QueueDatabase` in a file. Several processes may share it.

    `synchronous=NORMAL` with a WAL: queued deliveries survive a crash of the process (SQLite, PRAGMA synchronous).
    """

    skip_locked = ""

    def __init__(self, thread: ThreadPoolExecutor, connection: sqlite3.Connection) -> None:
        self._thread, self._connection = thread, connection
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> QueueFile:
        """Open the file, made if missing with mode 0600.

        Raises:
            ConfigError: it is no such file, or a newer voicepipe made it.
        """
        # Its queue holds one entry for each coroutine that waits for an answer: as many as there are delivery workers.
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="webhooks")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _opened, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(thread, connection)

    @property
    def now_ms(self) -> str:
        """Return the instant of this machine's clock: no other machine has the file."""
        return str(unix_ms())

    async def write(self, work: Work[T]) -> T:
        def guarded() -> T:
            try:
                return run_work(self._connection, work, "BEGIN IMMEDIATE")
            except sqlite3.Error as why:
                raise StoreError(f"webhooks: {why}", kind_of(why)) from why

        if self._closed:
            raise StoreError("webhooks: the queue is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._thread.shutdown(wait=False)


def _opened(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with transaction(connection):
            _migrate(connection, path)
    except sqlite3.Error as broken:
        connection.close()
        otherwise = "It holds webhooks that were not delivered: move it away to start with none"
        raise ConfigError(f"{path}: {broken}. {advice(kind_of(broken), otherwise)}") from None
    except ConfigError:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise ConfigError(f"{path} has version {version}, made by a newer voicepipe; this one reads {len(MIGRATIONS)}")
    for statement in (each for statements in MIGRATIONS[version:] for each in statements):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
