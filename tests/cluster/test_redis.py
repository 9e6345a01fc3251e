"""A real Redis and a real Valkey: several processes, faults of the server, and what its errors may say."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from multiprocessing import get_context

import pytest
from redis.asyncio.connection import Connection

from tests.cluster.snapshot_rules import check_next_secret, check_one_owner
from tests.cluster.stores import ANSWER_MS, open_redis
from voicepipe.clock import unix_ms
from voicepipe.cluster.port import Cluster, CountResult, LeftSnapshot
from voicepipe.cluster.redis import RedisCluster
from voicepipe.cluster.resilient import ResilientOptions, open_resilient
from voicepipe.cluster.revocation import RevokedToken
from voicepipe.cluster.snapshot_quorum import FIRST_CONNECTIONS
from voicepipe.cluster.snapshot_scripts import DELETED_LIFE_S
from voicepipe.errors import ConfigError, StoreUnavailable
from voicepipe.storage import StorageHealth
from voicepipe.testing import redis as servers
from voicepipe.testing.conformance import cluster as suite
from voicepipe.testing.conformance import cluster_faults as faults
from voicepipe.testing.conformance.cluster import LATER_S, NOW_S, claims_of
from voicepipe.testing.redis import PASSWORD, RedisServer
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow


def sessions_opened(url: str, cluster_name: str, n_tries: int) -> int:
    """Try to open sessions with one token, in a process of its own; how many it got."""

    async def tries() -> int:
        async with open_redis(url, cluster_name) as cluster:
            results = [
                await cluster.count("token/shop/t1/sessions", 1, limit=5, until_s=LATER_S, now_s=NOW_S)
                for _ in range(n_tries)
            ]
            return sum(result.counted for result in results)

    return asyncio.run(tries())


def test_processes_that_race_for_max_sessions_get_as_many_as_it_says(redis: RedisServer) -> None:
    """Five sessions in all, of sixteen tries in each of two processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        both = [pool.submit(sessions_opened, redis.url, "race", 16) for _ in range(2)]
        assert sum(one.result(timeout=60) for one in both) == 5


async def test_clusters_of_other_names_share_nothing(redis: RedisServer) -> None:
    """Two clusters may use one server: revocations, counts, configs and slots are of one of them."""
    async with open_redis(redis.url, "one") as one, open_redis(redis.url, "other") as other:
        await one.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
        await one.store_config("c", b"{}", project="shop", until_s=LATER_S, now_s=NOW_S)
        await one.revoke(RevokedToken.at(NOW_S, "shop", "t1"), now_s=NOW_S)
        await one.take_slots("s1", {"m": 1}, owner="p", until_s=LATER_S, now_s=NOW_S)
        assert await other.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S) == CountResult(1, counted=True)
        assert await other.config("c", project="shop", now_s=NOW_S) is None
        assert not await other.is_revoked(claims_of(token_id="t1"))
        assert await other.slots_taken("m", now_s=NOW_S) == 0


async def test_every_key_expires(redis: RedisServer) -> None:
    """Whatever is stored ends by itself: no cluster fills a server with what has expired."""
    async with open_redis(redis.url, "life") as cluster:
        await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
        await cluster.store_config("c", b"{}", project="shop", until_s=LATER_S, now_s=NOW_S)
        await cluster.revoke(RevokedToken.at(NOW_S, "shop", "t1"), now_s=NOW_S)
        await cluster.take_slots("s1", {"m": 1}, owner="p", until_s=LATER_S, now_s=NOW_S)
        await cluster.renew_slots("p", until_s=LATER_S, now_s=NOW_S)
        keys = await cluster._calls.command("KEYS", "voicepipe:{life}:*")
        lives_s = {key.decode(): await cluster._calls.command("TTL", key) for key in keys}
    assert len(lives_s) >= 8
    assert all(life_s > 0 for life_s in lives_s.values()), lives_s


async def test_a_watch_sees_what_is_revoked_after_the_server_has_lost_its_data(redis: RedisServer) -> None:
    """The numbers of revocations do not begin again."""
    async with (
        open_redis(redis.url, "flush", poll_ms=5) as cluster,
        asyncio.timeout(WAIT_S),
        aclosing(cluster.revocations()) as watch,
    ):
        for number in range(3):
            await cluster.revoke(RevokedToken.at(NOW_S, "shop", f"t{number}"), now_s=NOW_S)
            await anext(watch)
        await cluster._calls.command("FLUSHALL")
        await cluster.revoke(RevokedToken.at(NOW_S, "shop", "t9"), now_s=NOW_S)
        assert (await anext(watch)).covers(claims_of(token_id="t9"))


