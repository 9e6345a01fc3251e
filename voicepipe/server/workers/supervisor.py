"""The supervisor: it listens, starts the workers, passes them connections, and ends when they have ended."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from voicepipe.clock import monotonic_ms
from voicepipe.cluster.channel import Channel
from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.server.gateway.slot_counts import SlotCounts
from voicepipe.server.listeners import Listeners
from voicepipe.server.log_limit import LogLimit
from voicepipe.server.workers.broker import Broker, ConnectedWorker
from voicepipe.server.workers.messages import (
    FROM_WORKER,
    Draining,
    Listening,
    Loaded,
    Pong,
    ReloadSettings,
    StartFailed,
    Stop,
    TakeConnection,
    TerminalLine,
    encoded,
)
from voicepipe.server.workers.wait_counts import WaitCounts
from voicepipe.telemetry.log import log_crash, log_event

BACK_OFF_MS: Final = (0, 200, 1_000, 5_000, 30_000)
"""Delay before the first, second, ... new start of a worker within `WINDOW_MS`; the last for all later ones."""

WINDOW_MS: Final = 60_000

PING_S: Final = 1.0
HUNG_PINGS: Final = 10
"""A worker that leaves ten pings unanswered, one a second, hangs: its event loop is blocked, and its users hear
nothing for 10 s. A start or a collection of garbage blocks a loop for up to 2 s. Checks are counted, not the time: a
machine that was suspended has missed none."""

CLOSE_MARGIN_MS: Final = 20_000
"""Time that workers have beyond `server.drain_ms` to write what waits for the disk; after it they are killed."""


class WorkerProcess(Protocol):
    """The process of a worker."""

    @property
    def pid(self) -> int:
        """Return its process ID."""
        ...

    @property
    def returncode(self) -> int | None:
        """Return its exit status; None while it runs."""
        ...

    async def wait(self) -> int:
        """Wait for its end; return its exit status."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


Spawn = Callable[[int, socket.socket, Broker], Awaitable[WorkerProcess]]
"""Start the worker of this index, with its end of the channel."""


class WorkerFailed(VoicepipeError):
    """A worker ended before the server was ready."""


