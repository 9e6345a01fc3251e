"""A worker's side of its channel: connections that come, requests to the other workers, and answers to theirs."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, TypeVar, get_args

from voicepipe.cluster.channel import Channel
from voicepipe.cluster.port import Hint
from voicepipe.errors import Overload, StoreUnavailable
from voicepipe.server.gateway.slot_counts import FULL_WAIT_MS, SlotRefusal
from voicepipe.server.workers.messages import (
    TO_WORKER,
    BeginWait,
    CountFailure,
    DropWait,
    EndWait,
    FeedMessage,
    FreeOwnerSlots,
    FreeSlot,
    FromWorker,
    GetHints,
    HintsResult,
    Ping,
    Pong,
    Query,
    QueryKind,
    QueryReply,
    QueryResult,
    RelaySession,
    ReloadSettings,
    ReserveModelSlot,
    SlotResult,
    SnapshotRequest,
    SnapshotResult,
    Stop,
    TakeConnection,
    TakeModelSlot,
    TakeSlot,
    ToWorker,
    WaitKind,
    Watched,
    encoded,
)
from voicepipe.tasks import BackgroundTasks
from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.log import log_crash, log_event

T = TypeVar("T")

ANSWER_S: Final = 3.0
"""Time limit for the supervisor's answer: it gives the other workers less (`broker.QUERY_S`)."""

RELOAD_ANSWER_S: Final = 25.0
"""The same for a reload (`broker.RELOAD_S`)."""

QueryHandler = Callable[[bytes], Awaitable[bytes]]
"""Answers a query for this worker."""


_REFUSALS: Final[dict[str, SlotRefusal | None]] = {"": None, **{each: each for each in get_args(SlotRefusal)}}


