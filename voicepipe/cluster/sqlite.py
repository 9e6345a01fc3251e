"""Implement the cluster port on a SQLite file under `data_dir` that the processes of one machine share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.clock import monotonic_ms
from voicepipe.cluster.port import CountResult, check_config
from voicepipe.cluster.revocation import Revocation
from voicepipe.cluster.sqlite_tables import Tables
from voicepipe.errors import StoreUnavailable

FILE_NAME: Final = "cluster.sqlite3"

ANSWER_MS: Final = 500
"""A request without answer by then fails, also one that waited in the queue for that long. Requests usually take a few
ms.
"""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@asynccontextmanager
async def open_sqlite(
    data_dir: Path, *, poll_ms: int = 1_000, answer_ms: int = ANSWER_MS
) -> AsyncIterator[SqliteCluster]:
    """Open the machine's cluster file. Leaving the context waits for the running transaction and closes the file.

    Args:
        poll_ms: how often a watch of revocations checks for new ones.
        answer_ms: how long a request may take, including its wait for others.

    Raises:
        ConfigError: the file is damaged, or a newer voicepipe made it.
    """
    path = data_dir / FILE_NAME
    async with _worker(path, "writes", answer_ms) as writes, _worker(path, "reads", answer_ms) as reads:
        yield SqliteCluster(writes, reads, poll_ms)


class _Worker(Struct, frozen=True):
    """A thread with its own connection to the file."""

    tables: Tables
    executor: ThreadPoolExecutor
    answer_ms: int

    async def run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        end_ms = monotonic_ms() + self.answer_ms

        def work() -> _R:
            left_ms = end_ms - monotonic_ms()
            if left_ms <= 0:
                raise StoreUnavailable("locked", f"{FILE_NAME}: earlier requests took {self.answer_ms} ms")
            self.tables.set_busy_timeout(left_ms)
            return call(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self.executor, work)


@asynccontextmanager
async def _worker(path: Path, name: str, answer_ms: int) -> AsyncIterator[_Worker]:
    # One thread: SQLite allows one write at a time anyway. Its queue has no bound of its own; it holds at most one
    # request for each waiting handshake or turn, and admission bounds those.
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"cluster-{name}")
    loop = asyncio.get_running_loop()
    try:
        tables = await loop.run_in_executor(executor, Tables, path)
        try:
            yield _Worker(tables, executor, answer_ms)
        finally:
            await loop.run_in_executor(executor, tables.close)
    finally:
        executor.shutdown(wait=False)


class SqliteCluster:
    """The port on one file. Each request is one short transaction in a worker thread, never on the event loop.

    While the file is locked each request raises within its `answer_ms`, however many wait; a hanging disk is waited
    for. Reads do not wait for writes (SQLite's WAL).
    """

    def __init__(self, writes: _Worker, reads: _Worker, poll_ms: int) -> None:
        self._writes, self._reads, self._poll_ms = writes, reads, poll_ms

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        await self._writes.run(self._writes.tables.revoke, revocation, now_s)
        return True

    async def is_revoked(self, claims: Claims) -> bool:
        return await self._reads.run(self._reads.tables.is_revoked, claims)

    async def revocations(self) -> AsyncGenerator[Revocation, None]:
        seen = 0
        while True:
            for number, revocation in await self._reads.run(self._reads.tables.revoked_after, seen):
                seen = number
                yield revocation
            await asyncio.sleep(self._poll_ms / 1_000)

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        check_config(session)
        await self._writes.run(self._writes.tables.store_config, config_id, session, project, until_s, now_s)

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        return await self._reads.run(self._reads.tables.config, config_id, project, now_s)

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        worker = self._writes if amount else self._reads
        return await worker.run(worker.tables.count, name, amount, limit, until_s, now_s)

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        return await self._writes.run(self._writes.tables.take_slots, holder, pools, owner, until_s, now_s)

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        await self._writes.run(self._writes.tables.renew_slots, owner, until_s, now_s)

    async def release_slots(self, holder: str, *, owner: str) -> None:
        await self._writes.run(self._writes.tables.release_slots, holder, owner)

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return await self._reads.run(self._reads.tables.slots_taken, pool, now_s)
