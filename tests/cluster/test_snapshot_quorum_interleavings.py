"""Random interleavings of nodes, servers and a client: what holds for the snapshots of a session in each of them.

The real scripts run in a real server, with the prefix of each of three simulated ones. Requests and answers are
delayed, dropped and reordered in virtual time; a request of a caller that has given up may still have its effect.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import redis

from voicepipe.clock import unix_ms
from voicepipe.cluster.guarded import GuardedStore
from voicepipe.cluster.port import NodeStore
from voicepipe.cluster.redis_calls import RedisCalls
from voicepipe.cluster.snapshot_quorum import SnapshotQuorum
from voicepipe.cluster.store_calls import StoreCalls
from voicepipe.errors import Overload, StoreUnavailable
from voicepipe.evals.virtual_time import run_in_virtual_time
from voicepipe.storage import StorageHealth
from voicepipe.tasks import background_tasks
from voicepipe.testing.redis import redis_server

pytestmark = pytest.mark.slow

SEEDS = (4, 10, 11, 16, 21, 27, 1054, 1319)
SESSION = "s"
TIMEOUT_S = 5.0
STEPS = 12
"""Things that happen in one run."""


@dataclass(slots=True)
class Server:
    """One of three servers, which may hang: then it carries out later what it was sent."""

    connection: redis.Redis
    prefix: str
    is_hung: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    scripts: dict[str, Any] = field(default_factory=dict)

    def run(self, script: str, arguments: tuple[Any, ...]) -> Any:
        return self.connection.eval(script, 1, self.prefix, *arguments)

    def owner(self) -> bytes | None:
        return cast("bytes | None", self.connection.hget(f"{self.prefix}snapshot:{SESSION}", "owner"))

    def wake(self, rng: random.Random) -> None:
        self.is_hung = False
        waiting, self.waiting = self.waiting, []
        rng.shuffle(waiting)  # each came over its own connection
        for arrive in waiting:
            arrive()


@dataclass(slots=True)
class Calls:
    """The connection of one node to one server; stands in for `RedisCalls`."""

    server: Server
    rng: random.Random
    world: World
    address: str = "server"

    async def evaluate(self, script: str, *arguments: Any) -> Any:
        loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def arrive() -> None:
            if self.server.is_hung:
                self.server.waiting.append(arrive)
                return
            result = self.server.run(script, arguments)
            if not self.world.lost():
                loop.call_later(self.world.delay_s(), lambda: None if answer.done() else answer.set_result(result))

        if not self.world.lost():
            loop.call_later(self.world.delay_s(), arrive)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("unreachable", "no answer") from None


@dataclass(slots=True)
class Store:
    snapshots: SnapshotQuorum


@dataclass(slots=True)
class Node:
    """A process, until it dies."""

    name: str
    world: World
    store: GuardedStore
    acquired: int = 0
    """The number of its latest acquisition of the session for a client."""

    running: asyncio.Task[None] | None = None
    digest: str = ""
    former: str = ""
    stored: str = ""
    """The digest of its latest write that counts."""

    async def resume(self, digest: str) -> tuple[bytes, str] | None:
        """As `takeover.StoredSessions.resume`."""
        if not await self.store.has_snapshot(SESSION):
            return None
        self.world.n_secrets += 1
        next_digest = f"secret{self.world.n_secrets}"
        acked = self.world.acknowledged
        found = await self.store.acquire_snapshot(SESSION, digest=digest, owner=self.name, next_digest=next_digest)
        if found is None:
            return None
        assert int(found) >= acked, f"(b) {self.name} gets {found!r} where {acked} was acknowledged"
        self.world.n_acquired += 1
        self.acquired = self.world.n_acquired
        self.world.say(f"{self.name} acquires with {digest}: {found!r}, next {next_digest}")
        return found, next_digest

    def run(self, digest: str, former: str) -> None:
        self.digest, self.former = digest, former
        self.running = asyncio.create_task(self.write())

    async def write(self) -> None:
        """As `SnapshotWriter.run`."""
        while True:
            world = self.world
            world.n_bodies += 1
            number, began, digest, former = world.n_bodies, world.n_acquired, self.digest, self.former
            try:
                is_stored = await self.store.store_snapshot(
                    SESSION, b"%d" % number, digest=digest, owner=self.name, life_s=120, previous_digest=former
                )
            except Overload:
                await asyncio.sleep(1)
                continue
            if not is_stored:
                world.say(f"{self.name} is told that it has lost the session")
                others = [server.owner() for server in world.servers if server.owner() != self.name.encode()]
                most = max((others.count(other) for other in others), default=0)
                assert most >= 2 or world.n_acquired > self.acquired or world.acquirers - {self.name}, (
                    f"(c) {self.name} has lost the session to nobody"
                )
                self.running = None
                return
            assert began <= self.acquired, f"(a) {self.name} writes after an acquisition by another node"
            world.acknowledged = max(world.acknowledged, number)
            world.n_stored += 1
            world.stored.set()
            self.stored = digest
            await asyncio.sleep(world.rng.uniform(0.02, 0.3))


@dataclass(slots=True)
class World:
    """Servers, nodes, and one client with the latest secret that it knows."""

    rng: random.Random
    servers: list[Server]
    n_secrets: int = 0
    n_bodies: int = 0
    n_acquired: int = 0
    n_stored: int = 0
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: int = 0
    secret: str = "secret0"
    host: Node | None = None
    is_calm: bool = False
    nodes: list[Node] = field(default_factory=list)
    serving: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    acquirers: set[str] = field(default_factory=set)
    n_nodes: int = 0
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():8.3f} {line}")

    def lost(self) -> bool:
        return not self.is_calm and self.rng.random() < 0.02

    def delay_s(self) -> float:
        if self.is_calm or self.rng.random() < 0.7:
            return self.rng.uniform(0.0002, 0.003)
        return self.rng.choice((0.03, 0.3, 0.3, 2.0)) * self.rng.random()

    @asynccontextmanager
    async def node(self) -> AsyncIterator[Node]:
        self.n_nodes += 1
        name = f"node{self.n_nodes}"
        health = StorageHealth(unix_ms)
        async with background_tasks() as tasks, asyncio.TaskGroup() as group:
            calls = [cast(RedisCalls, Calls(server, self.rng, self)) for server in self.servers]
            store = cast(NodeStore, Store(SnapshotQuorum(calls, tasks, health)))
            guard = StoreCalls(group, health, 1_000)
            try:
                yield Node(name, self, GuardedStore(store, guard))
            finally:
                guard.cancel()

    async def serve(self, ready: asyncio.Future[Node]) -> None:
        async with self.node() as node:
            ready.set_result(node)
            try:
                await asyncio.Event().wait()
            finally:
                if node.running is not None:
                    node.running.cancel()
                    await asyncio.gather(node.running, return_exceptions=True)
                    node.running = None

    async def elsewhere(self, node: Node) -> Node:
        """Return this node, or another one if it still has the session: there nothing is acquired."""
        while not (free := [other for other in self.nodes if other.running is None]):
            await asyncio.sleep(0.25)
            self.wake_one()
        return node if node in free else self.rng.choice(free)

    def wake_one(self) -> None:
        for server in self.servers:
            if server.is_hung:
                server.wake(self.rng)
                return

    async def resume(self, node: Node) -> None:
        """Have the client resume at a node, and at others while that fails."""
        for _ in range(12):
            node = await self.elsewhere(node)
            sent = self.secret
            try:
                found = await node.resume(sent)
            except Overload:
                self.say(f"{node.name} can't resume now")
                await asyncio.sleep(0.25)
                node = self.rng.choice(self.nodes)
                continue
            assert found is not None, f"(c) {node.name} refuses {sent}"
            _, self.secret = found
            if self.rng.random() < 0.1 and not self.is_calm:
                self.secret = sent  # the answer was lost
                continue
            self.host = node
            node.run(self.secret, sent)
            return
        assert not self.is_calm, "(c) the client can't resume"

    # --- what happens -------------------------------------------------------------------------

    async def start(self) -> None:
        ready: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self.serve(ready))
        node = await ready
        self.serving[node.name] = task
        self.nodes.append(node)

    async def kill(self, node: Node) -> None:
        self.say(f"{node.name} dies")
        self.nodes.remove(node)
        self.serving[node.name].cancel()
        await asyncio.gather(self.serving.pop(node.name), return_exceptions=True)
        if self.host is node:
            self.host = None

    def check(self) -> None:
        for node in self.nodes:
            if node.running is not None and node.running.done() and not node.running.cancelled():
                node.running.result()

    async def begin(self) -> None:
        """Have three nodes, one of which has the session and has stored it: before, no client has a secret."""
        for _ in range(3):
            await self.start()
        self.host = self.nodes[0]
        self.host.run(self.secret, "")
        await self.stored.wait()

    async def step(self) -> None:
        rng = self.rng
        await asyncio.sleep(rng.choice((0.0, 0.05, 0.5)) * rng.random())
        self.check()
        match rng.randrange(6):
            case 0 | 1:
                await self.resume(rng.choice(self.nodes))
            case 2 if self.host is not None and self.host.running is not None:
                await self.reconnect(self.host)
            case 3:
                await self.cut_resume()
            case 4:
                self.hang_or_wake(rng.choice(self.servers))
            case _ if self.host is not None:
                await self.kill(self.host)
                await self.start()
                await self.resume(rng.choice(self.nodes))

    async def reconnect(self, host: Node) -> None:
        """Have the client reconnect to the same node, which renews its secret, and wait for its write."""
        self.n_secrets += 1
        host.digest, host.former = f"secret{self.n_secrets}", ""
        while host.running is not None and host.stored != host.digest:
            await asyncio.sleep(0.5)
            self.check()
            if self.rng.random() < 0.2:
                self.wake_one()
        if host.running is not None:
            self.secret = host.digest
            self.say(f"{host.name} renews the secret: {self.secret}")

    async def cut_resume(self) -> None:
        rng = self.rng
        node = await self.elsewhere(rng.choice(self.nodes))
        cut = asyncio.create_task(self.resume(node))
        await asyncio.sleep(rng.random() * 0.01)
        cancelled = cut.cancel()
        with suppress(asyncio.CancelledError):
            await cut
        self.say(f"cut resume at {node.name} {cancelled}; secret {self.secret}")
        if rng.random() < 0.5:
            await self.kill(node)
            await self.start()
        if self.host is None or self.host.running is None:
            await self.resume(rng.choice(self.nodes))

    def hang_or_wake(self, server: Server) -> None:
        if server.is_hung:
            self.say("a server wakes")
            server.wake(self.rng)
        elif sum(server.is_hung for server in self.servers) < 2:
            self.say(f"server {self.servers.index(server)} hangs")
            server.is_hung = True

    async def calm_down(self) -> Server:
        """Have nothing fail any more but one server, which is returned; the session goes on, also at another node."""
        self.is_calm = True
        for server in self.servers:
            server.wake(self.rng)
        self.say("calm")
        await asyncio.sleep(12)
        self.check()
        away = self.rng.choice(self.servers)
        away.is_hung = True
        self.say(f"server {self.servers.index(away)} hangs, all else is well")
        before = self.n_stored
        if self.host is not None and self.host.running is not None:
            await asyncio.sleep(10)
            self.check()
            assert self.n_stored > before, "(c) the owner can't write while one server is away"
        if self.host is not None:
            await self.kill(self.host)
            await self.start()
        await self.resume(self.rng.choice(self.nodes))
        await asyncio.sleep(10)
        self.check()
        return away

    async def delete(self, away: Server) -> None:
        """Have the owner delete the session while a server is away, which then comes back, and another goes."""
        owner = self.host
        assert owner is not None
        assert owner.running is not None
        owner.running.cancel()
        await owner.store.delete_snapshot(SESSION, owner=owner.name)
        self.say("deleted")
        away.wake(self.rng)
        (self.rng.choice(self.servers)).is_hung = True
        await asyncio.sleep(10)
        for node in self.nodes:
            assert not await node.store.has_snapshot(SESSION), "(d) the deleted session is back"


async def run(seed: int, connection: redis.Redis) -> World:
    world = World(random.Random(seed), [Server(connection, f"{seed}:{number}:") for number in range(3)])
    await world.begin()
    try:
        for _ in range(STEPS):
            await world.step()
        await world.delete(await world.calm_down())
    except BaseException:
        sys.stderr.write("\n".join(world.lines) + "\n")
        raise
    finally:
        for task in world.serving.values():
            task.cancel()
        await asyncio.gather(*world.serving.values(), return_exceptions=True)
    return world


@pytest.fixture(scope="module")
def connection() -> Iterator[redis.Redis]:
    with redis_server("redis") as server, redis.Redis.from_url(server.url) as connection:
        connection.config_set("appendfsync", "no")
        yield connection


@pytest.mark.parametrize("seed", SEEDS)
def test_one_owner_and_no_lost_write(seed: int, connection: redis.Redis) -> None:
    run_in_virtual_time(lambda: run(seed, connection))
