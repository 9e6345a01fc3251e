"""The snapshots of sessions on three servers: one that hangs, is gone, or has an old copy changes nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pytest

from tests.cluster.snapshot_rules import check_next_secret, check_one_owner
from tests.cluster.stores import open_redis
from voicepipe.clock import monotonic_ms, unix_ms
from voicepipe.cluster import snapshot_quorum
from voicepipe.cluster.port import LeftSnapshot
from voicepipe.cluster.redis import RedisCluster
from voicepipe.cluster.redis_calls import RedisCalls
from voicepipe.cluster.snapshot_quorum import SnapshotQuorum
from voicepipe.cluster.snapshot_scripts import ACQUIRE_SNAPSHOT
from voicepipe.errors import ConfigError, StoreUnavailable, StoreUndecided
from voicepipe.storage import StorageHealth
from voicepipe.testing.redis import RedisServer, redis_server
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

T = TypeVar("T")

LIFE_S = 120
LEFT_S = 60


@dataclass(slots=True)
class Stores:
    """Three servers, and a process that uses them."""

    servers: list[RedisServer]
    name: str
    health: StorageHealth
    cluster: RedisCluster

    @property
    def quorum(self) -> SnapshotQuorum:
        """Return what is tested."""
        assert isinstance(self.cluster.snapshots, SnapshotQuorum)
        return self.cluster.snapshots

    @property
    def calls(self) -> list[RedisCalls]:
        """Return the connections to each server."""
        return [server.calls for server in self.quorum._servers]

    @property
    def prefix(self) -> str:
        """Return the prefix of the keys of snapshots."""
        return self.calls[0]._prefix

    async def stored_on(self, session_id: str = "s", *, field: str = "snapshot") -> list[bytes | None]:
        """Return what each server has."""
        key = f"{self.prefix}snapshot:{session_id}"
        return [await calls.command("HGET", key, field) for calls in self.calls]

    async def aged(self, by_s: int, *numbers: int, session_id: str = "s") -> None:
        """Have servers take the snapshot for one that was written earlier than it was."""
        for number in numbers:
            await self.calls[number].command("EXPIRE", f"{self.prefix}snapshot:{session_id}", LIFE_S - by_s)
            await self.calls[number].command("ZINCRBY", f"{self.prefix}snapshots", -by_s, session_id)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with redis_server("redis") as one, redis_server("redis") as other, redis_server("redis") as third:
        yield [one, other, third]


@pytest.fixture
async def stores(servers: list[RedisServer]) -> AsyncIterator[Stores]:
    health, name = StorageHealth(unix_ms), secrets.token_hex(4)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_redis(
                servers[0].url,
                name,
                snapshot_urls=[server.url for server in servers],
                health=health,
                snapshot_ms=int(WAIT_S * 1_000),
            )
        )
        yield Stores(servers, name, health, cluster)


@contextmanager
def frozen(*servers: RedisServer) -> Iterator[None]:
    """Have servers hang."""
    for server in servers:
        server.freeze()
    try:
        yield
    finally:
        for server in servers:
            server.thaw()


async def stored(quorum: SnapshotQuorum, body: bytes = b"1", *, owner: str = "o", digest: str = "d") -> bool:
    return await quorum.store_snapshot("s", body, digest=digest, owner=owner, life_s=LIFE_S)


async def acquired(quorum: SnapshotQuorum, owner: str, digest: str = "d") -> bytes | None:
    return await quorum.acquire_snapshot("s", digest=digest, owner=owner, next_digest=f"{owner}'s next")


async def leased(quorum: SnapshotQuorum, lease: str) -> LeftSnapshot | None:
    return await quorum.lease_left_snapshot(after_s=LEFT_S, life_s=LIFE_S, lease=lease)


async def decided(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call, repeated as its callers do while the servers disagree: a slow one decides."""

    async def outcome() -> tuple[T] | None:
        try:
            return (await call(),)
        except StoreUndecided:
            return None

    return (await eventually(outcome))[0]


async def until_stored_on(stores: Stores, *expected: bytes | None, field: str = "snapshot") -> None:
    """Wait until the servers have these: the last one gets a write after the call has returned."""

    async def read() -> bool | None:
        return await stores.stored_on(field=field) == list(expected) or None

    await eventually(read)


async def test_all_servers_get_each_snapshot(stores: Stores) -> None:
    assert await stored(stores.quorum)
    await until_stored_on(stores, b"1", b"1", b"1")


