"""A cluster whose store fails: every check passes with every fault, and its bounds hold."""

from __future__ import annotations

import asyncio
import inspect
import os
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.cluster.stores import ANSWER_MS, open_sqlite
from voicepipe.auth.claims import Claims
from voicepipe.clock import monotonic_ms, unix_ms, unix_s
from voicepipe.cluster import sqlite
from voicepipe.cluster.local_configs import LocalConfig, LocalConfigs
from voicepipe.cluster.local_counts import LocalCounts
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.cluster.port import Cluster, CountResult
from voicepipe.cluster.resilient import Resilient, ResilientOptions, open_resilient
from voicepipe.cluster.revocation import Revocation, RevokedToken
from voicepipe.cluster.revocation_set import RevocationSet
from voicepipe.cluster.sqlite import FILE_NAME
from voicepipe.cluster.store_calls import StoreCalls
from voicepipe.errors import ConfigError, StoreUnavailable
from voicepipe.storage import StorageHealth
from voicepipe.testing import store_faults
from voicepipe.testing.conformance import cluster as suite
from voicepipe.testing.conformance import cluster_faults as faults
from voicepipe.testing.conformance.cluster import LATER_S, NOW_S, claims_of
from voicepipe.testing.waiting import eventually


class FaultyCluster:
    """A cluster in memory that refuses every call on cue, or lets each hang and still does it when the fault ends."""

    def __init__(self) -> None:
        self._memory = MemoryCluster()
        self._fault: Literal["", "refuses", "hangs"] = ""
        self._over = asyncio.Event()

    @contextmanager
    def failing(self, fault: Literal["refuses", "hangs"]) -> Iterator[None]:
        self._fault, self._over = fault, asyncio.Event()
        try:
            yield
        finally:
            self._fault = ""
            self._over.set()

    async def _do(self, request: Coroutine[Any, Any, Any]) -> Any:
        try:
            if self._fault == "refuses":
                raise StoreUnavailable("io_error", "/planted/file: broken")
            if self._fault == "hangs":
                await self._over.wait()
        except BaseException:
            request.close()
            raise
        return await request

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        return bool(await self._do(self._memory.revoke(revocation, now_s=now_s)))

    async def is_revoked(self, claims: Claims) -> bool:
        return bool(await self._do(self._memory.is_revoked(claims)))

    async def revocations(self) -> AsyncGenerator[Revocation, None]:
        async for revocation in self._memory.revocations():
            yield revocation

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        await self._do(self._memory.store_config(config_id, session, project=project, until_s=until_s, now_s=now_s))

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        found: bytes | None = await self._do(self._memory.config(config_id, project=project, now_s=now_s))
        return found

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        counted = self._memory.count(name, amount, limit=limit, until_s=until_s, now_s=now_s)
        result: CountResult = await self._do(counted)
        return result

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        taken = self._memory.take_slots(holder, pools, owner=owner, until_s=until_s, now_s=now_s)
        full: str | None = await self._do(taken)
        return full

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        await self._do(self._memory.renew_slots(owner, until_s=until_s, now_s=now_s))

    async def release_slots(self, holder: str, *, owner: str) -> None:
        await self._do(self._memory.release_slots(holder, owner=owner))

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return int(await self._do(self._memory.slots_taken(pool, now_s=now_s)))


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[Cluster]:
    yield cluster


@asynccontextmanager
async def in_memory(fault: Literal["refuses", "hangs"]) -> AsyncIterator[faults.FaultyStore]:
    cluster = FaultyCluster()
    yield faults.FaultyStore(
        open_store=partial(opened, cluster), failing=partial(cluster.failing, fault), can_read=False
    )


@contextmanager
def read_only(store: list[Any]) -> Iterator[None]:
    """SQLite's own word for a file that may be read and not written, for every connection that writes."""
    for cluster in store:
        cluster._writes.tables._connection.execute("PRAGMA query_only = ON")
    yield
    for cluster in store:
        cluster._writes.tables._connection.execute("PRAGMA query_only = OFF")


PLANTED: dict[str, tuple[store_faults.Fault | None, bool]] = {
    "locked": (store_faults.locked, True),
    "full": (store_faults.full, True),
    "read_only": (None, True),
    "broken_disk": (store_faults.broken_disk, False),
    "damaged": (store_faults.damaged, False),
}
"""The fault, and whether the file can be read meanwhile."""


