"""The supervisor and a worker that hangs: it is killed and started again; one that answers is left alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest

from voicepipe.cluster.channel import Channel
from voicepipe.server.workers import supervisor as supervising
from voicepipe.server.workers.broker import LATE_PINGS, Broker, ConnectedWorker
from voicepipe.server.workers.messages import TO_WORKER, Listening, Loaded, Ping, Pong, Stop, TakeConnection, encoded
from voicepipe.server.workers.supervisor import HUNG_PINGS, Spawn, Supervisor
from voicepipe.server.workers.wait_counts import WaitCounts
from voicepipe.testing.waiting import WAIT_S, eventually

KILLED = -9


class Process:
    """A worker without a process: it answers pings, or hangs."""

    def __init__(self, number: int, end: socket.socket, *, hangs: bool) -> None:
        self.pid, self._hangs = number, hangs
        self.n_pings = self.n_connections = 0
        self.pinged = asyncio.Event()
        """Set when it has got many more pings than a hung worker may miss."""

        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._channel = Channel(socket.socket(fileno=end.dup().detach()), self._on_message, lambda: None)
        self._channel.send(encoded(Listening(is_open=True, owner=f"owner {number}")))

    def load(self) -> None:
        """Report that its models are loaded."""
        self._channel.send(encoded(Loaded()))

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await self._ended

    def kill(self) -> None:
        self._end(KILLED)

    def _end(self, status: int) -> None:
        self._channel.close()
        self._ended.set_result(status)

    def _on_message(self, data: bytes, passed: socket.socket | None) -> None:
        match TO_WORKER.decode(data):
            case Ping():
                self.n_pings += 1
                if self.n_pings > 3 * HUNG_PINGS:
                    self.pinged.set()
                if not self._hangs:
                    self._channel.send(encoded(Pong()))
            case TakeConnection() if passed is not None:
                passed.close()
                self.n_connections += 1
            case Stop():
                self._end(0)
            case _:
                pass


def supervisor_of(listeners: list[socket.socket], spawn: Spawn, *, n_workers: int) -> Supervisor:
    waits = WaitCounts({})
    return Supervisor(
        listeners, spawn, n_workers=n_workers, drain_ms=0, slots={}, wait_counts=waits, print_line=lambda _: None
    )


@asynccontextmanager
async def supervised(
    *, hangs: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Queue[Process]]:
    """Run a supervisor of one worker, whose first process hangs or not, its second, and so on; yield the processes."""
    monkeypatch.setattr(supervising, "PING_S", 0.0)
    monkeypatch.setattr(supervising, "BACK_OFF_MS", (0,))
    processes, spawned, stopped = iter(hangs), asyncio.Queue[Process](), asyncio.Event()

    async def spawn(index: int, end: socket.socket, broker: Broker) -> Process:
        process = Process(spawned.qsize(), end, hangs=next(processes))
        spawned.put_nowait(process)
        return process

    server = supervisor_of([], spawn, n_workers=1)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(server.run(stopped))
        await server.listening
        yield spawned
        stopped.set()


async def test_a_worker_that_hangs_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="voicepipe"):
        async with supervised(hangs=(True, False), monkeypatch=monkeypatch) as spawned:
            first = await spawned.get()
            assert await first.wait() == KILLED
            second = await spawned.get()
            await second.pinged.wait()
            assert second.returncode is None
    assert first.n_pings == HUNG_PINGS
    assert [record.getMessage() for record in caplog.records] == ["worker_hung", "worker_ended"]
    assert second.returncode == 0


@contextmanager
def idle_and_busy() -> Iterator[tuple[Broker, ConnectedWorker, ConnectedWorker]]:
    """A broker with an idle worker and one that has sessions."""
    broker, ends = Broker({}, WaitCounts({})), [socket.socketpair() for _ in range(2)]
    for index, (ours, _) in enumerate(ends):
        channel = Channel(ours, lambda data, passed: None, lambda: None)
        broker.attach(ConnectedWorker(index, channel, owner=f"owner {index}", accepts=True, is_loaded=True))
    idle, busy = broker.workers
    busy.sessions = {"sess_1", "sess_2"}
    yield broker, idle, busy
    for worker, (_, remote) in zip((idle, busy), ends, strict=True):
        worker.channel.close()
        remote.close()


async def test_a_worker_that_hangs_gets_no_connections_while_another_answers() -> None:
    with idle_and_busy() as (broker, idle, busy):
        assert broker.least_loaded() is idle
        for _ in range(LATE_PINGS):
            idle.ping()
        assert broker.least_loaded() is busy
        for _ in range(LATE_PINGS):
            busy.ping()
        assert broker.least_loaded() is idle


async def test_a_worker_that_loads_its_models_gets_no_connections_while_another_has_loaded_them() -> None:
    """It would refuse sessions. One that is started again loads them too."""
    with idle_and_busy() as (broker, idle, busy):
        idle.is_loaded = False
        assert broker.least_loaded() is busy
        busy.is_loaded = False
        assert broker.least_loaded() is idle


async def test_connections_go_to_the_worker_that_has_loaded_its_models() -> None:
    """To the first one at all before that: it says why it refuses sessions."""
    processes: list[Process] = []

    async def spawn(index: int, end: socket.socket, broker: Broker) -> Process:
        processes.append(Process(index, end, hangs=False))
        return processes[-1]

    listener, stopped = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
    listener.setblocking(False)
    server = supervisor_of([listener], spawn, n_workers=2)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(server.run(stopped))
        await eventually(partial(_all_accept, server))
        for n_loaded, expected in ((0, {0: 1}), (1, {0: 1, 1: 3})):
            if n_loaded:
                processes[1].load()
                await server.loaded.wait()
            for _ in range(sum(expected.values()) - sum(each.n_connections for each in processes)):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
            await eventually(partial(_have_connections, processes, expected))
        stopped.set()


async def _all_accept(server: Supervisor) -> bool | None:
    workers = server._broker.workers
    return (len(workers) == 2 and all(each.accepts for each in workers)) or None


async def _have_connections(processes: list[Process], expected: dict[int, int]) -> bool | None:
    return {each.pid: each.n_connections for each in processes if each.n_connections} == expected or None
