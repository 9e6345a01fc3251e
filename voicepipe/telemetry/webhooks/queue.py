"""A queue of webhook deliveries in a SQLite file: queued deliveries survive a crash of the process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from voicepipe.errors import ConfigError
from voicepipe.storage import advice, kind_of
from voicepipe.telemetry.store.port import StoreError

T = TypeVar("T")

FILE_NAME: Final = "webhooks.sqlite3"

MOST_WAITING: Final = 10_000
"""The most deliveries that wait for one webhook: a day of a receiver that is down, at one turn in nine seconds."""

MOST_DEAD: Final = 10_000
"""Maximum of stored dead letters of one webhook."""

BUSY_MS: Final = 5_000

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

_COLUMNS = "number, webhook, id, kind, project, session, body, made_at_ms, attempts, why, dead_at_ms"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery: an event for one webhook."""

    number: int
    webhook: str
    id: str
    kind: str
    project: str
    session: str
    body: bytes = field(repr=False)
    made_at_ms: int
    attempts: int
    """Failed attempts."""

    why: str
    """The error of the latest attempt."""

    dead_at_ms: int | None
    """Time at which it was given up; None: it waits."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """An event to be sent to a webhook."""

    webhook: str
    id: str
    kind: str
    project: str
    session: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of pending deliveries and of dead letters of one webhook."""

    waiting: int = 0
    dead: int = 0


