"""The connection to one client: a socket, and after it breaks perhaps a second one, with nothing lost or sent twice."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from voicepipe.clock import monotonic_ms
from voicepipe.session.outbox import OutgoingFrame
from voicepipe.session.socket import ClientSocket, DeliveringSocket, TakeAtOnce
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_event

UNREAD_LIMIT_S: Final = 10.0
"""Seconds after which a client that reads nothing loses its socket."""

RESUME_WINDOW_MS: Final = 15_000
"""How long a session waits for its client to reconnect."""

SENT_FRAMES_MS: Final = 60_000
"""A frame older than this has arrived, or the connection's pings would have failed. With the usual `server.ping_ms`
they fail after 30 s; the window comes after that."""

SENT_FRAMES_BYTES: Final = 4 << 20
"""One minute of speech as base64. A client that lacks more than this can't resume."""


@dataclass(frozen=True, slots=True)
class SentFrame:
    """A frame that was sent, and may not have arrived."""

    number: int
    sent_at_ms: int
    outgoing: OutgoingFrame


@dataclass(frozen=True, slots=True)
class Reconnection:
    """A client that reconnected on another socket."""

    socket: ClientSocket
    seen: int
    """The number of the last frame that the client received."""

    greet: Callable[[], bytes]
    """Makes the first frame, after everything that came over the old socket was processed."""

    over: AsyncEvent = field(default_factory=AsyncEvent)
    """Set when the session no longer uses this socket."""


