"""Store the vectors of passages in a file: a passage is embedded once, not at each start."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from voicepipe import clock
from voicepipe.knowledge.vectors import Vectors

FILE_NAME: Final = "knowledge.sqlite3"
UNUSED_DAYS: Final = 30
"""Days for which the vector of a text is stored that is in no document."""

_BUSY_S: Final = 5.0
_DAY_MS: Final = 86_400_000
_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS vectors (
        model TEXT NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, used_ms INTEGER NOT NULL,
        PRIMARY KEY (model, text)
    ) WITHOUT ROWID
"""


class VectorStore:
    """Vectors by model and text. Use it in one thread at a time, never in the event loop.

    Every method raises `sqlite3.Error` when the file can't be read or written.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. A missing file is created, with access for its owner only.

        Raises:
            sqlite3.Error, OSError: the file can't be opened, or is no such database.
        """
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(_TABLE)
        except sqlite3.Error:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()

    def of(self, model: str, texts: Sequence[str]) -> list[Vectors | None]:
        """Return the vector of each text, (n_dimensions,), or None. Records that the vectors are in use."""
        found: list[Vectors | None] = []
        used: list[tuple[int, str, bytes]] = []
        for text in texts:
            key = _hash(text)
            row = self._database.execute("SELECT vector FROM vectors WHERE model = ? AND text = ?", (model, key))
            data = row.fetchone()
            found.append(None if data is None else np.frombuffer(data[0], dtype="<f4").astype(np.float32))
            if data is not None:
                used.append((clock.unix_ms(), model, key))
        self._write("UPDATE vectors SET used_ms = ? WHERE model = ? AND text = ?", used)
        return found

    def store(self, model: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Store the vectors of these texts."""
        rows = [
            (model, _hash(text), vector.astype("<f4").tobytes(), clock.unix_ms())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        self._write("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)

    def delete_unused(self) -> None:
        """Delete the vectors that were not used for `UNUSED_DAYS`."""
        oldest_ms = clock.unix_ms() - UNUSED_DAYS * _DAY_MS
        self._write("DELETE FROM vectors WHERE used_ms < ?", [(oldest_ms,)])

    def _write(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany(sql, rows)
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
