"""The supervisor's side of the channels: pass messages of one worker to the others."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.cluster.channel import Channel
from voicepipe.cluster.local_hints import LocalHints
from voicepipe.cluster.local_snapshots import LocalSnapshots
from voicepipe.server.gateway.slot_counts import SlotCounts
from voicepipe.server.workers.messages import (
    HUNG,
    LOST,
    AcquireSnapshot,
    BeginWait,
    ConnectionClosed,
    CountFailure,
    DeleteLeftSnapshot,
    DeleteSnapshot,
    EndWait,
    FeedMessage,
    FreeOwnerSlots,
    FreeSlot,
    FromWorker,
    GetHints,
    GrowBody,
    HasSnapshot,
    HintsResult,
    LeaseLeftSnapshot,
    Ping,
    PublishEvent,
    Query,
    QueryReply,
    QueryResult,
    RelaySession,
    ReserveModelSlot,
    SessionClosed,
    SessionOpened,
    SlotResult,
    SnapshotRequest,
    SnapshotResult,
    StoreHint,
    StoreSnapshot,
    TakeModelSlot,
    TakeSlot,
    ToWorker,
    Watched,
    Watching,
    encoded,
)
from voicepipe.server.workers.model_slots import ModelSlots
from voicepipe.server.workers.wait_counts import WaitCounts, WorkerWaits
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.merge import counters, merged, sample_text

QUERY_S: Final = 1.0
"""Time limit for the answers of all workers: a worker that hangs is left out."""

RELOAD_S: Final = 20.0
"""The same for a reload of the settings: new MCP servers are awaited for up to 10 s."""

LATE_PINGS: Final = 2
"""A worker that leaves two pings unanswered gets no connections while another one answers."""

LOST_SESSIONS: Final = 10_000
"""Sessions of dead workers that are remembered: their clients return within `RESUME_WINDOW_MS`."""

RECENT_MS: Final = 2_000
"""Time for which a connection counts as a session that is about to begin."""


@dataclass(slots=True, eq=False)
class ConnectedWorker:
    """A worker that runs."""

    index: int
    channel: Channel
    owner: str = ""
    """The owner of its slots in the shared store; empty until it listens."""

    accepts: bool = False
    """Whether it takes connections."""

    is_loaded: bool = False
    """Whether its models are loaded: until then it refuses sessions."""

    n_unanswered: int = 0
    """Pings sent since its latest message."""

    sessions: set[str] = field(default_factory=set)
    watching: bool = False
    metrics: bytes = b""
    """Its latest text of `/metrics`."""

    slots: dict[int, tuple[str, tuple[str, str]]] = field(default_factory=dict)
    """Number of the request -> its kind, and the slot's project and client secret."""

    model_slots: set[int] = field(default_factory=set)
    """Numbers of the sessions that use the local models."""

    waits: WorkerWaits = field(init=False)
    """Its connections that wait, and its request bodies in transit."""

    given_ms: deque[int] = field(default_factory=deque)
    """When it got the connections of the last `RECENT_MS` that are open and have no session yet; bounded by that
    time."""

    def __post_init__(self) -> None:
        self.waits = WorkerWaits(self.send)

    def load(self, now_ms: int) -> int:
        """Return its sessions, and the connections that may become sessions."""
        while self.given_ms and self.given_ms[0] <= now_ms - RECENT_MS:
            self.given_ms.popleft()
        return len(self.sessions) + len(self.given_ms)

    def uncount_connection(self) -> None:
        """Count one connection less: it has a session, or is closed. It is taken for the oldest one; an error lasts for
        `RECENT_MS`."""
        if self.given_ms:
            self.given_ms.popleft()

    def ping(self) -> None:
        """Request an answer to a ping, once it listens: before that it may load for long."""
        if self.owner:
            self.n_unanswered += 1
            self.send(Ping())

    def send(self, message: ToWorker, passed: socket.socket | None = None) -> bool:
        """Send a message; False: the worker is gone, or hangs."""
        return self.channel.send(encoded(message), passed)


@dataclass(slots=True, eq=False)
class _Pending:
    """A query whose answers are still coming."""

    sender: ConnectedWorker
    query: Query
    missing: set[ConnectedWorker]
    replies: dict[ConnectedWorker, bytes]
    timer: asyncio.TimerHandle
    n_silent: int = 0
    """Workers that don't answer."""