class _Rest:
    """The rest of a coroutine of the running task, from what it awaits on."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._work, self._awaited = work, awaited

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            while True:
                try:
                    result = yield self._awaited
                except BaseException as why:
                    self._awaited = self._work.throw(why)
                else:
                    self._awaited = self._work.send(result)
        except StopIteration:
            return


class SessionConnection:
    """A session's connection for sending and receiving. One task sends, one receives."""

    def __init__(
        self, socket: ClientSocket, *, on_lost: Callable[[], None], on_back: Callable[[tuple[OutgoingFrame, ...]], None]
    ) -> None:
        """`on_lost` is called when the connection breaks and the session waits. `on_back` is called when the
        connection is restored, with the frames that had not arrived and were sent again."""
        self._socket, self._reconnection = socket, Reconnection(socket, 0, bytes)
        self._on_lost, self._on_back = on_lost, on_back
        self._resumable = self._ending = self._dropped = False
        self.has_received = False
        """Whether the client has sent anything."""

        self._take: TakeAtOnce | None = None
        self._context = contextvars.copy_context()
        self._fault: Exception | None = None
        """What `take` raised: `receive` raises it."""

        self._next: Reconnection | None = None
        self._wake = AsyncEvent()
        self._whole = AsyncEvent()
        self._whole.set()
        self._newest = self._dropped_up_to = self._sent_bytes = 0
        # Full: the oldest frame is dropped, and a client that did not receive it can't resume.
        self._sent_frames: deque[SentFrame] = deque()

    # --- sending and receiving ----------------------------------------------------------------

    async def send(self, number: int, outgoing: OutgoingFrame) -> None:
        """Send the frame of that number; each number is higher than the last. Waits while the client does not read,
        and while the connection is down."""
        await self._whole.wait()
        self._newest = number
        if self._resumable:
            self._retain(SentFrame(number, monotonic_ms(), outgoing))
        else:
            self._dropped_up_to = number
        await self._deliver(self._socket, outgoing.frame)

    async def receive(self) -> str | bytes | None:
        """Return the client's next message; None when the client is gone for good, and on every later call.

        Messages sent before the client left for good are not read: no reply can reach it. Messages of a client that
        was closed for reading too slowly are not read either.
        """
        while True:
            is_gone = self._dropped or (not self._resumable and self._socket.gone)
            message = None if is_gone else await self._socket.receive()
            if self._fault is not None:
                raise self._fault
            if message is not None:
                self.has_received = True
                return message
            if not await self._is_back():
                return None

    def deliver_to(self, take: TakeAtOnce | None) -> None:
        """Offer messages to `take` before `receive` returns them, where the socket can do this; None: to nobody.

        `receive` returns the first one, and raises what `take` raises.
        """
        self._take = take
        if isinstance(self._socket, DeliveringSocket):
            self._socket.deliver_to(None if take is None else self._offer)

    def _offer(self, message: bytes) -> bool:
        if self._take is None or not self.has_received:
            return False
        try:
            return self._context.run(self._take, message)  # the log lines name the session
        except Exception as why:
            self._fault = why
            return False

    @property
    def has_message(self) -> bool:
        """Return whether the client's next message has come already."""
        return self._socket.has_message

    async def close(self, code: int, reason: str) -> None:
        """Close the connection; it can't be resumed."""
        self._ending = True
        self._wake.set()
        await self._socket.close(code, reason)

    @property
    def hung_up(self) -> bool:
        """Return whether either side sent a close frame."""
        return self._socket.hung_up

    @property
    def is_resumable(self) -> bool:
        """Return whether a broken connection may be replaced."""
        return self._resumable

    def is_gone(self) -> bool:
        """Return whether the client is gone and can't reconnect."""
        return self._socket.gone and not self._resumable

    @property
    def is_whole(self) -> bool:
        """Return whether there is a socket that is not known to be broken."""
        return self._whole.is_set()

    def end(self) -> None:
        """End the connection: release every socket handler that waits for the session."""
        self._ending, self._resumable = True, False
        self._drop_sent_frames()
        self._reconnection.over.set()
        if self._next is not None:
            self._next.over.set()

    async def _deliver(self, socket: ClientSocket, frame: bytes) -> None:
        sending = socket.send(frame)
        try:
            awaited = sending.send(None)
        except StopIteration:  # nearly every frame: it takes no timer
            return
        try:
            async with asyncio.timeout(UNREAD_LIMIT_S):
                await _Rest(sending, awaited)
        except TimeoutError:
            self._drop(socket, f"the client read nothing for {UNREAD_LIMIT_S:.0f} s")  # `receive` reports the end

    def drop(self, why: str) -> None:
        """Close the connection of a client that reads too slowly. If its session may be resumed, the client may
        reconnect; while it is away its session ends."""
        if self._whole.is_set():
            self._drop(self._socket, why)
        else:
            log_event("slow_client_dropped", level=logging.WARNING, why=why)
            self.forbid_resume()

    def _drop(self, socket: ClientSocket, why: str) -> None:
        if not socket.gone:
            log_event("slow_client_dropped", level=logging.WARNING, why=why)
        self._dropped = self._dropped or socket is self._socket
        socket.abort()

    # --- resumption ---------------------------------------------------------------------------

    def allow_resume(self, allowed: bool) -> None:
        """Set whether a broken connection may be replaced, from now on."""
        self._resumable = allowed
        if not allowed:
            self._drop_sent_frames()

    def forbid_resume(self) -> None:
        """Refuse any further resumption; a connection that is down stays down."""
        self.allow_resume(False)
        if not self._whole.is_set():
            self._ending = True
            self._wake.set()

    def can_resume_after(self, seen: int) -> bool:
        """Return whether all frames sent after that number are still stored."""
        return self._resumable and not self._ending and self._dropped_up_to <= seen <= self._newest

    def replace(self, reconnection: Reconnection) -> None:
        """Use the newest socket: the previous socket is dropped."""
        if self._next is not None:
            self._next.over.set()
        self._next = reconnection
        self._wake.set()
        self._socket.abort()

    async def _is_back(self) -> bool:
        """Wait for the next socket after the current one closed, if the session may be resumed; return whether one
        came."""
        if self._next is None and (self._ending or not self._resumable or self._socket.hung_up):
            return False
        self._whole.clear()
        self._on_lost()
        try:
            async with asyncio.timeout(RESUME_WINDOW_MS / 1_000):
                await self._wake.wait()
        except TimeoutError:
            return False
        if self._ending or self._next is None:
            return False
        await self._take_over(self._next)
        return True

    async def _take_over(self, reconnection: Reconnection) -> None:
        take, self._next, self._dropped = self._take, None, False
        self.deliver_to(None)
        self._wake.clear()
        self._reconnection.over.set()
        self._reconnection, self._socket = reconnection, reconnection.socket
        missed = [sent.outgoing for sent in self._sent_frames if sent.number > reconnection.seen]
        await self._deliver(reconnection.socket, reconnection.greet())
        for outgoing in missed:
            await self._deliver(reconnection.socket, outgoing.frame)
        self._on_back(tuple(missed))
        self._whole.set()
        self.deliver_to(take)

    def _retain(self, sent: SentFrame) -> None:
        self._sent_frames.append(sent)
        self._sent_bytes += len(sent.outgoing.frame)
        while self._sent_frames and (
            self._sent_bytes > SENT_FRAMES_BYTES or self._sent_frames[0].sent_at_ms < sent.sent_at_ms - SENT_FRAMES_MS
        ):  # a frame longer than the whole limit is not stored either
            oldest = self._sent_frames.popleft()
            self._dropped_up_to = oldest.number
            self._sent_bytes -= len(oldest.outgoing.frame)

    def _drop_sent_frames(self) -> None:
        self._dropped_up_to, self._sent_bytes = self._newest, 0
        self._sent_frames.clear()