@pytest.mark.parametrize("hung", [0, 1, 2])
async def test_the_rules_hold_while_a_server_hangs(stores: Stores, hung: int) -> None:
    """Nothing waits for it: its requests end only when it is back."""
    with frozen(stores.servers[hung]):
        await check_one_owner(stores.quorum)
        await check_next_secret(stores.quorum)
        assert await stores.quorum.store_snapshot("u", b"1", digest="d", owner="o", life_s=LIFE_S)
        assert await leased(stores.quorum, "1") is None


async def test_a_server_that_has_missed_writes_decides_nothing(stores: Stores) -> None:
    """It takes what it missed from the next write. A late one changes nothing."""
    quorum = stores.quorum
    assert await stored(quorum, b"1")
    await until_stored_on(stores, b"1", b"1", b"1")
    with frozen(stores.servers[2]):
        assert await stored(quorum, b"2", digest="e")
        assert await acquired(quorum, "new", "e") == b"2"
        assert await stored(quorum, b"3", owner="new", digest="f")
    assert not await stored(quorum, b"old", owner="o")
    await until_stored_on(stores, b"3", b"3", b"3")


async def test_an_acquisition_finds_the_latest_write_of_any_majority(stores: Stores) -> None:
    quorum = stores.quorum
    assert await stored(quorum, b"1")
    await until_stored_on(stores, b"1", b"1", b"1")
    key = f"{stores.prefix}snapshot:s"
    copy = await stores.calls[2].command("HGETALL", key)
    assert await stored(quorum, b"2", digest="e")
    await until_stored_on(stores, b"2", b"2", b"2")
    await stores.calls[2].command("HSET", key, *copy)  # as if it had missed the write
    with frozen(stores.servers[0]):
        assert await quorum.has_snapshot("s")
        assert await acquired(quorum, "new", "d") is None, "its secret was replaced"
        assert await acquired(quorum, "new", "e") == b"2"


async def test_a_deletion_counts_against_an_older_copy(stores: Stores) -> None:
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    key = f"{stores.prefix}snapshot:s"
    copy = await stores.calls[2].command("HGETALL", key)
    await quorum.delete_snapshot("s", owner="o")
    await until_stored_on(stores, None, None, None)
    await stores.calls[2].command("HSET", key, *copy)
    with frozen(stores.servers[0]):
        assert not await quorum.has_snapshot("s")
        assert await acquired(quorum, "new") is None


async def test_an_acquisition_that_no_majority_has_takes_nothing(stores: Stores) -> None:
    """Its process died in between. The owner goes on, and its client can resume with its latest secret."""
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    await stores.calls[2].evaluate(ACQUIRE_SNAPSHOT, "s", "dead", 1, "d", "dead's next", 0, 1)
    assert await stored(quorum, b"2", digest="e")
    with frozen(stores.servers[0]):
        assert await acquired(quorum, "new", "e") == b"2"
    assert not await stored(quorum, b"3", digest="f")


async def test_two_processes_that_acquire_at_once_do_not_both_own(stores: Stores, servers: list[RedisServer]) -> None:
    """Each round both have the right secret; at the end one of them can write."""
    urls = [server.url for server in servers]
    async with open_redis(urls[0], stores.name, snapshot_urls=urls, snapshot_ms=int(WAIT_S * 1_000)) as other_cluster:
        assert isinstance(other_cluster.snapshots, SnapshotQuorum)
        digest = "d"
        assert await stored(stores.quorum, digest=digest)
        for number in range(30):
            both = [(stores.quorum, f"one{number}"), (other_cluster.snapshots, f"other{number}")]
            found = await asyncio.gather(*(decided(partial(acquired, quorum, owner, digest)) for quorum, owner in both))
            writes = [
                await decided(partial(stored, quorum, b"1", owner=owner, digest=f"{owner}'s"))
                for (quorum, owner), body in zip(both, found, strict=True)
                if body is not None
            ]
            assert writes.count(True) <= 1, f"round {number}"
            if not any(writes):  # neither had a majority: their clients would try again
                assert await decided(partial(acquired, stores.quorum, f"third{number}", digest)) is not None
                assert await stored(stores.quorum, b"1", owner=f"third{number}", digest=f"third{number}'s")
                digest = f"third{number}'s"
            else:
                owners = [owner for (_, owner), body in zip(both, found, strict=True) if body is not None]
                digest = f"{owners[writes.index(True)]}'s"


async def test_a_majority_that_hangs_is_a_failure(stores: Stores) -> None:
    async with open_redis(
        stores.servers[2].url, "few", snapshot_urls=[each.url for each in stores.servers], snapshot_ms=50
    ) as few:
        with frozen(*stores.servers[:2]), pytest.raises(StoreUnavailable):
            await few.snapshots.has_snapshot("s")


