"""A queue of frames to the client: in order, bounded in audio and in bytes, and droppable by turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from voicepipe.clock import monotonic_us
from voicepipe.session.read_limit import ALL_CLIENTS, ActiveClients
from voicepipe.tasks import AsyncEvent

UNSENT_SOUND_MS = 2_000
"""Audio that the socket has not taken; above this the synthesizer waits."""

UNSENT_BYTES: Final = 1 << 20
"""Bytes that the socket has not taken; from this on none of the client's events is read, since each may cause more
output."""

MAX_UNSENT_BYTES: Final = 24 << 20
"""Bytes that the socket has not taken; a frame queued behind more than this closes the connection. One event of 16
MB, the longest, may be answered with two frames of that length. A client that reads them is not closed for that."""

FRAME_OVERHEAD_BYTES: Final = 256
"""Approximate memory of a frame beside its own bytes: many tiny frames count too."""


class OutgoingFrame(Struct, frozen=True):
    """One frame for the socket. Turn 0 belongs to no reply."""

    frame: bytes
    turn: int = 0
    revision: int = 0
    sound_ms: int = 0
    """Audio in this frame. A frame with audio is dropped when its reply is stopped; other frames are never dropped."""

    counts_ms: int = 0
    """Audio that has left with this frame, in this frame or before it."""

    output: bool = False
    """Whether sending this frame is an event of the turn: it carries the reply's text or audio."""

    filler_ms: int = 0
    """Audio of the turn's filler that has left with this frame."""

    has_secret: bool = False
    """Whether it has a resume secret: it leaves when the store has the secret."""


class FrameSender(Protocol):
    """The connection that takes an outbox's frames."""

    async def send(self, number: int, outgoing: OutgoingFrame) -> None:
        """Send a frame; waits while the frame can't be sent."""
        ...


class Outbox:
    """The queue between a session and its connection. Frames are numbered in the order in which they are put, as the
    wire numbers its events.

    Events are never dropped. They are bounded by the reader of the client's own events, which waits for `writable`, and
    by `on_full`, which closes the connection. Audio is bounded by its producers, which call `wait_for_space`. That of a
    stopped reply is dropped before it reaches the socket.
    """

    def __init__(
        self,
        on_sent: Callable[[OutgoingFrame], None],
        on_full: Callable[[], None],
        pending_write: Callable[[], Awaitable[None] | None] = lambda: None,
        *,
        now_us: Callable[[], int] = monotonic_us,
        active: ActiveClients = ALL_CLIENTS,
    ) -> None:
        """`on_full` is called by the first `put` behind more than `MAX_UNSENT_BYTES`, again once these were sent.
        `pending_write` is called before a reply's output is sent, and returns what to wait for first.
        `now_us` is a monotonic clock; `active` counts the active clients of the event loop."""
        self._on_sent, self._on_full = on_sent, on_full
        self._pending_write, self._now_us, self._active = pending_write, now_us, active
        self._n_put = 0
        # Bounded through `wait_for_space`, `writable` and `on_full`.
        self._frames: deque[tuple[int, OutgoingFrame]] = deque()
        self.n_bytes = 0
        """Number of bytes put so far."""

        self._unsent_bytes = 0
        self._full = False
        self.writable = AsyncEvent()
        """Set while the socket has taken enough of everything."""

        self.writable.set()
        self._unsent_ms = 0
        self._filled = AsyncEvent()
        self._has_space = AsyncEvent()
        self._has_space.set()
        self._empty = AsyncEvent()
        self._empty.set()

    def put(self, outgoing: OutgoingFrame) -> None:
        """Queue a frame behind all others; returns at once."""
        if self._unsent_bytes > MAX_UNSENT_BYTES and not self._full:
            self._full = True
            self._on_full()
        self._n_put += 1
        self._frames.append((self._n_put, outgoing))
        self._empty.clear()
        self.n_bytes += len(outgoing.frame)
        self._count(outgoing.sound_ms, _bytes_of(outgoing))
        self._filled.set()

    def put_events(self, frames: Sequence[bytes], *, has_secret: bool = False) -> None:
        """Queue frames that belong to no reply. `has_secret`: as of `OutgoingFrame`."""
        for frame in frames:
            self.put(OutgoingFrame(frame, has_secret=has_secret))

    def drop_sound(self, turn: int) -> None:
        """Drop the audio of this turn that the socket has not taken. Events stay."""
        dropped = [outgoing for _, outgoing in self._frames if outgoing.turn == turn and outgoing.sound_ms]
        self._frames = deque(each for each in self._frames if each[1].turn != turn or not each[1].sound_ms)
        self._count(-sum(outgoing.sound_ms for outgoing in dropped), -sum(map(_bytes_of, dropped)))

    async def wait_for_space(self) -> None:
        """Wait until the socket has taken enough audio."""
        await self._has_space.wait()

    async def run(self, connection: FrameSender) -> None:
        """Send what is queued, in order, until cancelled.

        A socket takes thousands of small frames without waiting: in between, the event loop serves the others.
        """
        while True:
            since_us = self._now_us()
            while self._frames:
                if self._now_us() - since_us >= self._active.time_slice_us:
                    await self._active.yield_to_others()
                    since_us = self._now_us()
                    continue  # what was queued may have been dropped meanwhile
                first = self._frames[0][1]
                if (first.output or first.has_secret) and (held := self._pending_write()) is not None:
                    await held
                    continue
                number, outgoing = self._frames.popleft()
                await connection.send(number, outgoing)
                self._count(-outgoing.sound_ms, -_bytes_of(outgoing))
                if outgoing.output:
                    self._on_sent(outgoing)
            self._filled.clear()
            self._empty.set()
            await self._filled.wait()

    async def drained(self) -> None:
        """Wait until everything queued has been sent, for a last event before closing."""
        await self._empty.wait()

    def _count(self, sound_ms: int, n_bytes: int) -> None:
        self._unsent_ms += sound_ms
        if self._unsent_ms < UNSENT_SOUND_MS:
            self._has_space.set()
        else:
            self._has_space.clear()
        self._unsent_bytes += n_bytes
        if self._unsent_bytes < UNSENT_BYTES:
            self.writable.set()
            self._full = False
        else:
            self.writable.clear()


def _bytes_of(outgoing: OutgoingFrame) -> int:
    return FRAME_OVERHEAD_BYTES + len(outgoing.frame)
