"""The cluster's tables in SQLite, and every statement on them. Blocking: used from one worker thread."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import CountResult
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.errors import ConfigError, StoreUnavailable
from voicepipe.storage import advice, kind_of

BUSY_TIMEOUT_MS: Final = 2_000
"""How long one process waits at its start while another writes. A transaction here takes a few milliseconds."""

MIGRATIONS: Final = (
    (
        """
        CREATE TABLE revoked (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL CHECK (kind IN ('token', 'subject')),
            project TEXT NOT NULL,
            name TEXT NOT NULL,
            issued_until_s INTEGER NOT NULL,
            until_s INTEGER NOT NULL,
            UNIQUE (project, kind, name)
        ) STRICT
        """,
        "CREATE INDEX revoked_until ON revoked (until_s)",
        """
        CREATE TABLE configs (
            id TEXT PRIMARY KEY, project TEXT NOT NULL, session BLOB NOT NULL, until_s INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX configs_until ON configs (until_s)",
        "CREATE TABLE counts (name TEXT PRIMARY KEY, total INTEGER NOT NULL, until_s INTEGER NOT NULL) STRICT",
        "CREATE INDEX counts_until ON counts (until_s)",
        """
        CREATE TABLE slots (
            pool TEXT NOT NULL, holder TEXT NOT NULL, owner TEXT NOT NULL, until_s INTEGER NOT NULL,
            PRIMARY KEY (pool, holder)
        ) STRICT
        """,
        "CREATE INDEX slots_until ON slots (until_s)",
        "CREATE INDEX slots_owner ON slots (owner)",
        "CREATE INDEX slots_holder ON slots (holder)",
    ),
)
"""Statements of entry n bring the file from version n to n + 1. Entries are never edited, only added."""