class WebhookQueue:
    """The file. Several processes may share it: a delivery taken by one of them is not due for the others.

    `synchronous=NORMAL` with a WAL: queued deliveries survive a crash of the process (SQLite, PRAGMA synchronous).
    Every method raises `StoreError` when the file can't be read or written.
    """

    def __init__(self, thread: ThreadPoolExecutor, connection: sqlite3.Connection, most: tuple[int, int]) -> None:
        self._thread, self._connection = thread, connection
        self._most_waiting, self._most_dead = most
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, most_waiting: int = MOST_WAITING, most_dead: int = MOST_DEAD) -> WebhookQueue:
        """Open the file, made if missing with mode 0600.

        Raises:
            ConfigError: it is no such file, or a newer voicepipe made it.
        """
        # Its queue holds one entry for each coroutine that waits for an answer: as many as there are couriers.
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="webhooks")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _opened, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(thread, connection, (most_waiting, most_dead))

    async def put(self, deliveries: Sequence[NewDelivery], *, now_ms: int) -> int:
        """Queue deliveries durably; return how many old ones were given up because the queue was full."""
        return await self._run(lambda file: self._put(file, deliveries, now_ms))

    async def take(self, webhook: str, *, now_ms: int, lease_ms: int) -> Delivery | None:
        """Return the delivery that is due longest, due again after `lease_ms` unless it is settled; None: none is
        due."""

        def work(file: sqlite3.Connection) -> Delivery | None:
            row = file.execute(
                "UPDATE deliveries SET due_ms = ?1 WHERE number = (SELECT number FROM deliveries"
                " WHERE webhook = ?2 AND dead_at_ms IS NULL AND due_ms <= ?3 ORDER BY due_ms, number LIMIT 1)"
                f" RETURNING {_COLUMNS}",
                (now_ms + lease_ms, webhook, now_ms),
            ).fetchone()
            return Delivery(*row) if row else None

        return await self._run(work)

    async def next_due_ms(self, webhook: str) -> int | None:
        """Return when the next delivery is due, in unix ms; None: nothing waits."""

        def work(file: sqlite3.Connection) -> int | None:
            (due_ms,) = file.execute(
                "SELECT min(due_ms) FROM deliveries WHERE webhook = ? AND dead_at_ms IS NULL", (webhook,)
            ).fetchone()
            return due_ms if due_ms is None else int(due_ms)

        return await self._run(work)

    async def delivered(self, number: int) -> None:
        """Delete a delivery that arrived."""
        await self._run(lambda file: file.execute("DELETE FROM deliveries WHERE number = ?", (number,)))

    async def failed(self, number: int, *, why: str, due_ms: int) -> None:
        """Count a failed attempt; the next one is made at `due_ms`."""
        await self._run(
            lambda file: file.execute(
                "UPDATE deliveries SET attempts = attempts + 1, why = ?, due_ms = ? WHERE number = ?",
                (why, due_ms, number),
            )
        )

    async def give_up(self, number: int, *, why: str, now_ms: int) -> None:
        """Give a delivery up after one more failed attempt."""

        def work(file: sqlite3.Connection) -> None:
            row = file.execute(
                "UPDATE deliveries SET attempts = attempts + 1, why = ?, dead_at_ms = ? WHERE number = ?"
                " RETURNING webhook",
                (why, now_ms, number),
            ).fetchone()
            if row is not None:  # else it was dropped for space and deleted meanwhile
                self._delete_dead(file, row[0])

        await self._run(work)

    async def backlog(self) -> dict[str, Backlog]:
        """Return how many wait and how many were given up, by webhook; a webhook with neither is left out."""

        def work(file: sqlite3.Connection) -> dict[str, Backlog]:
            rows = file.execute(
                "SELECT webhook, sum(dead_at_ms IS NULL), sum(dead_at_ms IS NOT NULL) FROM deliveries GROUP BY webhook"
            )
            return {webhook: Backlog(waiting, dead) for webhook, waiting, dead in rows}

        return await self._run(work)

    async def dead(self, webhooks: Sequence[str], *, limit: int, before: int | None = None) -> list[Delivery]:
        """Return the deliveries given up, newest first; older than the delivery of the number `before`."""
        marks = ", ".join("?" * len(webhooks))

        def work(file: sqlite3.Connection) -> list[Delivery]:
            rows = file.execute(
                f"SELECT {_COLUMNS} FROM deliveries WHERE dead_at_ms IS NOT NULL AND webhook IN ({marks})"
                " AND (? IS NULL OR number < ?) ORDER BY number DESC LIMIT ?",
                (*webhooks, before, before, limit),
            )
            return [Delivery(*row) for row in rows]

        return await self._run(work)

    async def revive(self, webhooks: Sequence[str], *, now_ms: int, id: str | None = None) -> int:
        """Queue deliveries given up again, from the first attempt on; return how many."""
        marks = ", ".join("?" * len(webhooks))
        return await self._run(
            lambda file: (
                file.execute(
                    "UPDATE deliveries SET dead_at_ms = NULL, attempts = 0, due_ms = ? WHERE dead_at_ms IS NOT NULL"
                    f" AND webhook IN ({marks}) AND (? IS NULL OR id = ?)",
                    (now_ms, *webhooks, id, id),
                ).rowcount
            )
        )

    async def delete_session(self, project: str, session: str) -> int:
        """Delete all deliveries about a session; return how many."""
        return await self._run(
            lambda file: (
                file.execute("DELETE FROM deliveries WHERE session = ? AND project = ?", (session, project)).rowcount
            )
        )

    async def close(self) -> None:
        """Close the file after running work; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            try:
                with _transaction(self._connection):
                    return work(self._connection)
            except sqlite3.Error as why:
                raise StoreError(f"webhooks: {why}", kind_of(why)) from why

        if self._closed:
            raise StoreError("webhooks: the queue is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    def _put(self, file: sqlite3.Connection, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
        file.executemany(
            "INSERT INTO deliveries (webhook, id, kind, project, session, body, made_at_ms, due_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (webhook, id) DO NOTHING",
            [(d.webhook, d.id, d.kind, d.project, d.session, d.body, now_ms, now_ms) for d in deliveries],
        )
        return sum(self._crowded_out(file, webhook, now_ms) for webhook in {d.webhook for d in deliveries})

    def _crowded_out(self, file: sqlite3.Connection, webhook: str, now_ms: int) -> int:
        """Give up the oldest deliveries above the limit: new ones matter more, and the old ones can be queued again."""
        n_gone = file.execute(
            "UPDATE deliveries SET dead_at_ms = ?1, why = 'the queue was full' WHERE number IN (SELECT number"
            " FROM deliveries WHERE webhook = ?2 AND dead_at_ms IS NULL ORDER BY number DESC LIMIT -1 OFFSET ?3)",
            (now_ms, webhook, self._most_waiting),
        ).rowcount
        if n_gone:
            self._delete_dead(file, webhook)
        return n_gone

    def _delete_dead(self, file: sqlite3.Connection, webhook: str) -> None:
        file.execute(
            "DELETE FROM deliveries WHERE number IN (SELECT number FROM deliveries WHERE webhook = ?"
            " AND dead_at_ms IS NOT NULL ORDER BY dead_at_ms DESC, number DESC LIMIT -1 OFFSET ?)",
            (webhook, self._most_dead),
        )


def _opened(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        with _transaction(connection):
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
        raise ConfigError(f"{path} has version {version}, made by a newer voicepipe; this one knows {len(MIGRATIONS)}")
    for statement in (each for statements in MIGRATIONS[version:] for each in statements):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
