"""Session snapshots of a store that hangs or is away: look-ups wait for it a while, all else fails at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

import pytest

from voicepipe.clock import unix_ms
from voicepipe.cluster import store_calls
from voicepipe.cluster.guarded import PROBE, GuardedStore
from voicepipe.cluster.port import Hint, LeftSnapshot
from voicepipe.cluster.redis import open_redis
from voicepipe.cluster.resilient import open_resilient
from voicepipe.cluster.store_calls import RETRY_MS, StoreCalls
from voicepipe.errors import StoreUnavailable
from voicepipe.storage import StorageHealth
from voicepipe.testing.redis import RedisServer

NEVER_MS = 600_000


class Snapshots:
    """A store with one text that can be away; it counts its requests."""

    def __init__(self) -> None:
        self.is_away = False
        self.refuses = ""
        """What it refuses though it answers the rest."""

        self.requests: list[str] = []
        self.probed = asyncio.Event()
        self.hanging: dict[str, asyncio.Event] = {}
        """What has no answer before an event; the next request for the same has one at once."""

    @property
    def snapshots(self) -> Self:
        return self

    async def _answer(self, what: str) -> None:
        self.requests.append(what)
        if what == PROBE:
            self.probed.set()
        if what in self.hanging:
            await self.hanging.pop(what).wait()
        if self.is_away or what == self.refuses:
            raise StoreUnavailable("unreachable", "away")

    async def has_snapshot(self, session_id: str) -> bool:
        await self._answer(session_id)
        return session_id == "s"

    async def store_snapshot(
        self, session_id: str, text: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        await self._answer("keep")
        return True

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        await self._answer("take")
        return b"stored"

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        await self._answer("drop")

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        await self._answer("lease")
        return LeftSnapshot("s", b"stored")

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        await self._answer("drop left")

    async def announce(self, process: str, facts: bytes, *, life_s: int) -> str:
        await self._answer("announce")
        return "epoch"

    async def announced(self) -> list[bytes]:
        await self._answer("announced")
        return []

    async def send_events(self, events: Sequence[bytes]) -> None:
        await self._answer("send")

    async def events_after(self, last_id: str, *, limit: int, requested_s: int) -> tuple[str, list[bytes]]:
        await self._answer("events")
        return last_id, []

    async def are_events_requested(self) -> bool:
        await self._answer("requested")
        return False

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        await self._answer("keep hint")

    async def hints(self, kind: str) -> list[Hint]:
        await self._answer("hints")
        return []

    async def share_keys(self, keys: Mapping[str, bytes], revoked: Mapping[str, int]) -> None:
        await self._answer("share keys")

    async def keys_version(self) -> str:
        await self._answer("keys version")
        return "v"

    async def shared_keys(self) -> tuple[dict[str, bytes], dict[str, int]]:
        await self._answer("keys")
        return {}, {}


class Calls(StoreCalls):
    """Requests whose failures are counted as they are reported."""

    @property
    def n_reports(self) -> int:
        """Return how many failing stores an operator sees."""
        return len(self._health.failing_stores())


@asynccontextmanager
async def calls_of(*, answer_ms: int = NEVER_MS, snapshot_ms: int = NEVER_MS) -> AsyncIterator[Calls]:
    async with asyncio.TaskGroup() as group:
        calls = Calls(group, StorageHealth(unix_ms), answer_ms, snapshot_ms)
        yield calls
        calls.cancel()


async def stored_snapshot(snapshots: GuardedStore) -> bool:
    return await snapshots.store_snapshot("s", b"t", digest="d", owner="o", life_s=60)


async def test_a_store_that_answers_gets_each_request_once() -> None:
    store = Snapshots()
    async with calls_of() as calls:
        snapshots = GuardedStore(store, calls)
        assert await snapshots.has_snapshot("s")
        assert await stored_snapshot(snapshots)
        assert await snapshots.acquire_snapshot("s", digest="d", owner="o", next_digest="e") == b"stored"
        await snapshots.delete_snapshot("s", owner="o")
        assert await snapshots.lease_left_snapshot(after_s=1, life_s=2, lease="l") == LeftSnapshot("s", b"stored")
        await snapshots.delete_left_snapshot("s", lease="l")
        assert (await snapshots.announce("p", b"", life_s=1), await snapshots.announced()) == ("epoch", [])
        await snapshots.send_events([b"e"])
        assert await snapshots.events_after("1", limit=1, requested_s=1) == ("1", [])
        assert not await snapshots.are_events_requested()
        await snapshots.store_hint("kind", "p", b"", life_s=1)
        assert await snapshots.hints("kind") == []
        await snapshots.share_keys({}, {})
        assert (await snapshots.keys_version(), await snapshots.shared_keys()) == ("v", ({}, {}))
    shared = ["announce", "announced", "send", "events", "requested", "keep hint", "hints"]
    assert store.requests == [
        "s",
        "keep",
        "take",
        "drop",
        "lease",
        "drop left",
        *shared,
        "share keys",
        "keys version",
        "keys",
    ]


async def test_after_one_failure_no_other_of_its_side_reaches_the_store() -> None:
    """Of snapshots, and of announcements: each is refused at once. Client secrets are still checked."""
    store = Snapshots()
    store.is_away = True
    async with calls_of() as calls:
        snapshots = GuardedStore(store, calls, look_up_ms=0)
        for request in (
            stored_snapshot(snapshots),
            stored_snapshot(snapshots),
            snapshots.delete_snapshot("s", owner="o"),
        ):
            with pytest.raises(StoreUnavailable):
                await request
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await snapshots.announced()
        assert (calls.reads.is_open, calls.writes.is_open) == (False, False)
        assert calls.recovery_needed.is_set(), "what tests the store and reports it is not awake"
        assert calls.n_reports == 0
    assert store.requests == ["keep", "announced"]


@pytest.mark.parametrize("side", ["reads", "writes"])
async def test_a_check_that_fails_opens_all_breakers_but_that_of_snapshots(side: str) -> None:
    """A check has 0.5 s and a text 5 s: a store that is too slow for checks still gets the snapshots of sessions, whose
    nodes may die. One that is dead fails the first of them, too."""
    store = Snapshots()
    async with calls_of() as calls:
        shared = GuardedStore(store, calls)
        calls.failed(getattr(calls, side), StoreUnavailable("unreachable", "away"))
        with pytest.raises(StoreUnavailable):
            await shared.announced()
        assert (calls.reads.is_open, calls.writes.is_open, calls.n_reports) == (True, True, 1)
        assert await stored_snapshot(shared)
        calls.worked()
        assert await shared.announced() == []
    assert store.requests == ["keep", "announced"]


async def test_a_text_is_stored_by_a_store_that_is_too_slow_for_checks() -> None:
    """The check ends in its time, the text when the store answers."""
    store, slow = Snapshots(), asyncio.Event()
    store.hanging = {"keep": slow, "announced": asyncio.Event()}
    async with calls_of(answer_ms=1) as calls:
        shared = GuardedStore(store, calls)
        writing = asyncio.create_task(stored_snapshot(shared))
        with pytest.raises(StoreUnavailable):
            await shared.announced()
        slow.set()
        assert await writing
        assert not calls.snapshots.is_open


async def test_snapshots_that_are_too_slow_leave_all_else_alone() -> None:
    """Client secrets are checked, and announcements sent."""
    store = Snapshots()
    store.hanging = {"keep": asyncio.Event()}
    async with calls_of(snapshot_ms=1) as calls:
        shared = GuardedStore(store, calls)
        with pytest.raises(StoreUnavailable):
            await stored_snapshot(shared)
        assert (calls.snapshots.is_open, calls.reads.is_open, calls.writes.is_open) == (True, False, False)
        assert await shared.announced() == []


async def test_one_text_at_a_time_tests_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else may find it back: for the test of all sides it can be too slow."""
    now_ms = 0
    monkeypatch.setattr(store_calls, "monotonic_ms", lambda: now_ms)
    store = Snapshots()
    store.is_away = True
    async with calls_of() as calls:
        shared = GuardedStore(store, calls)
        for at_ms in (0, RETRY_MS - 1, RETRY_MS, RETRY_MS + 1):
            now_ms = at_ms
            with pytest.raises(StoreUnavailable):
                await stored_snapshot(shared)
        assert store.requests == ["keep", "keep"]
        store.is_away, now_ms = False, 2 * RETRY_MS
        store.hanging = {"keep": (slow := asyncio.Event())}
        test = asyncio.create_task(stored_snapshot(shared))
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await stored_snapshot(shared)
        slow.set()
        assert await test
        assert await stored_snapshot(shared)