class Tables:
    """One connection. Each method is one transaction; a write first deletes the expired rows of its table.

    Every method raises `StoreUnavailable` when the file can't be read or written; nothing was changed then. After
    damage or an I/O error the next request opens the file anew: it may have been repaired, or moved away.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, mode 0600, in WAL mode, every commit synced: single use survives a power cut.

        Raises:
            ConfigError: the file is not such a database, or a newer voicepipe made it.
        """
        self._path = path
        try:
            self._connection: sqlite3.Connection | None = self._open()
        except (sqlite3.Error, OSError) as broken:
            otherwise = "It holds only the shared state of running sessions: move it away to go on"
            raise ConfigError(f"{path}: {broken}. {advice(kind_of(broken), otherwise)}") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def set_busy_timeout(self, wait_ms: int) -> None:
        """Limit the next request's wait for another process's lock."""
        with self._guarded():
            self._opened().execute(f"PRAGMA busy_timeout = {max(wait_ms, 1)}")

    def revoke(self, revocation: Revocation, now_s: int) -> None:
        if isinstance(revocation, RevokedToken):
            row = ("token", revocation.project, revocation.token_id, 0, revocation.until_s)
        else:
            row = ("subject", revocation.project, revocation.subject, revocation.issued_until_s, revocation.until_s)
        with self._transaction() as connection:
            connection.execute("DELETE FROM revoked WHERE until_s <= ?", (now_s,))
            # OR REPLACE gives a known revocation a new number, so that watchers see it again.
            connection.execute(
                "INSERT OR REPLACE INTO revoked (kind, project, name, issued_until_s, until_s) VALUES (?, ?, ?, ?, ?)",
                row,
            )

    def is_revoked(self, claims: Claims) -> bool:
        with self._transaction("BEGIN") as connection:
            found = connection.execute(
                "SELECT 1 FROM revoked WHERE project = ? AND"
                " (kind = 'token' AND name = ? OR kind = 'subject' AND name = ? AND issued_until_s >= ?)",
                (claims.project, claims.token_id, claims.subject, claims.issued_at_s),
            ).fetchone()
        return found is not None

    def revoked_after(self, number: int) -> list[tuple[int, Revocation]]:
        """Return the revocations after that number, oldest first, each with its own number."""
        with self._transaction("BEGIN") as connection:
            rows = connection.execute(
                "SELECT number, kind, project, name, issued_until_s, until_s FROM revoked"
                " WHERE number > ? ORDER BY number",
                (number,),
            ).fetchall()
        return [(row[0], _revocation(*row[1:])) for row in rows]

    def store_config(self, config_id: str, session: bytes, project: str, until_s: int, now_s: int) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM configs WHERE until_s <= ?", (now_s,))
            connection.execute(
                "INSERT OR REPLACE INTO configs (id, project, session, until_s) VALUES (?, ?, ?, ?)",
                (config_id, project, session, until_s),
            )

    def config(self, config_id: str, project: str, now_s: int) -> bytes | None:
        with self._transaction("BEGIN") as connection:
            row = connection.execute(
                "SELECT session FROM configs WHERE id = ? AND project = ? AND until_s > ?", (config_id, project, now_s)
            ).fetchone()
        return row[0] if row else None

    def count(self, name: str, amount: int, limit: int | None, until_s: int, now_s: int) -> CountResult:
        if not amount:  # a read: answered also when writes fail
            return self._counted(name, now_s)
        with self._transaction() as connection:
            connection.execute("DELETE FROM counts WHERE until_s <= ?", (now_s,))
            row = connection.execute("SELECT total FROM counts WHERE name = ?", (name,)).fetchone()
            result = CountResult.of(row[0] if row else 0, amount, limit)
            connection.execute(
                "INSERT INTO counts (name, total, until_s) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (name) DO UPDATE SET total = ?2, until_s = max(until_s, ?3)",
                (name, result.total, until_s),
            )
        return result

    def take_slots(self, holder: str, pools: Mapping[str, int], owner: str, until_s: int, now_s: int) -> str | None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM slots WHERE until_s <= ?", (now_s,))
            for pool, limit in pools.items():
                (taken,) = connection.execute(
                    "SELECT count(*) FROM slots WHERE pool = ? AND holder <> ?", (pool, holder)
                ).fetchone()
                if taken >= limit:
                    return pool
            connection.execute("DELETE FROM slots WHERE holder = ? AND owner <> ?", (holder, owner))
            connection.executemany(
                "INSERT OR REPLACE INTO slots (pool, holder, owner, until_s) VALUES (?, ?, ?, ?)",
                [(pool, holder, owner, until_s) for pool in pools],
            )
        return None

    def renew_slots(self, owner: str, until_s: int, now_s: int) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM slots WHERE until_s <= ?", (now_s,))
            connection.execute("UPDATE slots SET until_s = ? WHERE owner = ?", (until_s, owner))

    def release_slots(self, holder: str, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM slots WHERE holder = ? AND owner = ?", (holder, owner))

    def slots_taken(self, pool: str, now_s: int) -> int:
        with self._transaction("BEGIN") as connection:
            (taken,) = connection.execute(
                "SELECT count(*) FROM slots WHERE pool = ? AND until_s > ?", (pool, now_s)
            ).fetchone()
        return int(taken)

    def _counted(self, name: str, now_s: int) -> CountResult:
        with self._transaction("BEGIN") as connection:
            row = connection.execute(
                "SELECT total FROM counts WHERE name = ? AND until_s > ?", (name, now_s)
            ).fetchone()
        return CountResult(row[0] if row else 0, counted=True)

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._guarded():
            connection = self._opened()
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is more precise
                        connection.execute("ROLLBACK")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as failed:
            kind = kind_of(failed)
            if kind in ("damaged", "io_error"):
                with suppress(sqlite3.Error):
                    self.close()
                self._connection = None
            raise StoreUnavailable(kind, f"{self._path.name}: {failed}") from None
        except ConfigError as refused:  # another file is there now
            raise StoreUnavailable("damaged", str(refused)) from None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._path.exists():
            _create(self._path)
        # The executor runs one request at a time, in one thread, but a pool may replace the thread.
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_MS / 1_000, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")  # one of several processes does it, the others find it done
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"{self._path} has version {version}, made by a newer voicepipe; this one reads {len(MIGRATIONS)}"
            )
        for statement in (each for statements in MIGRATIONS[version:] for each in statements):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")


def _create(path: Path) -> None:
    """Create an empty file in WAL mode at `path` atomically, unless another process was first.

    The switch to WAL does not wait for its lock: processes that switch the same file together sometimes fail with
    "database is locked". A file that was switched under another name is never seen half switched.
    """
    descriptor, draft = tempfile.mkstemp(
        dir=path.parent, prefix=f"{path.name}."
    )  # mode 0600, and SQLite's own files get the same
    os.close(descriptor)
    try:
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        os.unlink(draft)


def _revocation(kind: str, project: str, name: str, issued_until_s: int, until_s: int) -> Revocation:
    if kind == "token":
        return RevokedToken(project, name, until_s)
    return RevokedSubject(project, name, issued_until_s, until_s)