class Supervisor:
    """Runs workers while `run` runs."""

    def __init__(
        self,
        listeners: list[socket.socket],
        spawn: Spawn,
        *,
        n_workers: int,
        drain_ms: int,
        slots: Mapping[str, SlotCounts],
        wait_counts: WaitCounts,
        print_line: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            listeners: the listening sockets, owned from now on.
            spawn: starts a worker.
            n_workers: how many run.
            drain_ms: `server.drain_ms` of the workers.
            slots: the limits of concurrent REST requests, by kind.
            wait_counts: the limits of what waits for its client.
            print_line: gets the lines for the operator at the terminal.
        """
        self._sockets, self._spawn, self._print_line = listeners, spawn, print_line
        self._n_workers, self._drain_ms = n_workers, drain_ms
        self._broker = Broker(slots, wait_counts)
        self._listeners: Listeners | None = None
        self._closed_limit = LogLimit()
        self._failure: VoicepipeError | None = None
        self._stopping = asyncio.Event()
        self.listening: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Done when the first worker takes connections: whether any client on this machine needs no key."""

        self.loaded = asyncio.Event()
        """Set when the models of the first worker are loaded: it can serve, and the others get no sessions before
        theirs are."""

    async def run(self, stopped: asyncio.Event) -> None:
        """Run the workers until `stopped` is set, then let them drain, and kill those that have not ended in time.

        Raises:
            VoicepipeError: a worker could not start, and none ever had; alone or in a group.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._run(index), name=f"worker {index}") for index in range(self._n_workers)
                ]
                await stopped.wait()
                self._stop()
                _, late = await asyncio.wait(tasks, timeout=(self._drain_ms + CLOSE_MARGIN_MS) / 1_000)
                for task in late:
                    log_event("worker_killed", level=logging.ERROR, why="it did not end in time")
                    task.cancel()
        finally:
            self._close_sockets()

    def reload(self) -> None:
        """Have all workers read the settings again; one of them passes that on, and reports what became of it."""
        worker = next((each for each in self._broker.workers if each.accepts), None)
        if worker is None or not worker.send(ReloadSettings()):
            self._print_line("settings not reloaded, the old ones stay in force: no worker runs")

    def _stop(self) -> None:
        self._stopping.set()
        self._close_sockets()
        for worker in self._broker.workers:
            worker.send(Stop())

    def _close_sockets(self) -> None:
        if self._listeners is not None:
            self._listeners.stop()
        for listener in self._sockets:
            listener.close()

    async def _run(self, index: int) -> None:
        """Run the worker of this index, and start it again when it has ended, with longer delays if that repeats."""
        recent: deque[int] = deque(maxlen=len(BACK_OFF_MS))  # full: the oldest is dropped, the longest delay stays
        while not self._stopping.is_set():
            pid, status = await self._run_once(index)
            if self._stopping.is_set():
                return
            failure, self._failure = self._failure, None
            if failure is not None and not self.loaded.is_set():
                raise failure
            if not self.listening.done():
                raise WorkerFailed(f"a worker ended with status {status} before it could serve")
            why = None if failure is None else str(failure)
            log_event("worker_ended", level=logging.ERROR, worker=index, pid=pid, status=status, why=why)
            self._broker.n_restarts += 1
            now_ms = monotonic_ms()
            while recent and recent[0] < now_ms - WINDOW_MS:
                recent.popleft()
            await self._pause(BACK_OFF_MS[min(len(recent), len(BACK_OFF_MS) - 1)])
            recent.append(now_ms)

    async def _pause(self, pause_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1_000):
                await self._stopping.wait()

    async def _run_once(self, index: int) -> tuple[int, int]:
        """Run a worker to its end; return its process ID and its exit status."""
        own_end, worker_end = socket.socketpair()
        try:
            process = await self._spawn(index, worker_end, self._broker)
        except BaseException:
            own_end.close()
            raise
        finally:
            worker_end.close()
        worker = self._connect(index, own_end)
        log_event("worker_started", worker=index, pid=process.pid)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(worker, process), name=f"watch {index}")
                status = await process.wait()
                watching.cancel()
            worker.channel.read()  # its last messages
            return process.pid, status
        finally:
            self._broker.detach(worker)
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _watch(self, worker: ConnectedWorker, process: WorkerProcess) -> None:
        """Kill a worker that hangs: its clients see their connections close, and it is started again."""
        while worker.n_unanswered < HUNG_PINGS:
            worker.ping()
            await asyncio.sleep(PING_S)
            worker.channel.read()  # what came while this process did not run
        log_event("worker_hung", level=logging.ERROR, worker=worker.index, pid=process.pid, pings=HUNG_PINGS)
        process.kill()

    def _connect(self, index: int, end: socket.socket) -> ConnectedWorker:
        def on_message(data: bytes, passed: socket.socket | None) -> None:
            self._on_message(worker, data, passed)

        def on_closed() -> None:
            worker.accepts = False

        worker = ConnectedWorker(index, Channel(end, on_message, on_closed))
        self._broker.attach(worker)
        if self._stopping.is_set():
            worker.send(Stop())
        return worker

    def _on_message(self, worker: ConnectedWorker, data: bytes, passed: socket.socket | None) -> None:
        try:
            message = FROM_WORKER.decode(data)
        except msgspec.MsgspecError as wrong:
            log_event("worker_message_refused", level=logging.ERROR, worker=worker.index, why=str(wrong))
            return
        worker.n_unanswered = 0
        match message:
            case Pong():
                pass
            case Listening(is_open, owner):
                worker.owner, worker.accepts = owner, True
                self._accept_connections(is_open)
            case Loaded():
                worker.is_loaded = True
                self.loaded.set()
            case Draining():
                worker.accepts = False
            case StartFailed(why, is_config):
                self._failure = ConfigError(why) if is_config else WorkerFailed(why)
            case TerminalLine(line):
                self._print_line(line)
            case _:
                try:
                    self._broker.handle(worker, message, passed)
                except Exception as bug:  # of one message: all workers depend on the next ones
                    log_crash(f"message {type(message).__name__}", bug)

    def _accept_connections(self, is_open: bool) -> None:
        """Begin to accept, once; until then connections wait in the kernel."""
        if self._listeners is None and not self._stopping.is_set():
            self._listeners = Listeners(self._sockets, self._take, self._exhausted)
            self.listening.set_result(is_open)

    def _take(self, client: socket.socket, _: str) -> bool:
        worker = self._broker.least_loaded()
        if worker is None:  # all have died: they are back in seconds
            client.close()
            self._log_closed("no worker runs")
            return True
        worker.given_ms.append(monotonic_ms())
        if not worker.channel.send(encoded(TakeConnection()), client):
            self._log_closed("the worker takes no more")
        return True

    def _exhausted(self, problem: OSError) -> None:
        self._log_closed(os.strerror(problem.errno or errno.EMFILE))

    def _log_closed(self, why: str) -> None:
        unlogged = self._closed_limit.take(monotonic_ms())
        if unlogged is not None:
            log_event("connections_full", level=logging.WARNING, why=why, waiting=0, unlogged=unlogged)