@pytest.mark.parametrize("hangs", ["s", PROBE])
async def test_a_look_up_without_an_answer_is_sent_again(hangs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over another connection: after a break of the network that one works first. So is its probe."""
    monkeypatch.setattr(store_calls, "AGAIN_MS", 1)
    store = Snapshots()
    store.hanging = {hangs: asyncio.Event()}
    async with calls_of() as calls:
        calls.snapshots.is_open = hangs == PROBE
        assert await GuardedStore(store, calls, look_up_ms=NEVER_MS).has_snapshot("s")
        assert not calls.snapshots.is_open
    assert store.requests[:2] == [hangs, hangs]


async def test_look_ups_wait_for_the_store_with_one_probe() -> None:
    """A resume is not sent away by a store that comes back; not each that waits sends a request."""
    store = Snapshots()
    store.is_away = True
    async with calls_of() as calls:
        snapshots = GuardedStore(store, calls, look_up_ms=NEVER_MS)
        with pytest.raises(StoreUnavailable):
            await stored_snapshot(snapshots)
        waiting = [asyncio.create_task(snapshots.has_snapshot("s")) for _ in range(20)]
        await store.probed.wait()
        assert store.requests == ["keep", PROBE]
        store.is_away = False
        assert all(await asyncio.gather(*waiting))
        assert set(store.requests[1:-20]) == {PROBE}
        await calls.pause(NEVER_MS)  # the missing state is written at once, too


async def test_a_store_that_refuses_what_its_probe_does_not_gets_requests_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that takes no writes: the probe reads. Each further try takes a pause, and no loop runs hot."""
    store, pauses = Snapshots(), list[float]()
    sleep = asyncio.sleep

    async def paused(for_s: float) -> None:
        pauses.append(for_s)
        if len(pauses) == 3:
            store.refuses = ""
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", paused)
    store.refuses = "take"
    async with calls_of() as calls:
        snapshots = GuardedStore(store, calls, look_up_ms=NEVER_MS)
        assert await snapshots.acquire_snapshot("s", digest="d", owner="o", next_digest="e") == b"stored"
    assert store.requests.count("take") == 1 + len(pauses) == 4


async def test_a_look_up_ends_in_its_time() -> None:
    store = Snapshots()
    store.is_away = True
    async with calls_of() as calls:
        snapshots = GuardedStore(store, calls, look_up_ms=1)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await snapshots.has_snapshot("s")


async def test_a_server_that_hangs_holds_no_resume(redis: RedisServer) -> None:
    """The session is found as soon as the server answers; until then a look-up ends in its time."""
    async with open_redis(redis.url, "guarded") as store, open_resilient(store, StorageHealth(unix_ms)) as cluster:
        snapshots = cluster.node_store
        assert isinstance(snapshots, GuardedStore)
        assert await stored_snapshot(snapshots)
        redis.freeze()
        try:
            with pytest.raises(StoreUnavailable):
                await snapshots.has_snapshot("s")
            waiting = asyncio.create_task(snapshots.acquire_snapshot("s", digest="d", owner="other", next_digest="e"))
        finally:
            redis.thaw()
        assert await waiting == b"t"
