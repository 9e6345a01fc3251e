"""Run a number of concurrent users against one server, and measure their waits and the server's cost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from voicepipe import clock
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.load.process_cost import ProcessUsage, is_readable, read_usage
from voicepipe.bench.load.user import ANSWER_TIMEOUT_MS, FRAME_MS, FRAME_SAMPLES, PAUSE_MS, LoadUser, MeasuredSentence
from voicepipe.bench.load.wire_protocols import REALTIME, WireProtocol

WATCH_MS: Final = 250
"""Interval of the readings of the server's CPU and memory."""

MARGIN_MS: Final = 500
"""Between the last connection and the first word."""

N_FRAME_TIMES: Final = 4
"""How many times in each 20 ms frames come, a quarter of the users at each time: microphones do not keep step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """A server, and its name in the table."""

    name: str
    url: str
    pid: int | None
    """The server's process; None if it cannot be read."""

    key: str = "bench"
    session: dict[str, Any]
    """Each user's first settings, in a `session.update`."""

    wire: WireProtocol = REALTIME


Connect = Callable[[aiohttp.ClientSession, LoadTarget], AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]]
"""Opens a user's connection, which is ready for audio."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The server's resources while all users were in their turns."""

    cpu_pct: float
    """CPU of one core, all users together."""

    rss_mib: float
    """Peak memory, with all child processes."""

    rss_before_mib: float
    """Memory before the users connected."""

    open_cpu_ms: float = 0.0
    """CPU from the first connection until all sessions were open, for each session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """One run."""

    target: str
    n_users: int
    turns: tuple[MeasuredSentence, ...]
    cost: Cost | None
    late_p95_ms: float
    """Delay of this program's own frames: the machine's share of every figure."""

    stray: int
    errors: tuple[str, ...]


class Watch:
    """Read a process and its children: CPU between `begin` and `end`, memory all the time."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid if pid is not None and is_readable() else None
        self._began: tuple[int, float] | None = None
        self._ended: tuple[int, float] | None = None
        self._before = self._read()
        self._rss = self._before.rss_bytes
        self._open_cpu_s = 0.0

    async def run(self) -> None:
        """Read the memory until cancelled."""
        while self._pid is not None:
            self._rss = max(self._rss, self._read().rss_bytes)
            await asyncio.sleep(WATCH_MS / 1_000)

    def opened(self) -> None:
        """Count the CPU so far as that of opening the sessions."""
        self._open_cpu_s = self._read().cpu_s - self._before.cpu_s

    def begin(self) -> None:
        """Begin counting: all users are in their turns."""
        self._began = clock.monotonic_ms(), self._read().cpu_s

    def end(self) -> None:
        """Stop counting: the first user has finished."""
        if self._began is not None and self._ended is None:
            self._ended = clock.monotonic_ms(), self._read().cpu_s

    def cost(self, n_users: int) -> Cost | None:
        """Return the cost; None without a process, or if the users' turns never overlapped."""
        if self._pid is None or self._began is None or self._ended is None:
            return None
        (from_ms, from_s), (to_ms, to_s) = self._began, self._ended
        if to_ms - from_ms < 1_000:
            return None
        cpu_pct = 100_000 * (to_s - from_s) / (to_ms - from_ms)
        open_cpu_ms = 1_000 * self._open_cpu_s / n_users
        return Cost(cpu_pct, self._rss / 2**20, self._before.rss_bytes / 2**20, open_cpu_ms)

    def _read(self) -> ProcessUsage:
        return read_usage(self._pid) if self._pid is not None else ProcessUsage(0.0, 0)


