"""One WebSocket to a vendor: dialled in the background, fed without waiting, kept alive, hung up promptly.

    async with dial(peer, "/listen?model=nova-3", line) as socket:
        socket.send_audio(pcm)  # at once, dialled or not
        message = await socket.receive()

It never dials again: a broken stream is over, and whoever owns it opens another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.providers.net import failures, ws_failures
from voicepipe.providers.net.gaps import Gaps
from voicepipe.providers.net.peer import Peer
from voicepipe.stages.helpers import helpers

PING_S = 5.0
"""Between two pings. A line that died without a word is noticed so much plus the peer's idle time later, at most."""

HANG_UP_S = 0.08
"""How long a farewell may take; the port allows 100 ms for leaving."""

JOINED_MS = 200
"""Audio that waits leaves in messages of at most this: thousands of small ones would hold the event loop."""

WAITING_TEXTS = 1_000
"""The most control messages that wait; a live line never has more than a few."""

# The library writes headers, the key among them, and audio to its log when debugging is on for everybody.
_QUIET = logging.getLogger(f"{__name__}.wire")
_QUIET.setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How a vendor wants its socket to be used."""

    audio_bytes_per_ms: int = 32
    """Of what `send_audio` takes; 16 kHz PCM16 is 32."""

    buffer_ms: int = 30_000
    """The most audio that waits; past it the oldest is dropped and counted."""

    wrap: Callable[[bytes], str] | None = None
    """Makes a text of audio, for vendors that take it so; None: it is sent as it is."""

    greeting: str | None = None
    """Sent first."""

    least_ms: int = 0
    """The least audio in one message. Less waits for more; before a text it is filled up with silence."""

    keep_alive: str | bytes | None = None
    """Sent when nothing else was for `keep_alive_ms`. Bytes are audio that nobody pushed: silence."""

    keep_alive_ms: int = 5_000

    farewell: str | None = None
    """Said before the socket is closed."""

    message_bytes: int = 1 << 20
    """The longest message that is taken."""

    pong_ms: int | None = None
    """How long a ping may stay unanswered; None: for the peer's idle time."""


@asynccontextmanager
async def dial(
    peer: Peer, path: str, line: Line, *, reached: Callable[[int], None] | None = None
) -> AsyncIterator[VendorSocket]:
    """Yield a socket to `peer.base_url + path` at once, and dial in the background: `receive` tells how that went.

    `reached` is called when the line is up, with how many ms that took. Leaving closes the socket within 100 ms, also
    when cancelled; what still waits to be sent is forgotten.
    """
    async with helpers() as owned:
        socket = VendorSocket(peer, path, line, reached=reached)
        owned.start(socket.carry(), name=f"ws-{peer.name}")
        try:
            yield socket
        finally:
            socket.leave()