class WorkerLink:
    """The channel to the supervisor. Belongs to one event loop.

    Messages that come before their handler is set wait for it: a worker sets all before it listens.
    """

    def __init__(self, end: socket.socket, index: int, n_workers: int, tasks: BackgroundTasks) -> None:
        """`index`: 0 to `n_workers` - 1; a worker that replaces another has its index."""
        self.index, self.n_workers, self._tasks = index, n_workers, tasks
        self.stopped = asyncio.Event()
        """Set when the worker must end: the supervisor requests it, or has died."""

        self.watched = False
        """Whether any worker has readers of the live feed."""

        self._drop_handlers()
        self._results: dict[int, asyncio.Future[QueryResult]] = {}  # bounded: as many as requests are answered
        self._slots: dict[int, asyncio.Future[str]] = {}  # likewise
        self._waits: dict[int, Callable[[], object]] = {}  # bounded: by connections, which are bounded by descriptors
        self._snapshots: dict[int, asyncio.Future[SnapshotResult]] = {}  # bounded: a few for each session
        self._hints: dict[int, asyncio.Future[HintsResult]] = {}  # bounded: one for each exchange of hints or turns
        self._number = 0
        self._is_full = False
        # What nothing repeats, and the supervisor did not read; bounded: by slots, sessions and waits of this worker.
        self._late: deque[FromWorker] = deque()
        self._channel = Channel(end, self._on_message, self._on_closed)

    def _drop_handlers(self) -> None:
        self.on_connection: Callable[[socket.socket], None] = _close
        self.on_relay: Callable[[socket.socket, str], None] = _close
        self.on_feed: Callable[[FeedMessage], None] = _ignore
        self.on_watched: Callable[[bool], None] = _ignore
        self.on_failure: Callable[[str], None] = _ignore
        self.on_reload: Callable[[], Awaitable[None]] = _no_reload
        self.on_free_slots: Callable[[str], Awaitable[None]] = _nothing
        self.answers: dict[QueryKind, QueryHandler] = {}

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Drop the handlers when the block is left: what they use is closed after it, while messages still come."""
        try:
            yield
        finally:
            self._drop_handlers()
            self._tasks.cancel()

    def send(self, message: FromWorker, passed: socket.socket | None = None) -> bool:
        """Send a message to the supervisor; False: it is gone, or reads nothing."""
        is_sent = self._channel.send(encoded(message), passed)
        if not is_sent and not self._is_full and not self.stopped.is_set():
            log_event("worker_channel_full", level=logging.WARNING, message=type(message).__name__)
        self._is_full = not is_sent
        return is_sent

    def send_reliably(self, message: FromWorker) -> None:
        """Send a message that nothing repeats: in order, and once the supervisor reads again if it reads nothing
        now."""
        self._late.append(message)
        self._send_late()

    def _send_late(self) -> None:
        while self._late and self.send(self._late[0]):
            self._late.popleft()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    async def query(self, kind: QueryKind, data: bytes = b"") -> QueryResult:
        """Return the answers of all workers to a query, this one's too; of those that answer in time.

        Raises:
            Overload: the supervisor does not answer.
        """
        self._number += 1
        number = self._number
        result: asyncio.Future[QueryResult] = asyncio.get_running_loop().create_future()
        self._results[number] = result
        try:
            self.send(Query(number, kind, data))
            async with asyncio.timeout(RELOAD_ANSWER_S if kind == "reload" else ANSWER_S):
                return await result
        except TimeoutError:
            raise Overload("The server's other processes do not answer.", retry_after_ms=FULL_WAIT_MS) from None
        finally:
            del self._results[number]

    @asynccontextmanager
    async def taken(self, what: str, project: str, token: str) -> AsyncIterator[SlotRefusal | None]:
        """As in `SharedSlots`.

        Raises:
            Overload: the supervisor does not answer.
        """
        async with self._taken(TakeSlot(0, what, project, token)) as refusal:
            yield _REFUSALS[refusal]

    @asynccontextmanager
    async def model_slot(self, limit: int | None, reservation: str) -> AsyncIterator[bool]:
        """Take a slot of the sessions that use the local models while the block runs, as `ModelSlots.take` does.

        Raises:
            Overload: the supervisor does not answer.
        """
        async with self._taken(TakeModelSlot(0, limit, reservation)) as refusal:
            yield not refusal

    async def reserve_model_slot(self, limit: int, reservation: str, *, life_ms: int) -> bool:
        """Reserve such a slot, as `ModelSlots.reserve` does.

        Raises:
            Overload: the supervisor does not answer.
        """
        async with self._taken(ReserveModelSlot(0, limit, reservation, life_ms)) as refusal:
            return not refusal

    @asynccontextmanager
    async def _taken(self, request: TakeSlot | TakeModelSlot | ReserveModelSlot) -> AsyncIterator[str]:
        """Request a slot; yield the limit that refuses it, or nothing; free it at the end of the block."""
        self._number += 1
        request.number = number = self._number
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        silent = Overload("The server's supervisor does not answer.", retry_after_ms=FULL_WAIT_MS)
        if not self.send(request):
            raise silent
        self._slots[number] = result
        try:
            try:
                async with asyncio.timeout(ANSWER_S):
                    refusal = await result
            except TimeoutError:
                raise silent from None
            finally:
                del self._slots[number]
            yield refusal
        finally:
            self.send_reliably(FreeSlot(number))  # also if the answer never came: messages are handled in order

    def begin_wait(self, what: WaitKind, group: tuple[str, str], drop: Callable[[], object]) -> int:
        """Count what waits among that of all workers; return its number. `drop` is called when it must make room.

        While the supervisor reads nothing, it is not counted: no connections come meanwhile.
        """
        self._number += 1
        self._send_late()  # what has ended first: else it would count beside this one
        if not self._late and self.send(BeginWait(self._number, what, group)):
            self._waits[self._number] = drop
        return self._number

    def end_wait(self, number: int) -> None:
        """Count it no more."""
        if self._waits.pop(number, None) is not None:
            self.send_reliably(EndWait(number))

    async def request_snapshot(self, request: SnapshotRequest) -> SnapshotResult:
        """Return the supervisor's answer to a request for a session's snapshot; the number is given here.

        Raises:
            StoreUnavailable: the supervisor does not answer.
        """
        return await self._stored(request, self._snapshots)

    async def request_hints(self, kind: str) -> list[Hint]:
        """Return the hints of a kind of all workers.

        Raises:
            StoreUnavailable: the supervisor does not answer.
        """
        return (await self._stored(GetHints(0, kind), self._hints)).hints

    async def _stored(self, request: SnapshotRequest | GetHints, results: dict[int, asyncio.Future[T]]) -> T:
        self._number += 1
        request.number = number = self._number
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self.send(request):
            raise StoreUnavailable
        results[number] = result
        try:
            async with asyncio.timeout(ANSWER_S):
                return await result
        except TimeoutError:
            raise StoreUnavailable from None
        finally:
            del results[number]

    def _on_message(self, data: bytes, passed: socket.socket | None) -> None:
        with isolated("message of the supervisor"):
            self._handle(TO_WORKER.decode(data), passed)

    def _on_closed(self) -> None:
        """End: the supervisor has died. A second time, while the worker drains, at once, as a second signal does."""
        if self.stopped.is_set():
            signal.raise_signal(signal.SIGTERM)
        self.stopped.set()

    def _handle(self, message: ToWorker, passed: socket.socket | None) -> None:
        match message:
            case TakeConnection() if passed is not None:
                self.on_connection(passed)
            case RelaySession(session) if passed is not None:
                self.on_relay(passed, session)
            case Stop():
                self.stopped.set()
            case ReloadSettings():
                self._tasks.start(self._reload(), name="reload")
            case Ping():
                self._send_late()
                self.send(Pong())
            case Query():
                self._tasks.start(self._answer(message), name=f"answer {message.kind}")
            case QueryResult(number):
                _set(self._results.get(number), message)
            case SlotResult(number, refusal):
                _set(self._slots.get(number), refusal)
            case DropWait(number):
                self._waits.get(number, _pass)()
            case SnapshotResult(number):
                _set(self._snapshots.get(number), message)
            case HintsResult(number):
                _set(self._hints.get(number), message)
            case FeedMessage():
                self.on_feed(message)
            case Watched(watched):
                self.watched = watched
                self.on_watched(watched)
            case CountFailure(address):
                self.on_failure(address)
            case FreeOwnerSlots(owner):
                self._tasks.start(self._free_slots(owner), name="free slots")
            case _:
                pass

    async def _answer(self, query: Query) -> None:
        answer = self.answers.get(query.kind)
        if answer is None:  # not yet: the supervisor waits for its time limit
            return
        try:
            data = await answer(query.data)
        except Exception as error:
            log_crash(f"answer {query.kind}", error)
            return
        if not self.send(QueryReply(query.number, data)):
            self.send(QueryReply(query.number, None))

    async def _reload(self) -> None:
        with isolated("reload"):
            await self.on_reload()

    async def _free_slots(self, owner: str) -> None:
        with isolated("free slots"), suppress(Overload):  # their lease ends by itself
            await self.on_free_slots(owner)


def _close(passed: socket.socket, _: str = "") -> None:
    passed.close()


def _pass() -> None:
    """Do nothing: what was to be ended has ended meanwhile."""


def _ignore(_: object) -> None:
    """Ignore a message."""


async def _no_reload() -> None:
    """Do nothing: the worker does not serve yet."""


async def _nothing(_: str) -> None:
    """Do nothing."""


def _set(future: asyncio.Future[T] | None, value: T) -> None:
    if future is not None and not future.done():
        future.set_result(value)
