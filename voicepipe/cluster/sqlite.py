"""The cluster of one machine: a SQLite file under `data_dir`, shared by its processes without any extra service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import Tally, check_config
from voicepipe.cluster.revocation import Revocation
from voicepipe.cluster.tables import Tables

FILE_NAME: Final = "cluster.sqlite3"

_P = ParamSpec("_P")
_R = TypeVar("_R")


@asynccontextmanager
async def open_sqlite(data_dir: Path, *, poll_ms: int = 1_000) -> AsyncIterator[SqliteCluster]:
    """Open the machine's cluster file. Leaving the context waits for the running transaction and closes the file.

    Args:
        poll_ms: how often a watch of revocations looks for new ones.

    Raises:
        ConfigError: the file is damaged, or a newer voicepipe made it.
    """
    # One thread: SQLite lets one write at a time anyway. Its queue has no bound of its own; it holds at most one call
    # for each handshake or turn that is waiting for it, and those are bounded by admission.
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster")
    loop = asyncio.get_running_loop()
    try:
        tables = await loop.run_in_executor(executor, Tables, data_dir / FILE_NAME)
        try:
            yield SqliteCluster(tables, executor, poll_ms)
        finally:
            await loop.run_in_executor(executor, tables.close)
    finally:
        executor.shutdown(wait=False)


class SqliteCluster:
    """The port on one file. Each call is one short transaction in the worker thread, never on the event loop."""

    def __init__(self, tables: Tables, executor: ThreadPoolExecutor, poll_ms: int) -> None:
        self._tables, self._executor, self._poll_ms = tables, executor, poll_ms

    async def revoke(self, revocation: Revocation, *, now_s: int) -> None:
        await self._run(self._tables.revoke, revocation, now_s)

    async def is_revoked(self, claims: Claims) -> bool:
        return await self._run(self._tables.is_revoked, claims)

    async def revocations(self) -> AsyncGenerator[Revocation, None]:
        seen = 0
        while True:
            for number, revocation in await self._run(self._tables.revoked_after, seen):
                seen = number
                yield revocation
            await asyncio.sleep(self._poll_ms / 1_000)

    async def keep_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        check_config(session)
        await self._run(self._tables.keep_config, config_id, session, project, until_s, now_s)

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        return await self._run(self._tables.config, config_id, project, now_s)

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> Tally:
        return await self._run(self._tables.count, name, amount, limit, until_s, now_s)

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        return await self._run(self._tables.take_slots, holder, pools, owner, until_s, now_s)

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        await self._run(self._tables.renew_slots, owner, until_s, now_s)

    async def give_back_slots(self, holder: str) -> None:
        await self._run(self._tables.give_back_slots, holder)

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return await self._run(self._tables.slots_taken, pool, now_s)

    async def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))
