"""The file of secrets and API keys under `data_dir`: SQLite, so that processes may change it at the same time.

It uses SQLite's rollback mode (not WAL), because then the header counts every change: see `change_counter`.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from voicepipe.errors import ConfigError, StorageFailureKind
from voicepipe.storage import kind_of

FILE_NAME: Final = "auth.sqlite3"

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a writer waits for another process's write, in ms. A write here takes a few milliseconds."""

READ_TIMEOUT_MS: Final = 500
"""How long a reader waits, in ms: a client may be waiting for it."""


DAMAGED: Final = ". If the file is damaged move it away: new keys are made, and issued API keys and tokens stop working"


class KeysUnreadable(ConfigError):
    """The file cannot be read or written; `kind` is the reason."""

    def __init__(self, why: str, kind: StorageFailureKind) -> None:
        super().__init__(why)
        self.kind = kind


MIGRATIONS: Final = (
    (
        """
        CREATE TABLE token_secrets (
            position INTEGER PRIMARY KEY AUTOINCREMENT,
            kid TEXT NOT NULL UNIQUE,
            secret BLOB NOT NULL,
            created_at_s INTEGER NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE api_keys (
            id TEXT PRIMARY KEY,
            project TEXT NOT NULL,
            name TEXT NOT NULL,
            scopes TEXT NOT NULL,
            secret_sha256 BLOB NOT NULL,
            created_at_s INTEGER NOT NULL,
            revoked_at_s INTEGER
        ) STRICT
        """,
    ),
)
"""Statements of entry n bring the file from version n to n + 1. Entries are never edited, only added."""


def writing(data_dir: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Open the file, creating it with mode 0600, and hold its write lock for the block.

    Committed at the end, rolled back when the block raises. Waits for other processes: call from a worker thread.

    Raises:
        KeysUnreadable: other users can read the file, it cannot be read or written, it is no such database, or a newer
            voicepipe made it.
    """
    return _transaction(data_dir, "BEGIN IMMEDIATE", BUSY_TIMEOUT_MS)


def reading(data_dir: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Like `writing`, for a block that only reads: readers do not wait for each other, and only shortly for writers."""
    return _transaction(data_dir, "BEGIN", READ_TIMEOUT_MS)


@contextmanager
def _transaction(data_dir: Path, begin: str, wait_ms: int) -> Iterator[sqlite3.Connection]:
    path = data_dir / FILE_NAME
    try:
        _make_private(path)
        connection = sqlite3.connect(path, timeout=wait_ms / 1_000, isolation_level=None)
    except (sqlite3.Error, OSError) as why:
        raise KeysUnreadable(f"{path}: {why}", kind_of(why)) from None
    try:
        if _version(connection, path) < len(MIGRATIONS):
            _migrate(connection, path)
        connection.execute(begin)
        yield connection
        connection.execute("COMMIT")
    except sqlite3.Error as broken:
        kind = kind_of(broken)
        advice = DAMAGED if kind == "damaged" else ""
        raise KeysUnreadable(f"{path}: {broken}{advice}", kind) from None
    finally:
        connection.close()  # rolls back uncommitted changes


def change_counter(data_dir: Path) -> bytes:
    """Return 4 bytes that differ after every committed change, by any process; empty before the first.

    Source: sqlite.org/fileformat2.html, section 1.3.7, "File change counter", at offset 24.
    """
    try:
        with open(data_dir / FILE_NAME, "rb") as file:
            return file.read(28)[24:]
    except FileNotFoundError:
        return b""


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # SQLite would create it readable by other users, if only for a moment.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            why = f"{path} holds secrets and may be read by others (mode {mode:04o}): run chmod 600 {path}"
            raise KeysUnreadable(why, "unknown") from None


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        why = f"{path} has version {version}, made by a newer voicepipe; this one reads {len(MIGRATIONS)}"
        raise KeysUnreadable(why, "unknown")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the file to the latest version; of several processes that try, one does it and the others find it
    done.
    """
    connection.execute("BEGIN IMMEDIATE")
    for statement in (each for statements in MIGRATIONS[_version(connection, path) :] for each in statements):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")