async def test_more_revocations_than_one_read_are_all_seen(redis: RedisServer) -> None:
    """A process that starts late reads them in several requests."""
    async with open_redis(redis.url, "many") as cluster:
        every = [f"t{number}" for number in range(1_100)]
        for first in range(0, len(every), 50):
            some = (RevokedToken.at(NOW_S, "shop", t) for t in every[first : first + 50])
            await asyncio.gather(*(cluster.revoke(each, now_s=NOW_S) for each in some))
        seen = set()
        async with asyncio.timeout(WAIT_S), aclosing(cluster.revocations()) as watch:
            async for revocation in watch:
                assert isinstance(revocation, RevokedToken)
                seen.add(revocation.token_id)
                if len(seen) == len(every):
                    break


async def test_a_write_that_hangs_has_its_effect_once(redis: RedisServer) -> None:
    """The server is stopped while it has the request: the client sends it again, and the server gets both."""
    async with open_redis(redis.url, "hang", answer_ms=50) as cluster:
        await cluster.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
        redis.freeze()
        async with asyncio.TaskGroup() as group:
            write = group.create_task(cluster.count("n", 10, limit=None, until_s=LATER_S, now_s=NOW_S), name="write")
            done, _ = await asyncio.wait({write}, timeout=0.4)
            assert not done
            redis.thaw()
        assert write.result() == CountResult(11, counted=True)
        assert (await cluster.count("n", 0, limit=None, until_s=LATER_S, now_s=NOW_S)).total == 11


async def test_a_write_that_a_killed_server_has_done_is_not_done_again(redis: RedisServer) -> None:
    """It has synced the write, and the answer was lost: the next server on the same data knows its number."""
    async with open_redis(redis.url, "killed", answer_ms=100) as cluster:
        await cluster.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
        lost = _LosesAnswers(cluster)
        async with asyncio.TaskGroup() as group:
            write = group.create_task(cluster.count("n", 10, limit=None, until_s=LATER_S, now_s=NOW_S), name="write")
            await lost.one.wait()
            redis.kill()
            await asyncio.to_thread(redis.start)
        assert write.result() == CountResult(11, counted=True)


class _LosesAnswers:
    """Lose the answer to the next request, once the server has given it."""

    def __init__(self, cluster: object) -> None:
        self.one = asyncio.Event()
        self._pool = cluster._calls._pool  # type: ignore[attr-defined]
        self._pool.get_connection, self._real = self._get, self._pool.get_connection

    async def _get(self) -> object:
        connection = await self._real()
        self._pool.get_connection = self._real
        read = connection.read_response

        async def lost() -> object:
            connection.read_response = read
            await read()
            self.one.set()
            raise ConnectionResetError

        connection.read_response = lost
        return connection


async def test_a_read_of_a_server_that_hangs_ends_in_its_time(redis: RedisServer) -> None:
    """Of many that wait, more than there are connections, each ends; afterwards the server is used as before."""
    async with open_redis(redis.url, "read", answer_ms=50) as cluster:
        redis.freeze()
        try:
            async with asyncio.timeout(WAIT_S):
                reads = (cluster.slots_taken("m", now_s=NOW_S) for _ in range(100))
                answers = await asyncio.gather(*reads, return_exceptions=True)
        finally:
            redis.thaw()
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert {answer.kind for answer in answers if isinstance(answer, StoreUnavailable)} == {"unreachable"}

        async def is_used() -> bool | None:
            try:
                return await cluster.slots_taken("m", now_s=NOW_S) == 0
            except StoreUnavailable:  # a busy machine takes longer than 50 ms for a new connection
                return None

        assert await eventually(is_used)


async def test_a_text_has_longer_than_a_check(redis: RedisServer) -> None:
    """Over connections of its own: a server that is too slow for checks stores it. A check ends in its time."""
    async with open_redis(redis.url, "slow", answer_ms=50, snapshot_ms=int(WAIT_S * 1_000)) as cluster:
        redis.freeze()
        try:
            writing = asyncio.create_task(cluster.snapshots.store_snapshot("s", b"t", digest="d", owner="o", life_s=60))
            with pytest.raises(StoreUnavailable):
                await cluster.slots_taken("machine", now_s=1)
        finally:
            redis.thaw()
        assert await writing