class _Dial(connect):
    """Redirects are not followed: they would carry the caller's words to somewhere that nobody named."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class VendorSocket:
    """A line that may not be up yet, or be slow; see `dial`."""

    def __init__(self, peer: Peer, path: str, line: Line, *, reached: Callable[[int], None] | None = None) -> None:
        self._peer, self._path, self._line, self._reached = peer, path, line, reached
        self._connection: ClientConnection | None = None
        self._failure: StageError | None = None
        self._settled = asyncio.Event()  # dialled, or failed to
        # Full means that the vendor takes less than comes: the oldest audio goes, counted; a text too many breaks the
        # line, since nothing of it gets through any more.
        self._waiting: deque[bytes | str] = deque()
        self._waiting_bytes = self._waiting_texts = 0
        self._some = asyncio.Event()
        self._least_bytes = line.least_ms * line.audio_bytes_per_ms
        self._gaps = Gaps()
        self.sent_bytes = 0
        """How much audio has been sent, silence that nobody pushed included."""

        self.dropped_bytes = 0
        """How much audio was never sent."""

    @property
    def in_step(self) -> bool:
        """Whether the vendor's places are those of all audio that was given to `send_audio`."""
        return not self._gaps

    def pushed_at(self, sent_bytes: int) -> int:
        """The place in all audio that was given to `send_audio` of a place in the audio that the vendor got."""
        return self._gaps.place(sent_bytes)

    def send(self, text: str) -> None:
        """Send a message after all that was given before it. Returns at once."""
        if self._waiting_texts == WAITING_TEXTS:
            self._fail(failures.broken(self._peer, f"it left {WAITING_TEXTS} messages untaken"))
            if self._connection is not None:
                self._connection.transport.abort()
            return
        self._waiting.append(text)
        self._waiting_texts += 1
        self._some.set()

    def send_audio(self, data: bytes) -> None:
        """Send audio. Returns at once; nothing is sent for no bytes, by which some vendors mean the end."""
        if not data:
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._ready():
            self._some.set()
        while self._waiting_bytes > self._line.buffer_ms * self._line.audio_bytes_per_ms:
            self._drop_oldest()

    async def connected(self) -> ClientConnection:
        """Wait until the vendor has taken the call.

        Raises:
            StageError: it could not be reached, or refused.
        """
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure
        assert self._connection is not None
        return self._connection

    async def receive(self) -> str | bytes:
        """The vendor's next message. May be cancelled without losing one.

        Raises:
            StageError: as `connected` does; or it left our pings unanswered, or the connection ended.
        """
        connection = await self.connected()
        try:
            return await connection.recv()
        except ConnectionClosed as error:
            self._fail(ws_failures.cut(self._peer, error, pong_ms=self._pong_ms))
        assert self._failure is not None
        raise self._failure

    def leave(self) -> None:
        """Whoever still receives is told that the line is over; see `dial`."""
        self._fail(failures.broken(self._peer, "the line was left"))

    async def carry(self) -> None:
        """Dial, send what is given, and hang up when cancelled. Failures are kept for `receive`."""
        began_s = clock.loop_s()
        try:
            with ws_failures.Opening(self._peer):
                self._connection = connection = await self._dial()
        except StageError as failure:
            self._fail(failure)
            return
        self._settled.set()
        if self._reached is not None:
            self._reached(round(1_000 * (clock.loop_s() - began_s)))
        try:
            await self._send_all(connection)
        except ConnectionClosed:
            pass  # `receive` tells
        finally:
            await self._hang_up(connection)

    @property
    def _pong_ms(self) -> int:
        return min(self._peer.idle_timeout_ms, self._line.pong_ms or self._peer.idle_timeout_ms)

    async def _dial(self) -> ClientConnection:
        pong_s = self._pong_ms / 1_000
        return await _Dial(
            self._peer.base_url + self._path,
            additional_headers=dict(self._peer.headers),
            user_agent_header="voicepipe",
            compression=None,  # audio does not shrink, and it costs a window of memory for each caller
            proxy=None,
            open_timeout=self._peer.connect_timeout_ms / 1_000,
            ping_interval=min(PING_S, pong_s),
            ping_timeout=pong_s,
            close_timeout=HANG_UP_S,
            max_size=self._line.message_bytes,
            logger=_QUIET,
        )

    async def _send_all(self, connection: ClientConnection) -> None:
        if self._line.greeting is not None:
            await connection.send(self._line.greeting)
        wrap = self._line.wrap
        while (message := await self._next()) is not None:
            await connection.send(wrap(message) if wrap is not None and isinstance(message, bytes) else message)
            if self._waiting:
                await asyncio.sleep(0)  # a backlog leaves room for others

    async def _next(self) -> bytes | str | None:
        """What to send now: what waits, or the keep-alive when nothing has for long enough; None when it is over."""
        keep_alive = self._line.keep_alive
        try:
            async with asyncio.timeout(None if keep_alive is None else self._line.keep_alive_ms / 1_000):
                await self._some.wait()
        except TimeoutError:
            return self._padding(keep_alive) if isinstance(keep_alive, bytes) else keep_alive
        if self._failure is not None:
            return None
        message = self._waiting.popleft()
        if isinstance(message, bytes):
            message = self._joined(message)
            message += self._padding(bytes(max(0, self._least_bytes - len(message))))
        else:
            self._waiting_texts -= 1
        if not self._ready():
            self._some.clear()
        return message

    def _ready(self) -> bool:
        """Whether there is something to send now."""
        return bool(self._waiting) and (self._waiting_texts > 0 or self._waiting_bytes >= self._least_bytes)

    def _padding(self, silence: bytes) -> bytes:
        """Silence that is sent now, and that nobody pushed."""
        if silence:
            self._gaps.note(self.sent_bytes, -len(silence))
            self.sent_bytes += len(silence)
        return silence

    def _joined(self, first: bytes) -> bytes:
        parts, n_bytes = [first], len(first)
        most = JOINED_MS * self._line.audio_bytes_per_ms
        while self._waiting and isinstance(more := self._waiting[0], bytes) and n_bytes + len(more) <= most:
            self._waiting.popleft()
            parts.append(more)
            n_bytes += len(more)
        self._waiting_bytes -= n_bytes
        self.sent_bytes += n_bytes
        return b"".join(parts) if len(parts) > 1 else first

    def _drop_oldest(self) -> None:
        at = next(i for i, message in enumerate(self._waiting) if isinstance(message, bytes))
        oldest = len(self._waiting[at])
        del self._waiting[at]
        self._waiting_bytes -= oldest
        self.dropped_bytes += oldest
        self._gaps.note(self.sent_bytes, oldest)

    async def _hang_up(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.timeout(HANG_UP_S):
                if self._line.farewell is not None:
                    await connection.send(self._line.farewell)
                await connection.close()
        except (TimeoutError, ConnectionClosed):
            pass  # it does not listen any more
        finally:
            connection.transport.abort()

    def _fail(self, failure: StageError) -> None:
        if self._failure is None:
            self._failure = failure
            self._settled.set()
            self._some.set()
