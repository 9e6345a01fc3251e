"""Create and recognise the SQLite file of turns, and bring it to this version."""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.errors import ConfigError
from voicepipe.telemetry.rollups.buckets import LEVELS
from voicepipe.telemetry.store.renamed import renamed
from voicepipe.telemetry.store.schema import (
    FROM_VERSION_2,
    FROM_VERSION_3,
    FROM_VERSION_4,
    VERSION,
    statements_back,
    tables,
)
from voicepipe.telemetry.store.write import deflated

BUSY_MS: Final = 5_000
"""Wait for another process's transaction; the store's take a few ms."""

_CACHE_KB: Final = 32_768
"""The writer's page cache: with the usual 2 MB it reads five times as much, the indexes' pages over and over."""

_PAUSE_MS: Final = 10
_MIN_PAGE_BYTES: Final = 512  # the smallest page, hence the smallest database (SQLite, Database File Format, 1.3.2)

_OLDEST_SQLITE: Final = (3, 35)
"""RETURNING came with it (SQLite, Release History, 2021-03-12)."""

_NEW: Final = tables(number="INTEGER PRIMARY KEY", bytes="BLOB")

_FROM_VERSION_1: Final = (
    "ALTER TABLE turns RENAME TO turns_1",
    *(f"DROP INDEX turns_by_{name}" for name in ("time", "session", "agent", "outcome", "over", "total")),
    *_NEW,
    """
    INSERT INTO turns (project, id, started_at_ms, session, agent, user_id, language, route, arm, cause, outcome,
        total_ms, late, stt, llm, tts, usd)
    SELECT project, id, started_at_ms, session, agent, '', '', '', '', json_extract(record, '$.cause'), outcome,
        total_ms, over, coalesce(json_extract(record, '$.providers.stt'), ''),
        coalesce(json_extract(record, '$.providers.llm'), ''), coalesce(json_extract(record, '$.providers.tts'), ''),
        coalesce(json_extract(record, '$.cost.usd'), 0.0)
    FROM turns_1 ORDER BY started_at_ms, id
    """,
    """
    INSERT INTO records (number, record)
    SELECT t.number, deflated(o.record) FROM turns_1 o JOIN turns t ON t.project = o.project AND t.id = o.id
    """,
    "INSERT INTO projects (project, trimmed_ms, pruned_ms) SELECT DISTINCT project, 0, 0 FROM turns",
    """
    INSERT INTO sessions (project, session, agent, user_id, started_at_ms, last_at_ms)
    SELECT project, session, agent, '', min(started_at_ms), max(started_at_ms) FROM turns GROUP BY project, session
    """,
    *(
        f"""
        INSERT INTO buckets (project, level_ms, from_ms, stamp)
        SELECT DISTINCT project, {level_ms}, started_at_ms - started_at_ms % {level_ms}, 0 FROM turns
        """
        for level_ms in LEVELS
    ),
    "DROP TABLE turns_1",
)

_FROM_VERSION_2: Final = (*FROM_VERSION_2, "UPDATE records SET record = renamed(record)")
_FROM: Final = {1: _FROM_VERSION_1, 2: _FROM_VERSION_2, 3: FROM_VERSION_3, 4: FROM_VERSION_4}
"""Version -> the statements that bring its tables to this one."""


def make_or_recognise(path: Path) -> None:
    """Make the file, for its owner alone; refuse a file that is too short to be SQLite's.

    SQLite takes a file of a few bytes for an empty database, and writes over it. An existing file is not opened here:
    closing it would drop the locks that this process's other connections hold on it (SQLite, How To Corrupt An SQLite
    Database File, 2.2).
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise ConfigError(f"expected SQLite 3.35 or newer in this Python, got {sqlite3.sqlite_version}")
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if 0 < path.stat().st_size < _MIN_PAGE_BYTES:
        raise sqlite3.DatabaseError("file is not a database")


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Run a transaction from `begin` to COMMIT. IMMEDIATE takes the write lock at once, where waiting for it is
    allowed."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # also when COMMIT itself failed, on a full disk
            connection.execute("ROLLBACK")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to this version; `connection` will write.

    Raises:
        ConfigError: a newer voicepipe made the file.
        sqlite3.Error: the file can't be read or written.
    """
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    # Deleted data is overwritten, not only released: a deletion may be a user's demand.
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.create_function("deflated", 1, lambda text: deflated(renamed(text.encode())), deterministic=True)
    connection.create_function("renamed", 1, lambda data: deflated(renamed(zlib.decompress(data))), deterministic=True)
    with transaction(connection):  # of two processes that start at once, the second finds the work done
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise ConfigError(
                f"this database has version {version}, made by a newer voicepipe; "
                f"this one reads versions up to {VERSION}"
            )
        if version < VERSION:
            for statement in _FROM.get(version, _NEW):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")


def downgrade(path: Path, target: int) -> int:
    """Bring the tables of a file back to an older version; return the version that they had. Blocks.

    No server may use the file meanwhile.

    Raises:
        ConfigError: there is no such file, it can't be read, or no way back to that version.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: expected a file of turn records, got none")
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)) as file, transaction(file):
            (present,) = file.execute("PRAGMA user_version").fetchone()
            for statement in statements_back(present, target):
                file.execute(statement)
            file.execute(f"PRAGMA user_version = {target}")
    except sqlite3.Error as why:
        raise ConfigError(f"{path}: the tables can't be changed: {why}") from why
    return int(present)


def only_read(connection: sqlite3.Connection) -> None:
    """Prepare `connection` for reading only."""
    connection.execute("PRAGMA query_only = ON")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL, within about `BUSY_MS` of waiting for other processes.

    Of two processes that switch a new file, SQLite refuses one at once without waiting: that one tries again.
    When another process holds the file, each try waits by itself, so the time is bounded and not the number of tries.
    """
    pause, gives_up_ms = threading.Event(), monotonic_ms() + BUSY_MS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as why:
            if why.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if monotonic_ms() >= gives_up_ms:
                raise sqlite3.OperationalError(f"another process held it for {BUSY_MS} ms") from why
            pause.wait(_PAUSE_MS / 1_000)