async def test_a_server_that_is_full_says_so(redis: RedisServer) -> None:
    """It refuses writes and answers reads."""
    async with open_redis(redis.url, "full") as cluster:
        await cluster._calls.command("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
        try:
            with pytest.raises(StoreUnavailable) as met:
                await cluster.count("n", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
            assert met.value.kind == "full"
            assert await cluster.slots_taken("m", now_s=NOW_S) == 0
        finally:
            await cluster._calls.command("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://me:{password}@127.0.0.1", "expected an address such as redis://"),
        ("redis://me:{password}@127.0.0.1:port", "expected an address such as redis://"),
        ("redis://:{password}@127.0.0.1:1/0", "127.0.0.1:1: "),
        ("valkey://:wrong-{password}@127.0.0.1:{port}/0", "WRONGPASS|invalid"),
    ],
)
async def test_what_is_wrong_with_the_address_is_said_without_the_password(
    redis: RedisServer, url: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as met:
        async with open_redis(url.format(password=PASSWORD, port=redis.port), "x"):
            pass
    assert PASSWORD not in str(met.value)
    assert "cluster.store" in str(met.value)


async def test_the_log_of_a_failure_has_no_password(redis: RedisServer) -> None:
    """Even where the server repeats what it was sent."""
    async with open_redis(redis.url, "log") as cluster:
        with pytest.raises(StoreUnavailable) as met:
            await cluster._calls.command("NO-SUCH-COMMAND", PASSWORD)
    assert "***" in met.value.detail
    assert PASSWORD not in met.value.detail


def test_a_server_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that needs an absent server fails; it does not skip."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(servers.RedisError, match="redis-server`"), servers.redis_server("redis"):
        pass


async def test_snapshots_of_sessions_follow_the_rules(redis: RedisServer) -> None:
    async with open_redis(redis.url, "text") as cluster:
        await check_one_owner(cluster.snapshots)
        await check_next_secret(cluster.snapshots)


async def test_a_text_needs_one_request_from_the_start(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scripts are known to a server that has just been started."""
    sent: list[object] = []
    send = Connection.send_command

    async def noted(self: Connection, *parts: object, **options: object) -> None:
        sent.append(parts[0])
        await send(self, *parts, **options)

    redis.stop()
    redis.start()
    async with open_redis(redis.url, "first") as cluster:
        monkeypatch.setattr(Connection, "send_command", noted)
        assert await cluster.snapshots.store_snapshot("s", b"1", digest="d", owner="o", life_s=60)
        assert await cluster.snapshots.has_snapshot("s")
        assert await cluster.snapshots.acquire_snapshot("s", digest="d", owner="p", next_digest="e") == b"1"
        await cluster.snapshots.delete_snapshot("s", owner="p")
    assert sent == ["EVALSHA"] * 4


async def test_look_ups_need_no_new_connection_at_first(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow server takes some answers to make one, and a resume would wait for all."""
    async with open_redis(redis.url, "warm") as cluster:

        async def refused(self: Connection) -> None:
            raise OSError("no connection is made")

        monkeypatch.setattr(Connection, "_connect", refused)
        looked_up = [cluster.snapshots.has_snapshot("s") for _ in range(FIRST_CONNECTIONS)]
        assert await asyncio.gather(*looked_up) == [False] * FIRST_CONNECTIONS


async def test_a_text_expires(redis: RedisServer) -> None:
    """Each write gives it a new life."""
    async with open_redis(redis.url, "expiry") as cluster:
        for life_s in (60, 120):
            await cluster.snapshots.store_snapshot("s", b"1", digest="d", owner="p", life_s=life_s)
            assert 0 < await cluster._calls.command("TTL", "voicepipe:{expiry}:snapshot:s") <= life_s


async def aged(cluster: RedisCluster, session_id: str, by_s: int) -> None:
    """Have a text of 120 s be written earlier than it was."""
    await cluster._calls.command("EXPIRE", f"{cluster._prefix}snapshot:{session_id}", 120 - by_s)
    await cluster._calls.command("ZINCRBY", f"{cluster._prefix}snapshots", -by_s, session_id)


async def stored(cluster: RedisCluster, session_id: str = "s") -> bool:
    """Store a text of 120 s."""
    return await cluster.snapshots.store_snapshot(session_id, session_id.encode(), digest="d", owner="o", life_s=120)


async def leased(cluster: RedisCluster, lease: str) -> LeftSnapshot | None:
    """Lease a text that was not written for 60 s."""
    return await cluster.snapshots.lease_left_snapshot(after_s=60, life_s=120, lease=lease)


async def test_a_text_that_is_not_written_is_leased_to_one_process(redis: RedisServer) -> None:
    """One that dies too leaves it to the next, some time later. Its client can still take it."""
    async with open_redis(redis.url, "left") as cluster:
        assert await stored(cluster)
        assert await leased(cluster, "1") is None, "its process writes it"
        await aged(cluster, "s", 61)
        assert await leased(cluster, "1") == LeftSnapshot("s", b"s")
        assert await leased(cluster, "2") is None
        await aged(cluster, "s", 61)
        assert await leased(cluster, "2") == LeftSnapshot("s", b"s")
        await cluster.snapshots.delete_left_snapshot("s", lease="1")
        assert await cluster.snapshots.acquire_snapshot("s", digest="d", owner="p", next_digest="e") == b"s"
        await cluster.snapshots.delete_left_snapshot("s", lease="2")
        assert await cluster.snapshots.has_snapshot("s"), "it was taken"


async def test_a_text_that_is_written_again_is_not_dropped(redis: RedisServer) -> None:
    """Its process was away from the store for a while, and lives."""
    async with open_redis(redis.url, "back") as cluster:
        assert await stored(cluster)
        await aged(cluster, "s", 61)
        assert await leased(cluster, "1") is not None
        assert await stored(cluster)
        await cluster.snapshots.delete_left_snapshot("s", lease="1")
        assert await cluster.snapshots.has_snapshot("s")


async def test_snapshots_that_are_gone_leave_no_trace(redis: RedisServer) -> None:
    """Expired, dropped by their own process, or ended for it."""
    async with open_redis(redis.url, "gone") as cluster:
        for name in ("expired", "over", "left"):
            assert await stored(cluster, name)
        await cluster._calls.command("DEL", f"{cluster._prefix}snapshot:expired")
        await cluster.snapshots.delete_snapshot("over", owner="o")
        for name in ("expired", "left"):
            await cluster._calls.command("ZINCRBY", f"{cluster._prefix}snapshots", -61, name)
        await cluster._calls.command("EXPIRE", f"{cluster._prefix}snapshot:left", 59)
        assert await leased(cluster, "1") == LeftSnapshot("left", b"left")
        await cluster.snapshots.delete_left_snapshot("left", lease="1")
        left = await cluster._calls.command("KEYS", f"{cluster._prefix}snapshot*")
        assert len(left) == 2, "their deletions, for the servers that miss them"
        for key in left:
            assert not await cluster._calls.command("HEXISTS", key, "snapshot")
            assert 0 < await cluster._calls.command("TTL", key) <= DELETED_LIFE_S


async def test_a_text_that_the_index_lacks_a_write_of_is_not_left(redis: RedisServer) -> None:
    """A version without the index writes it, in a rolling upgrade: its life says that it was written."""
    async with open_redis(redis.url, "index") as cluster:
        assert await stored(cluster)
        await cluster._calls.command("ZINCRBY", f"{cluster._prefix}snapshots", -61, "s")
        assert await leased(cluster, "1") is None


async def test_a_process_is_listed_until_its_announcement_expires(redis: RedisServer) -> None:
    """The latest one of each process counts; the clock is the store's."""
    async with open_redis(redis.url, "presence") as cluster:
        assert await cluster.announced() == []
        epoch = await cluster.announce("a", b"1", life_s=60)
        await cluster.announce("a", b'{"x": "2 3"}', life_s=60)
        assert await cluster.announce("b", b"4", life_s=1) == epoch, "the data are the same"

        async def only_one() -> bool | None:
            return await cluster.announced() == [b'{"x": "2 3"}'] or None

        lasts_s = await cluster._calls.command("TTL", "voicepipe:{presence}:nodes")
        assert lasts_s > 1, "a short announcement leaves the others' life as it was"
        await eventually(only_one)
        await cluster.announce("c", b"5", life_s=60)
        names = await cluster._calls.command("HKEYS", "voicepipe:{presence}:nodes")
        assert sorted(names) == [b"a", b"c"], "expired ones are deleted"


# --- faults ---------------------------------------------------------------------------------


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


@contextmanager
def killed(server: RedisServer) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


FAULTS = {"frozen": frozen, "killed": killed}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("check", faults.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_check_passes_during_faults(check: faults.FaultCheck, fault: str, redis: RedisServer) -> None:
    name = secrets.token_hex(4)

    @asynccontextmanager
    async def faulty() -> AsyncIterator[faults.FaultyStore]:
        yield faults.FaultyStore(
            open_store=lambda: open_redis(redis.url, name, poll_ms=10, answer_ms=150),
            failing=lambda: FAULTS[fault](redis),
            can_read=False,
        )

    def open_faulty() -> AbstractAsyncContextManager[faults.FaultyStore]:
        return faulty()

    await check(open_faulty)


@pytest.mark.parametrize("check", suite.CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_check_passes_without_faults(check: suite.ConformanceCheck, redis: RedisServer) -> None:
    """Standing before the server changes nothing."""
    name, options = secrets.token_hex(4), ResilientOptions(answer_ms=ANSWER_MS)

    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        async with (
            open_redis(redis.url, name, poll_ms=10) as store,
            open_resilient(store, _quiet(), options) as cluster,
        ):
            yield cluster

    await check(open_cluster)


async def test_a_server_that_comes_and_goes_counts_each_once(redis: RedisServer) -> None:
    """Counts of one process while its server is stopped, thawed, killed and started again: their sum is right."""
    async with open_redis(redis.url, "comes", answer_ms=100) as store:
        options = ResilientOptions(answer_ms=150, first_pause_ms=5, last_pause_ms=20)
        async with open_resilient(store, _quiet(), options) as cluster:
            for fault in (frozen, killed, frozen, killed):
                with fault(redis):
                    await asyncio.gather(*(_count(cluster) for _ in range(10)))
                await asyncio.gather(*(_count(cluster) for _ in range(10)))
    async with open_redis(redis.url, "comes") as store:
        assert (await store.count("n", 0, limit=None, until_s=LATER_S, now_s=NOW_S)).total == 80


async def _count(cluster: Cluster) -> None:
    now_s = unix_ms() // 1_000
    await cluster.count("n", 1, limit=None, until_s=now_s + 600, now_s=now_s)


def _quiet() -> StorageHealth:
    return StorageHealth(unix_ms)


def test_the_server_of_the_tests_leaves_no_folder(redis: RedisServer) -> None:
    with servers.redis_server(redis.kind) as other:
        folder = other.folder
        assert folder.is_dir()
    assert not folder.exists()


async def test_an_event_is_read_by_each_node_that_reads(redis: RedisServer) -> None:
    """A node reads from its start on. Events that no node reads are not requested."""
    async with open_redis(redis.url, "events") as cluster:
        assert not await cluster.are_events_requested()
        await cluster.send_events([b"before"])
        starts = [(await cluster.events_after("", limit=9, requested_s=60))[0] for _ in range(2)]
        assert await cluster.are_events_requested()
        await cluster.send_events([b"1", b"2"])
        await cluster.send_events([b"3"])
        for start in starts:
            last_id, events = await cluster.events_after(start, limit=2, requested_s=60)
            assert events[-2:] == [b"1", b"2"]
            assert (await cluster.events_after(last_id, limit=9, requested_s=60))[1] == [b"3"]


async def test_a_hint_has_an_age_and_expires(redis: RedisServer) -> None:
    """The latest of each process and kind counts; the clock is the store's."""
    async with open_redis(redis.url, "hints") as cluster:
        await cluster.store_hint("k", "a", b"1", life_s=60)
        await cluster.store_hint("k", "a", b'{"x": "2 3"}', life_s=60)
        await cluster.store_hint("other", "a", b"4", life_s=60)
        await cluster.store_hint("k", "b", b"\x00\n5", life_s=60)
        found = sorted(await cluster.hints("k"), key=lambda each: each.process)
        assert [(each.process, each.body) for each in found] == [("a", b'{"x": "2 3"}'), ("b", b"\x00\n5")]
        assert all(0 <= each.age_ms < 60_000 for each in found)
        await cluster._calls.command("HSET", "voicepipe:{hints}:hints:k", "dead", "1 1 x")
        assert len(await cluster.hints("k")) == 2
        await cluster.store_hint("k", "b", b"6", life_s=1)
        lasts_s = await cluster._calls.command("TTL", "voicepipe:{hints}:hints:k")
        assert lasts_s > 1, "a short hint leaves the others' life as it was"
        assert not await cluster._calls.command("HEXISTS", "voicepipe:{hints}:hints:k", "dead")