async def test_a_server_that_hangs_holds_few_requests(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on, and it gets the next write when it is back."""
    monkeypatch.setattr(snapshot_quorum, "MAX_WAITING", 3)
    monkeypatch.setattr(snapshot_quorum, "HANGS_MS", -1)
    with frozen(stores.servers[2]):
        for number in range(8):
            assert await stored(stores.quorum, str(number).encode())
        assert stores.quorum._servers[2].n_waiting == 3

    async def idle() -> bool | None:
        return stores.quorum._servers[2].n_waiting == 0 or None

    await eventually(idle)
    assert await stored(stores.quorum, b"last")
    await until_stored_on(stores, b"last", b"last", b"last")


@pytest.mark.parametrize("paused_ms", [0, 10 * snapshot_quorum.HANGS_MS])
async def test_servers_that_answer_get_all_requests(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, paused_ms: int
) -> None:
    """Many sessions may write at the same time, also while this process gets no CPU time."""
    readings_ms: list[int] = []

    def paused_clock() -> int:
        """Return a time that is later by the pause once each server has a request."""
        readings_ms.append(monotonic_ms() + (paused_ms if len(readings_ms) >= len(stores.servers) else 0))
        return readings_ms[-1]

    monkeypatch.setattr(snapshot_quorum, "monotonic_ms", paused_clock)
    n_sessions = 3 * snapshot_quorum.MAX_WAITING
    writes = (
        stores.quorum.store_snapshot(f"s{number}", b"1", digest="d", owner="o", life_s=LIFE_S)
        for number in range(n_sessions)
    )
    assert await asyncio.gather(*writes) == [True] * n_sessions


async def test_an_acquisition_that_comes_late_changes_nothing(stores: Stores) -> None:
    """A server that hung carries it out when its process has long written, and the client has a newer secret."""
    quorum = stores.quorum
    assert await stored(quorum)
    assert await acquired(quorum, "new") == b"1"
    assert await stored(quorum, b"2", owner="new", digest="latest")
    await until_stored_on(stores, b"2", b"2", b"2")
    for calls in stores.calls:
        assert await calls.evaluate(ACQUIRE_SNAPSHOT, "s", "new", 1, "d", "new's next", 0, 1) == [b"lost"]
    assert await acquired(quorum, "third", "latest") == b"2"


async def test_a_secret_that_was_replaced_is_not_good_at_a_server_that_missed_that(stores: Stores) -> None:
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    for calls in stores.calls[:2]:
        await calls.evaluate(ACQUIRE_SNAPSHOT, "s", "new", 1, "d", "e", 0, 1)
        await calls.evaluate(ACQUIRE_SNAPSHOT, "s", "third", 2, "e", "f", 0, 1)
    for hung in (0, 1):
        with frozen(stores.servers[hung]):
            for _ in range(5):
                assert await acquired(quorum, "old", "d") is None


async def test_one_server_that_is_gone_is_reported_once_and_costs_nothing(stores: Stores) -> None:
    stores.servers[1].kill()
    try:
        for _ in range(3):
            assert await stored(stores.quorum)
        await eventually(_reported(stores.health, ["snapshots"]))
        assert stores.health.failures("snapshots") == 1
    finally:
        stores.servers[1].start()
    assert await stored(stores.quorum, b"2")
    await eventually(_reported(stores.health, []))
    await until_stored_on(stores, b"2", b"2", b"2")


def _reported(health: StorageHealth, expected: list[str]) -> Callable[[], Awaitable[bool | None]]:
    async def read() -> bool | None:
        return [each.store for each in health.failing_stores()] == expected or None

    return read


async def test_a_start_needs_a_majority(servers: list[RedisServer]) -> None:
    urls, health = [server.url for server in servers], StorageHealth(unix_ms)
    servers[2].kill()
    try:
        async with open_redis(urls[0], "start", snapshot_urls=urls, health=health) as cluster:
            assert isinstance(cluster.snapshots, SnapshotQuorum)
            assert await stored(cluster.snapshots)
        assert [each.store for each in health.failing_stores()] == ["snapshots"]
        servers[1].kill()
        try:
            with pytest.raises(ConfigError, match=r"cluster\.snapshot_stores: the server can't be used"):
                async with open_redis(urls[0], "start", snapshot_urls=urls):
                    pass
        finally:
            servers[1].start()
    finally:
        servers[2].start()


async def test_a_server_that_refuses_is_an_error_at_the_start(servers: list[RedisServer]) -> None:
    urls = [servers[0].url, servers[1].url, servers[2].url.replace(":a-password", ":wrong-password")]
    with pytest.raises(ConfigError, match=r"cluster\.snapshot_stores: .*WRONGPASS|invalid"):
        async with open_redis(urls[0], "wrong", snapshot_urls=urls):
            pass


async def test_a_session_that_is_left_is_ended_by_one_process(stores: Stores) -> None:
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    assert await leased(quorum, "1") is None, "it was just written"
    await stores.aged(LEFT_S + 1, 0, 1, 2)
    assert await leased(quorum, "1") == LeftSnapshot("s", b"1")
    # A server that gets this lease last may give the second one instead, and would then not delete for the first.
    await until_stored_on(stores, b"1", b"1", b"1", field="lease")
    assert await leased(quorum, "2") is None
    await quorum.delete_left_snapshot("s", lease="1")
    await until_stored_on(stores, None, None, None)
    assert not await quorum.has_snapshot("s")


async def test_a_server_that_has_missed_a_deletion_drops_it(stores: Stores) -> None:
    """Its old copy is no session that is left."""
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    key = f"{stores.prefix}snapshot:s"
    copy = await stores.calls[2].command("HGETALL", key)
    await quorum.delete_snapshot("s", owner="o")
    await until_stored_on(stores, None, None, None)
    await stores.calls[2].command("HSET", key, *copy)
    await stores.calls[2].command("ZADD", f"{stores.prefix}snapshots", 1, "s")
    await stores.aged(LEFT_S + 1, 2)
    with frozen(stores.servers[0]):
        assert await leased(quorum, "1") is None
    await until_stored_on(stores, None, None, b"1")

    async def dropped() -> bool | None:
        """Search again, as each process does: the first two answers may be those of the other servers.

        The server may also get the deletion before the lease that it is for. Then its copy has to age again.
        """
        await stores.aged(LEFT_S + 1, 2)
        assert await leased(quorum, "2") is None
        return await stores.stored_on() == [None, None, None] or None

    await eventually(dropped)


async def test_a_node_with_another_list_has_snapshots_of_its_own(stores: Stores) -> None:
    """While a list is introduced, one node after the other: a majority of its servers is none of these."""
    urls = [server.url for server in stores.servers]
    assert await stored(stores.quorum)
    for others in ([], urls[:1], [*urls[1:], f"{urls[0].removesuffix('/0')}/1"]):
        async with open_redis(urls[0], stores.name, snapshot_urls=others) as cluster:
            assert not await cluster.snapshots.has_snapshot("s")
    async with open_redis(urls[0], stores.name, snapshot_urls=[*urls[1:], urls[0]]) as cluster:
        assert await cluster.snapshots.has_snapshot("s"), "the order does not matter"


async def test_an_owner_writes_again_though_a_dead_process_has_acquired_at_some_servers(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one server, while another one hangs: no majority stores it or refuses it. At two, each for itself."""
    monkeypatch.setattr(snapshot_quorum, "UNDECIDED_LIFE_MS", 0)
    quorum = stores.quorum
    assert await stored(quorum)
    await until_stored_on(stores, b"1", b"1", b"1")
    for number, dead in ((1, "dead"), (2, "other")):
        acquired_there = await stores.calls[number].evaluate(
            ACQUIRE_SNAPSHOT, "s", dead, 10 * number, "d", "x", 0, 1_000
        )
        assert acquired_there[0] == b"acquired"
        with frozen(stores.servers[0]):
            outcomes = [await outcome_of(quorum, body) for body in (b"2", b"3", b"4")]
        assert outcomes[-1] is True
        assert False not in outcomes, "nobody else has it"
    assert await stored(quorum, b"5")
    await until_stored_on(stores, b"5", b"5", b"5")


async def outcome_of(quorum: SnapshotQuorum, body: bytes) -> bool | None:
    """Return what a write says; None: the servers do not agree."""
    try:
        return await stored(quorum, body)
    except StoreUndecided:
        return None


async def test_an_owner_that_has_lost_the_session_does_not_take_it_back(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the servers do not agree for long: the new owner has written at a majority."""
    monkeypatch.setattr(snapshot_quorum, "UNDECIDED_LIFE_MS", 0)
    urls = [server.url for server in stores.servers]
    assert await stored(stores.quorum)
    async with open_redis(urls[0], stores.name, snapshot_urls=urls, snapshot_ms=int(WAIT_S * 1_000)) as other_cluster:
        other = other_cluster.snapshots
        assert isinstance(other, SnapshotQuorum)
        with frozen(stores.servers[2]):
            assert await acquired(other, "new") == b"1"
            assert await stored(other, b"2", owner="new", digest="e")
        with frozen(stores.servers[1]):
            outcomes = [await outcome_of(stores.quorum, b"old") for _ in range(4)]
        assert True not in outcomes
        assert await stored(other, b"3", owner="new", digest="e")