@asynccontextmanager
async def in_a_file(folder: Path, name: str) -> AsyncIterator[faults.FaultyStore]:
    plant, can_read = PLANTED[name]
    stores: list[Any] = []

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Cluster]:
        async with open_sqlite(folder, poll_ms=10, answer_ms=150) as cluster:
            stores.append(cluster)
            try:
                yield cluster
            finally:
                stores.remove(cluster)

    def failing() -> Any:
        return plant(folder / FILE_NAME) if plant is not None else read_only(stores)

    yield faults.FaultyStore(open_store=open_store, failing=failing, can_read=can_read)


@pytest.mark.parametrize("fault", ["refuses", "hangs", *PLANTED])
@pytest.mark.parametrize("check", faults.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_check_passes_during_faults(
    check: faults.FaultCheck, fault: Literal["refuses", "hangs"], tmp_path: Path
) -> None:
    def open_faulty() -> AbstractAsyncContextManager[faults.FaultyStore]:
        return in_a_file(tmp_path, fault) if fault in PLANTED else in_memory(fault)

    await check(open_faulty)


@pytest.mark.parametrize("check", suite.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_check_passes_without_faults(check: suite.ConformanceCheck, store: str, tmp_path: Path) -> None:
    """Of every cluster: standing before a store changes nothing."""

    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        inner: Callable[[], Any] = partial(open_sqlite, tmp_path, poll_ms=10)
        if store == "memory":
            inner = partial(opened, MemoryCluster())
        options = ResilientOptions(answer_ms=ANSWER_MS)
        async with inner() as store_cluster, open_resilient(store_cluster, StorageHealth(unix_ms), options) as cluster:
            yield cluster

    await check(open_cluster)


async def test_a_locked_file_answers_each_of_many_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred that come at the same instant are all answered when the first is: none waits for the lock anew."""
    here = threading.get_ident()
    async with open_sqlite(tmp_path, answer_ms=500) as store:
        with store_faults.locked(tmp_path / FILE_NAME):
            came_ms = monotonic_ms()

            def of_the_requests() -> int:
                """They come at one instant, however long this process takes to send them; the store's thread waits in
                its own time."""
                return came_ms if threading.get_ident() == here else monotonic_ms()

            monkeypatch.setattr(sqlite, "monotonic_ms", of_the_requests)
            calls = [store.count(f"n{n}", 1, limit=1, until_s=LATER_S, now_s=NOW_S) for n in range(100)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreUnavailable}
            waited_for_the_lock = [str(a.detail) for a in answers if "database is locked" in str(a.detail)]  # type: ignore[union-attr]
            assert len(waited_for_the_lock) <= 1, "a call that comes after the first was answered waits once more"
        monkeypatch.setattr(sqlite, "monotonic_ms", monotonic_ms)
        assert (await store.count("n1", 1, limit=1, until_s=LATER_S, now_s=NOW_S)).total == 1


async def test_a_file_that_was_damaged_is_used_again_when_it_is_whole(tmp_path: Path) -> None:
    """By the process that met the damage, with what was in it."""
    async with open_sqlite(tmp_path) as store:
        await store.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
        with store_faults.damaged(tmp_path / FILE_NAME), pytest.raises(StoreUnavailable) as met:
            await store.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
        assert (met.value.kind, "cluster.sqlite3" in met.value.detail) == ("damaged", True)
        assert "cluster" not in str(met.value)
        assert (await store.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)).total == 2
    assert stat.S_IMODE(os.stat(tmp_path / FILE_NAME).st_mode) == 0o600


async def test_cancelled_request_leaves_no_slot() -> None:
    """Its store took one while it hung; when the fault ends the slot is given back."""
    store = FaultyCluster()
    async with open_resilient(store, StorageHealth(unix_ms), ResilientOptions(first_pause_ms=5)) as cluster:
        with store.failing("hangs"):
            now_s = unix_s()
            request = cluster.take_slots("s1", {"m": 1}, owner="p", until_s=now_s + 30, now_s=now_s)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(request)
                await asyncio.sleep(0)
                task.cancel()
        await eventually(lambda: _released(store))


@pytest.mark.parametrize("fault", ["", "refuses", "hangs"])
async def test_cancelled_count_is_still_counted(fault: Any) -> None:
    """Whatever becomes of the store meanwhile: once there, once here, and never twice."""
    store = FaultyCluster()
    options = ResilientOptions(answer_ms=20, first_pause_ms=5, last_pause_ms=5)
    async with open_resilient(store, StorageHealth(unix_ms), options) as cluster:
        with store.failing(fault):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(_count(cluster, 3))
                await asyncio.sleep(0)
                task.cancel()
        await eventually(lambda: _counted(store, cluster))


async def _count(cluster: Cluster, amount: int) -> CountResult:
    return await cluster.count("n", amount, limit=None, until_s=unix_s() + 600, now_s=unix_s())


async def _counted(store: FaultyCluster, cluster: Resilient) -> bool | None:
    totals = [await _count(each, 0) for each in (store, cluster)]
    return [result.total for result in totals] == [3, 3] or None


async def _released(store: FaultyCluster) -> bool | None:
    return await store.slots_taken("m", now_s=unix_s()) == 0 or None


def test_counts_that_find_no_room_are_counted() -> None:
    """While the store is away unwritten counts stay; other counters are dropped, the least recently used first."""
    counts = LocalCounts(max_counters=2)
    for name in ("a", "b", "c"):
        assert counts.count(name, 1, limit=1, until_s=LATER_S, now_s=NOW_S).counted
    assert (counts.n_unwritten, counts.n_lost) == (2, 1)
    assert counts.next_unwritten(NOW_S) == ("a", 1, LATER_S)
    counts.mark_written("a", 1, 1)
    counts.set_stored("d", 7, LATER_S)
    assert (counts.knows("d"), counts.knows("a"), counts.n_unwritten) == (True, False, 1)


def test_expired_counter_is_not_written() -> None:
    """The counter has expired, so no request may read it any more."""
    counts = LocalCounts()
    counts.count("a", 1, limit=None, until_s=NOW_S + 1, now_s=NOW_S)
    assert counts.next_unwritten(NOW_S + 1) is None
    assert counts.n_unwritten == 0


def test_configs_are_bounded_in_bytes() -> None:
    """One that the store has is forgotten; one that it has yet to be given is refused instead."""
    configs = LocalConfigs(max_bytes=10)
    a, b, c = (LocalConfig(name, b"x" * 5, "shop", LATER_S) for name in "abc")
    for config in (a, b, c):
        configs.add_stored(config)
    found = [configs.find(name, "shop", NOW_S) for name in "abc"]
    assert found == [None, b, c]
    assert [configs.add_unwritten(config) for config in (a, b, c)] == [True, True, False]
    assert configs.find("a", "shop", NOW_S) == a


def test_revocations_expire_and_are_bounded() -> None:
    """The oldest goes when there are too many, and what has expired at the next one."""
    revoked = RevocationSet(max_revocations=2)
    for name in ("t1", "t2", "t3"):
        revoked.add(RevokedToken("shop", name, LATER_S), NOW_S)
    assert [revoked.covers(claims_of(token_id=name)) for name in ("t1", "t2", "t3")] == [False, True, True]
    for _ in range(2_000):
        revoked.add(RevokedToken("shop", "t4", LATER_S), NOW_S)
    assert len(revoked._ends) < 1_000
    revoked.add(RevokedToken("shop", "t5", LATER_S + 9), LATER_S)
    assert len(revoked) == 1


def test_wrong_options_are_refused() -> None:
    """No time at all is a mistake."""
    with pytest.raises(ConfigError, match="above 0 ms"):
        ResilientOptions(answer_ms=0)


async def test_a_request_that_is_cancelled_before_it_runs_is_closed() -> None:
    """Else the interpreter warns of it, some time later and somewhere else."""

    async def never() -> None:
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        calls, request = StoreCalls(group, StorageHealth(unix_ms), 50), never()
        sending = group.create_task(calls.finish(request), name="sending")
        await asyncio.sleep(0)
        (call,) = calls._finishing
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert inspect.getcoroutinestate(request) == inspect.CORO_CLOSED
