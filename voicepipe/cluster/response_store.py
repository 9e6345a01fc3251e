"""The responses of `/v1/responses` that later requests go on from: a SQLite file that the processes of a machine share.

It is bounded in bytes and in time. Above the bound the owner with the most bytes loses the responses that were not used
for the longest time. So the responses of one client do not displace another's.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from voicepipe.errors import ProtocolError, StoreUnavailable
from voicepipe.storage import StorageHealth, kind_of

T = TypeVar("T")

FILE_NAME: Final = "responses.sqlite3"

BUSY_MS: Final = 500
"""How long a request waits for another process's write, which takes a few milliseconds."""

SCHEMA: Final = (
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        project TEXT NOT NULL,
        user TEXT NOT NULL,
        previous TEXT,
        body BLOB NOT NULL,
        input BLOB NOT NULL,
        n_bytes INTEGER NOT NULL,
        used_s INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX used ON responses (used_s)",
    "CREATE INDEX used_by_owner ON responses (owner, used_s)",
    "CREATE INDEX users ON responses (project, user)",
    "CREATE TABLE sizes (owner TEXT PRIMARY KEY, n_bytes INTEGER NOT NULL) STRICT",
    """
    CREATE TRIGGER added AFTER INSERT ON responses BEGIN
        INSERT INTO sizes VALUES (new.owner, new.n_bytes)
        ON CONFLICT (owner) DO UPDATE SET n_bytes = n_bytes + new.n_bytes;
    END
    """,
    """
    CREATE TRIGGER removed AFTER DELETE ON responses BEGIN
        UPDATE sizes SET n_bytes = n_bytes - old.n_bytes WHERE owner = old.owner;
        DELETE FROM sizes WHERE n_bytes <= 0;
    END
    """,
)
VERSION: Final = 1

_COLUMNS: Final = "id, owner, project, user, previous, body, input"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response and what its request added to the conversation."""

    id: str
    owner: str
    """The credential that may read it, as text."""

    project: str
    user: str
    """The user's id as the client sets it; may be empty."""

    previous: str | None
    """Id of the response that the request went on from."""

    body: bytes = field(repr=False)
    """The response, as JSON."""

    input: bytes = field(repr=False)
    """The request's own items, as a JSON array."""

    @property
    def n_bytes(self) -> int:
        """Size of the texts."""
        return len(self.body) + len(self.input)


