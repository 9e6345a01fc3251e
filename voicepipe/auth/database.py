"""The file of secrets and API keys under `data_dir`: SQLite, so that processes may change it at the same time.

In SQLite's rollback mode (not WAL), because then the header counts every change: see `change_counter`.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from voicepipe.errors import ConfigError

FILE_NAME: Final = "auth.sqlite3"

BUSY_TIMEOUT_MS: Final = 5_000
"""How long one process waits while another writes. A write here takes a few milliseconds."""

MIGRATIONS: Final = (
    """
    CREATE TABLE token_secrets (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        kid TEXT NOT NULL UNIQUE,
        secret BLOB NOT NULL,
        created_at_s INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE api_keys (
        id TEXT PRIMARY KEY,
        project TEXT NOT NULL,
        name TEXT NOT NULL,
        scopes TEXT NOT NULL,
        secret_sha256 BLOB NOT NULL,
        created_at_s INTEGER NOT NULL,
        revoked_at_s INTEGER
    ) STRICT;
    """,
)
"""Entry n brings the file from version n to n + 1. Entries are never edited, only added."""


def writing(data_dir: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Open the file, creating it with mode 0600, and hold its write lock for the block.

    Committed at the end, rolled back when the block raises. Waits for other processes: call from a worker thread.

    Raises:
        ConfigError: others can read the file, it is no such database, or a newer voicepipe made it.
    """
    return _transaction(data_dir, "BEGIN IMMEDIATE")


def reading(data_dir: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Like `writing`, for a block that only reads: readers don't wait for one another."""
    return _transaction(data_dir, "BEGIN")


@contextmanager
def _transaction(data_dir: Path, begin: str) -> Iterator[sqlite3.Connection]:
    path = _private_file(data_dir)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1_000, isolation_level=None)
    try:
        if _version(connection, path) < len(MIGRATIONS):
            _migrate(connection, path)
        connection.execute(begin)
        yield connection
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as broken:
        raise ConfigError(
            f"{path}: {broken}. If the file is damaged move it away: new keys are made, and API keys and tokens that "
            "were given out stop working"
        ) from None
    finally:
        connection.close()  # rolls back what is not committed


def change_counter(data_dir: Path) -> bytes:
    """Four bytes that differ after every committed change, by any process; empty before the first.

    Source: sqlite.org/fileformat2.html, section 1.3.7, "File change counter", at offset 24.
    """
    try:
        with open(data_dir / FILE_NAME, "rb") as file:
            return file.read(28)[24:]
    except FileNotFoundError:
        return b""


def _private_file(data_dir: Path) -> Path:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = data_dir / FILE_NAME
    # SQLite would create it readable by others, if only for a moment.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f"{path} holds secrets and may be read by others (mode {mode:04o}): run chmod 600 {path}")
    return path


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise ConfigError(f"{path} has version {version}, made by a newer voicepipe; this one knows {len(MIGRATIONS)}")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file up to date; of several processes that try, one does it and the others find it done."""
    connection.execute("BEGIN IMMEDIATE")
    for script in MIGRATIONS[_version(connection, path) :]:
        for statement in filter(str.strip, script.split(";")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")