class ConcurrentUsers:
    """The users of one run, whose starts are spread over the length of a turn."""

    def __init__(
        self,
        target: LoadTarget,
        frames: list[Samples],
        n_users: int,
        n_turns: int,
        on_steady: Callable[[], None] | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`on_steady` is called when all users are in their turns, and when the first of them has finished. `connect`
        opens the connections in another way than a plain WebSocket."""
        self._on_steady, self._connect = on_steady or _ignore, connect or _connected
        self._target, self._n_users = target, n_users
        self._sentence_ms = len(frames) * FRAME_MS
        wire = target.wire
        messages, (*_, silent_frame) = wire.messages(frames), wire.messages([silence(FRAME_SAMPLES)] * 2)
        self._turns: list[MeasuredSentence] = []
        self._watch = Watch(target.pid)
        self._steady = False
        self._done = asyncio.Event()
        self._users = [LoadUser(messages, silent_frame, n_turns, self._record, wire) for _ in range(n_users)]

    async def run(self, turn_ms: int) -> LoadRun:
        """Connect, talk, disconnect. `turn_ms` is the approximate length of a turn, with its pause.

        Raises:
            ConnectionError: a connection was refused.
        """
        async with unlimited_session() as web, contextlib.AsyncExitStack() as connections:
            websockets = [await connections.enter_async_context(self._connect(web, self._target)) for _ in self._users]
            connections.enter_context(_without_gc())
            await asyncio.sleep(MARGIN_MS / 1_000)
            self._watch.opened()
            begin_ms = clock.monotonic_ms() + MARGIN_MS
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch.run(), name="watch")
                timing = group.create_task(self._begin_watch(begin_ms + turn_ms), name="timing")
                for n, (user, websocket) in enumerate(zip(self._users, websockets, strict=True)):
                    at_ms = begin_ms + turn_ms * n // self._n_users
                    after_ms = n % N_FRAME_TIMES * FRAME_MS // N_FRAME_TIMES
                    speaking = user.run(websocket, at_ms, self._done, after_ms=after_ms)
                    group.create_task(speaking, name=f"user-{n}")
                await self._done.wait()
                watching.cancel()
                timing.cancel()
        if self._steady:
            self._on_steady()
        return self._load()

    async def _begin_watch(self, at_ms: int) -> None:
        await asyncio.sleep(max(0, at_ms - clock.monotonic_ms()) / 1_000)
        self._watch.begin()
        self._steady = True
        self._on_steady()

    def _record(self, turn: MeasuredSentence) -> None:
        self._turns.append(turn)
        if any(user.finished for user in self._users):
            self._watch.end()
            if self._steady:
                self._steady = False
                self._on_steady()
        if all(user.finished for user in self._users):
            self._done.set()

    def _load(self) -> LoadRun:
        late_ms = sorted(late for user in self._users for late in user.late_ms)
        return LoadRun(
            target=self._target.name,
            n_users=self._n_users,
            turns=tuple(self._turns),
            cost=self._watch.cost(self._n_users),
            late_p95_ms=late_ms[len(late_ms) * 95 // 100],
            stray=sum(user.n_audio_outside_turns for user in self._users),
            errors=tuple(error for user in self._users for error in user.errors),
        )


def unlimited_session() -> aiohttp.ClientSession:
    """Return an HTTP client for any number of users: by default the 101st connection of aiohttp waits forever."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def _ignore() -> None:
    pass


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Exclude existing objects from garbage collection, whose pauses would be measured as delays."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.asynccontextmanager
async def _connected(web: aiohttp.ClientSession, target: LoadTarget) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Yield a connection that is ready for audio."""
    headers = {"Authorization": f"Bearer {target.key}"}
    try:
        async with web.ws_connect(target.url, headers=headers, max_msg_size=0, compress=0) as websocket:
            if target.wire.has_events:
                await websocket.send_str(json.dumps({"type": "session.update", "session": target.session}))
                async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1_000):
                    await until_updated(websocket)
            yield websocket
    except (aiohttp.ClientError, TimeoutError) as why:
        raise ConnectionError(f"{target.name} at {target.url}: {why or 'did not answer'}") from why


async def until_updated(websocket: aiohttp.ClientWebSocketResponse) -> None:
    """Wait until the session has its settings.

    Raises:
        ConnectionError: it was refused, or the server closed the connection.
    """
    while True:
        message = await websocket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            why = message.extra or "no reason"
            raise ConnectionError(f"the server closed the connection with code {websocket.close_code}: {why}")
        event = json.loads(message.data)
        if event["type"] == "session.updated":
            return
        if event["type"] == "error":
            raise ConnectionError(f"the session was refused: {event['error']['message']}")


def turn_ms_of(load: LoadRun, frames: list[Samples]) -> int:
    """Return the length of a turn, from a run of one user: sentence, wait, answer, pause."""
    turn = load.turns[0]
    return len(frames) * FRAME_MS + (turn.latency_ms or 0) + round(turn.sound_ms) + PAUSE_MS