class ResponseStore:
    """The file, which is made when the first response is stored. Belongs to one event loop.

    Raises:
        StoreUnavailable: from any method, when the file can't be read or written; nothing was changed.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep_s: int, health: StorageHealth) -> None:
        """`max_bytes` bounds the texts of all responses; `keep_s`: time after its last use when one is deleted."""
        self._path, self._max_bytes, self._keep_s, self._health = path, max_bytes, keep_s, health
        # Its queue holds at most one entry for each request, and admission bounds those.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="responses")
        self._file: sqlite3.Connection | None = None

    @property
    def is_on(self) -> bool:
        """Whether responses are stored at all."""
        return self._max_bytes > 0 and self._keep_s > 0

    async def store(self, response: StoredResponse, *, now_s: int) -> bool:
        """Store a response; False: it is larger than the whole store may be."""
        if not self.is_on or response.n_bytes > self._max_bytes:
            return False
        await self._run(lambda file: self._store_response(file, response, now_s))
        return True

    async def find(self, id_: str, owner: str, *, now_s: int) -> StoredResponse | None:
        """Return a response; None: there is none that its owner may read."""
        return next(iter(await self._read(id_, owner, now_s, max_bytes=None)), None)

    async def conversation(self, id_: str, owner: str, *, now_s: int, max_bytes: int) -> list[StoredResponse]:
        """Return a response and all those before it, oldest first, which counts as their use.

        An empty list: one of them is not stored, or no longer.

        Raises:
            ProtocolError: together they have more than `max_bytes`.
        """
        found = await self._read(id_, owner, now_s, max_bytes=max_bytes)
        if not found or found[-1].previous is not None:
            return []
        marks = ", ".join("?" * len(found))
        statement, ids = f"UPDATE responses SET used_s = ? WHERE id IN ({marks})", [each.id for each in found]
        await self._run(lambda file: file.execute(statement, (now_s, *ids)))
        return found[::-1]

    async def delete(self, id_: str, owner: str) -> bool:
        """Delete a response; False: there is none that its owner may delete."""
        if not self._path.exists():
            return False
        statement = "DELETE FROM responses WHERE id = ? AND owner = ?"
        return await self._run(lambda file: file.execute(statement, (id_, owner)).rowcount > 0)

    async def delete_user(self, project: str, user: str) -> int:
        """Delete all responses of a user of a project; return how many."""
        if not self._path.exists():
            return 0
        statement = "DELETE FROM responses WHERE project = ? AND user = ?"
        return await self._run(lambda file: file.execute(statement, (project, user)).rowcount)

    async def purge(self, *, now_s: int) -> None:
        """Delete what was not used for the time of the settings."""
        if self._path.exists():
            await self._run(lambda file: self._purge(file, now_s))

    async def close(self) -> None:
        """Close the file after running work."""
        if self._file is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
            self._file = None
        self._thread.shutdown(wait=False)

    async def _read(self, id_: str, owner: str, now_s: int, *, max_bytes: int | None) -> list[StoredResponse]:
        """Return a response and those before it, newest first; without `max_bytes` it alone."""
        if not self.is_on or not self._path.exists():
            return []

        def work(file: sqlite3.Connection) -> list[StoredResponse]:
            found, next_id = list[StoredResponse](), id_
            while True:
                row = file.execute(
                    f"SELECT {_COLUMNS} FROM responses WHERE id = ? AND owner = ? AND used_s > ?",
                    (next_id, owner, now_s - self._keep_s),
                ).fetchone()
                if row is None:
                    return found
                found.append(StoredResponse(*row))
                before = found[-1].previous
                if max_bytes is None or before is None:
                    return found
                if sum(each.n_bytes for each in found) > max_bytes:
                    why = f"The conversation of the previous response has over {max_bytes} bytes. Start a new one."
                    raise ProtocolError(why, field="previous_response_id", code="conversation_too_long")
                next_id = before

        return await self._run(work)

    def _store_response(self, file: sqlite3.Connection, response: StoredResponse, now_s: int) -> None:
        self._purge(file, now_s)
        ids = (response.id, response.owner, response.project, response.user, response.previous)
        file.execute(
            f"INSERT INTO responses ({_COLUMNS}, n_bytes, used_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*ids, response.body, response.input, response.n_bytes, now_s),
        )
        while (file.execute("SELECT sum(n_bytes) FROM sizes").fetchone()[0] or 0) > self._max_bytes:
            file.execute(
                "DELETE FROM responses WHERE id = (SELECT id FROM responses WHERE owner ="
                " (SELECT owner FROM sizes ORDER BY n_bytes DESC LIMIT 1) ORDER BY used_s, rowid LIMIT 1)"
            )

    def _purge(self, file: sqlite3.Connection, now_s: int) -> None:
        file.execute("DELETE FROM responses WHERE used_s <= ?", (now_s - self._keep_s,))

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            try:
                self._file = file = self._file or _opened(self._path)
                file.execute("BEGIN IMMEDIATE")
                try:
                    result = work(file)
                    file.execute("COMMIT")
                    return result
                finally:
                    if file.in_transaction:
                        file.execute("ROLLBACK")
            except (sqlite3.Error, OSError) as why:
                self._health.failed("responses", kind_of(why), f"{FILE_NAME}: {why}")
                raise StoreUnavailable(kind_of(why), f"{FILE_NAME}: {why}") from why

        result = await asyncio.get_running_loop().run_in_executor(self._thread, guarded)
        self._health.worked("responses")
        return result


def _opened(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    file = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("PRAGMA secure_delete = ON")  # a deleted conversation leaves the disk
        file.execute("BEGIN IMMEDIATE")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise sqlite3.DatabaseError(f"version {version} was made by a newer voicepipe; this one reads {VERSION}")
        if version < VERSION:
            for statement in SCHEMA:
                file.execute(statement)
            file.execute(f"PRAGMA user_version = {VERSION}")
        file.execute("COMMIT")
    except sqlite3.Error:
        file.close()
        raise
    return file