class Broker:
    """Passes messages between workers. Belongs to the supervisor's event loop."""

    def __init__(self, slots: Mapping[str, SlotCounts], wait_counts: WaitCounts) -> None:
        """`slots`: the limits of concurrent REST requests, by kind. `wait_counts`: those of what waits."""
        self.workers: list[ConnectedWorker] = []
        self.n_restarts = 0
        """Workers that were started again."""

        self.n_reloads = 0
        """How often the workers were to read the settings again: a worker that starts later reads them too."""

        self.epoch = secrets.token_hex(4)
        """Of the live feed's event ids: numbers begin again with each start of the server."""

        self.feed_number = 0
        """The latest event of the live feed."""

        self._lost: dict[str, None] = {}  # full: the oldest is dropped
        self._slots, self._wait_counts = dict(slots), wait_counts
        self._snapshots, self._hints = LocalSnapshots(), LocalHints()
        self._model_slots = ModelSlots()
        self._number = 0
        self._pending: dict[int, _Pending] = {}  # bounded in time: by QUERY_S
        self._retired = b""
        """The counters of dead workers: without them the sums would fall, and a scrape would see a reset."""

    def attach(self, worker: ConnectedWorker) -> None:
        """Add a worker."""
        self.workers.append(worker)
        if any(each.watching for each in self.workers):
            worker.send(Watched(True))

    def detach(self, worker: ConnectedWorker) -> None:
        """Remove a worker that has ended, and free what it held."""
        worker.channel.close()
        self.workers.remove(worker)
        self._lost |= dict.fromkeys(worker.sessions)
        for session in tuple(islice(self._lost, max(0, len(self._lost) - LOST_SESSIONS))):
            del self._lost[session]
        for number in (*worker.slots, *worker.model_slots):
            self._free_slot(worker, number)
        self._wait_counts.end_all(worker.waits)
        if worker.metrics:
            self._retired = counters(merged([text for text in (self._retired, worker.metrics) if text]))
        if worker.watching:
            self._send_watched()
        serving = next((each for each in self.workers if each.owner), None)
        if worker.owner and serving is not None:
            serving.send(FreeOwnerSlots(worker.owner))
        for number, pending in tuple(self._pending.items()):
            if worker is pending.sender:
                self._pending.pop(number).timer.cancel()
            elif worker in pending.missing:
                self._answered(number, worker, None)

    def least_loaded(self) -> ConnectedWorker | None:
        """Return the worker that gets the next connection; None: no worker takes one. One that hangs, or still loads
        its models, gets none while another can serve."""
        for worker in tuple(self.workers):
            worker.channel.read()  # what was sent before the connection must count: sessions, bad credentials
        now_ms = monotonic_ms()
        ready = [worker for worker in self.workers if worker.accepts]

        def order(worker: ConnectedWorker) -> tuple[bool, bool, int, int]:
            return worker.n_unanswered >= LATE_PINGS, not worker.is_loaded, worker.load(now_ms), worker.index

        return min(ready, key=order, default=None)

    def handle(self, worker: ConnectedWorker, message: FromWorker, passed: socket.socket | None) -> None:
        """Handle a message that is for other workers."""
        match message:
            case SessionOpened(session):
                worker.sessions.add(session)
                worker.uncount_connection()
            case ConnectionClosed():
                worker.uncount_connection()
            case SessionClosed(session):
                worker.sessions.discard(session)
            case Query():
                self._query(worker, message)
            case QueryReply(number, data):
                self._answered(number, worker, data)
            case PublishEvent():
                self.feed_number += 1
                self._to(self.workers, FeedMessage(self.feed_number, message))
            case Watching(watching):
                worker.watching = watching
                self._send_watched()
            case CountFailure():
                self._to((each for each in self.workers if each is not worker), message)
            case TakeSlot():
                self._take_slot(worker, message)
            case TakeModelSlot(number, limit, reservation):
                self._take_model_slot(worker, number, limit, reservation)
            case ReserveModelSlot(number, limit, reservation, life_ms):
                now_ms = monotonic_ms()
                is_reserved = self._model_slots.reserve(limit, reservation, now_ms + life_ms, now_ms)
                worker.send(SlotResult(number, "" if is_reserved else "full"))
            case FreeSlot(number):
                self._free_slot(worker, number)
            case BeginWait():
                self._wait_counts.begin(worker.waits, message)
            case GrowBody(number, n_bytes):
                self._wait_counts.grow(worker.waits, number, n_bytes)
            case EndWait(number):
                self._wait_counts.end(worker.waits, number)
            case RelaySession(session):
                self._relay(message, session, passed)
            case (
                HasSnapshot()
                | StoreSnapshot()
                | AcquireSnapshot()
                | DeleteSnapshot()
                | LeaseLeftSnapshot()
                | DeleteLeftSnapshot()
            ):
                worker.send(self._answer_snapshot(message))
            case StoreHint(kind, process, body, life_s):
                self._hints.store(kind, process, body, life_s=life_s, now_ms=monotonic_ms())
            case GetHints(number, kind):
                worker.send(HintsResult(number, self._hints.of(kind, now_ms=monotonic_ms())))
            case _:
                pass

    def _to(self, workers: Iterator[ConnectedWorker] | list[ConnectedWorker], message: ToWorker) -> None:
        for each in tuple(workers):
            each.send(message)

    def _send_watched(self) -> None:
        self._to(self.workers, Watched(any(each.watching for each in self.workers)))

    def _relay(self, message: RelaySession, session: str, passed: socket.socket | None) -> None:
        """Pass the socket on; closed, it is a refusal to the worker that sent it."""
        if passed is None:
            return
        holder = next((each for each in self.workers if session in each.sessions), None)
        if holder is None:
            passed.close()
        else:
            holder.send(message, passed)

    # --- slots of REST requests, and of the local models -------------------------------------

    def _take_slot(self, worker: ConnectedWorker, message: TakeSlot) -> None:
        slot = (message.project, message.token)
        refusal = self._slots[message.what].take(*slot)
        if not refusal:
            worker.slots[message.number] = (message.what, slot)
        worker.send(SlotResult(message.number, refusal or ""))

    def _take_model_slot(self, worker: ConnectedWorker, number: int, limit: int | None, reservation: str) -> None:
        is_taken = self._model_slots.take(limit, reservation, monotonic_ms())
        if is_taken:
            worker.model_slots.add(number)
        worker.send(SlotResult(number, "" if is_taken else "full"))

    def _free_slot(self, worker: ConnectedWorker, number: int) -> None:
        if number in worker.model_slots:
            worker.model_slots.discard(number)
            self._model_slots.free()
        if number in worker.slots:
            what, slot = worker.slots.pop(number)
            self._slots[what].free(*slot)

    # --- snapshots of sessions --------------------------------------------------------------------

    def _answer_snapshot(self, request: SnapshotRequest) -> SnapshotResult:
        snapshots, now_ms = self._snapshots, monotonic_ms()
        match request:
            case HasSnapshot(number, session):
                return SnapshotResult(number, snapshots.has(session, now_ms=now_ms))
            case StoreSnapshot(number, session, snapshot, digest, owner, life_s, previous_digest):
                secrets = {"digest": digest, "owner": owner, "previous_digest": previous_digest}
                return SnapshotResult(
                    number, snapshots.store(session, snapshot, **secrets, life_s=life_s, now_ms=now_ms)
                )
            case AcquireSnapshot(number, session, digest, owner, next_digest):
                taken = snapshots.acquire(session, digest=digest, owner=owner, next_digest=next_digest, now_ms=now_ms)
                return SnapshotResult(number, taken is not None, taken)
            case DeleteSnapshot(number, session, owner):
                snapshots.delete(session, owner=owner)
                return SnapshotResult(number, is_done=True)
            case LeaseLeftSnapshot(number, after_s, life_s, lease):
                left = snapshots.lease_left(after_s=after_s, life_s=life_s, lease=lease, now_ms=now_ms)
                if left is None:
                    return SnapshotResult(number, is_done=False)
                return SnapshotResult(number, is_done=True, snapshot=left.stored, session=left.session_id)
            case DeleteLeftSnapshot(number, session, lease):
                snapshots.delete_left(session, lease=lease)
                return SnapshotResult(number, is_done=True)

    # --- queries ------------------------------------------------------------------------------

    def _query(self, sender: ConnectedWorker, query: Query) -> None:
        self._number += 1
        number, others = self._number, {each for each in self.workers if each.owner}  # the others still start
        if query.kind == "session":  # from clients without a credential: it must not cost each worker an answer
            others = {each for each in others if query.data.decode() in each.sessions}
        limit_s = RELOAD_S if query.kind == "reload" else QUERY_S
        timer = asyncio.get_running_loop().call_later(limit_s, self._finish, number)
        self._pending[number] = _Pending(sender, query, others, {}, timer)
        if not others:
            self._finish(number)
        for each in tuple(others):
            if not each.send(Query(number, query.kind, query.data)):
                self._answered(number, each, None)

    def _answered(self, number: int, worker: ConnectedWorker, data: bytes | None) -> None:
        pending = self._pending.get(number)
        if pending is None or worker not in pending.missing:
            return
        pending.missing.discard(worker)
        if data is not None:
            pending.replies[worker] = data
        else:
            pending.n_silent += 1
        if not pending.missing:
            self._finish(number)

    def _finish(self, number: int) -> None:
        pending = self._pending.pop(number)
        pending.timer.cancel()
        replies = list(pending.replies.values())
        self.n_reloads += pending.query.kind == "reload"
        if pending.query.kind == "metrics":
            replies += self._of_supervisor(pending.replies)
        elif pending.query.kind == "session":
            replies += self._why_not(pending.query.data.decode(), pending.replies)
        number, are_all = pending.query.number, not (pending.missing or pending.n_silent)
        if not pending.sender.send(QueryResult(number, replies, are_all)):
            pending.sender.send(QueryResult(number, [], are_all=False))

    def _why_not(self, session: str, replies: dict[ConnectedWorker, bytes]) -> Iterator[bytes]:
        """Yield why no worker answers for a session that there is, or was: its worker has died, or hangs."""
        if session in self._lost:
            yield LOST
        elif any(session in each.sessions and each not in replies for each in self.workers):
            yield HUNG

    def _of_supervisor(self, replies: dict[ConnectedWorker, bytes]) -> Iterator[bytes]:
        for worker, text in replies.items():
            worker.metrics = text
        if self._retired:
            yield self._retired
        yield sample_text(Sample("workers", sum(each.accepts and each.is_loaded for each in self.workers)))
        yield sample_text(Sample("worker_restarts_total", self.n_restarts))
