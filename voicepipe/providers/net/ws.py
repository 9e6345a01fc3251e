"""A WebSocket to a vendor: dialled in the background, written without waiting, held open by pings, closed promptly.

    async with dial(address, "/listen?model=nova-3", line) as socket:
        socket.send_audio(pcm)  # at once, dialled or not
        message = await socket.receive()

It never reconnects: a broken stream is over, and its owner opens another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from voicepipe import clock
from voicepipe.audio.encoding import AudioEncoding
from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.position_map import PositionMap
from voicepipe.tasks import AsyncEvent, background_tasks

PING_S = 5.0
"""Interval of pings. A connection that died silently is detected after this time plus the provider's idle time, at
most.
"""

HANG_UP_S = 0.08
"""Time limit for the vendor's closing message; the port allows 100 ms for leaving."""

JOINED_MS = 200
"""Waiting audio is sent in messages of at most this size: thousands of small ones would block the event loop."""

UNSENT_BYTES = 8 << 10
"""With more than this in the output buffer of this process, messages wait in the queue, where their number is bounded.
250 ms of 16 kHz audio."""

PCM_16KHZ = AudioEncoding(16_000)
"""What most models of speech take."""

WAITING_TEXTS = 1_000
"""Maximum number of waiting control messages; a working connection never has more than a few."""

# At debug level the library logs headers, the key among them, and audio.
_QUIET = logging.getLogger(f"{__name__}.wire")
_QUIET.setLevel(logging.WARNING)


class SocketRules(Struct, frozen=True, kw_only=True):
    """A vendor's rules for using its WebSocket."""

    encoding: AudioEncoding = PCM_16KHZ
    """That of the audio that `send_audio` takes."""

    buffer_ms: int = 30_000
    """Maximum waiting audio; beyond it the oldest is dropped and counted."""

    wrap: Callable[[bytes], str] | None = None
    """Encodes audio as text, for vendors that take it so; None: it is sent unchanged."""

    greeting: str | None = None
    """Sent first."""

    min_ms: int = 0
    """Minimum audio in one message. Less waits for more; before a text it is padded with silence."""

    keep_alive: str | bytes | None = None
    """Sent when nothing else was for `keep_alive_ms`. Bytes are padding audio: silence."""

    keep_alive_ms: int = 5_000

    farewell: str | None = None
    """Sent before the WebSocket is closed."""

    message_bytes: int = 1 << 20
    """Maximum length of a received message."""

    pong_ms: int | None = None
    """Timeout of a ping; None: the provider's idle time."""


@asynccontextmanager
async def dial(address: ProviderAddress, path: str, line: SocketRules) -> AsyncIterator[VendorSocket]:
    """Yield a WebSocket to `address.base_url + path` at once, and dial in the background: `receive` raises a failure.

    Leaving closes the WebSocket within 100 ms, also when cancelled; unsent messages are dropped.
    """
    async with background_tasks() as owned:
        socket = VendorSocket(address, path, line)
        owned.start(socket.carry(), name=f"ws-{address.name}")
        try:
            yield socket
        finally:
            socket.leave()


class _Dial(connect):
    """Refuse redirects: they would send the user's words to a host that is not in the settings."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class VendorSocket:
    """A WebSocket that may not be open yet, or be slow; see `dial`."""

    def __init__(self, address: ProviderAddress, path: str, line: SocketRules) -> None:
        self._address, self._path, self._line = address, path, line
        self.encoding = line.encoding
        """That of the audio that `send_audio` takes."""

        self.connect_ms = 0
        """How long connecting took, in ms; 0 until there is a connection."""

        self._connection: ClientConnection | None = None
        self._failure: StageError | None = None
        self._dial_ended = AsyncEvent()  # dialled, or failed to
        # Full means that the vendor takes less than comes: the oldest audio is dropped, and counted. One text too many
        # breaks the connection, since nothing of it gets through any more.
        self._waiting: deque[bytes | str] = deque()
        self._waiting_bytes = self._waiting_texts = 0
        self._some = AsyncEvent()
        self._idle = False
        """Whether the sending task waits for a message: then a message may be written without it."""

        self._loop_s = clock.loop_clock()
        self._written_s = 0.0
        """When a message was last written, on the loop's clock."""

        self._min_bytes = line.min_ms * line.encoding.bytes_per_ms
        self._gaps = PositionMap()
        self.sent_bytes = 0
        """Amount of audio sent, including padding."""

        self.dropped_bytes = 0
        """Amount of audio that was never sent."""

    @property
    def in_step(self) -> bool:
        """Whether the vendor's positions equal those of all audio that was given to `send_audio`."""
        return not self._gaps

    def pushed_at(self, sent_bytes: int) -> int:
        """Return the position in all audio given to `send_audio` of a position in the audio that the vendor got."""
        return self._gaps.place(sent_bytes)

    def send(self, text: str) -> None:
        """Send a message after all earlier ones. Returns at once."""
        if self._waiting_texts == WAITING_TEXTS:
            self._fail(failures.broken(self._address, f"the vendor left {WAITING_TEXTS} messages unread"))
            if self._connection is not None:
                self._connection.transport.abort()
            return
        if self._write(text):
            return
        self._waiting.append(text)
        self._waiting_texts += 1
        self._some.set()

    def send_audio(self, data: bytes) -> None:
        """Send audio. Returns at once; nothing is sent for 0 bytes, which mean the end at some vendors."""
        if not data:
            return
        if len(data) >= self._min_bytes and self._write(data):
            self.sent_bytes += len(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._ready():
            self._some.set()
        while self._waiting_bytes > self._line.buffer_ms * self._line.encoding.bytes_per_ms:
            self._drop_oldest()

    async def connected(self) -> ClientConnection:
        """Wait until the vendor has accepted the connection.

        Raises:
            StageError: the vendor could not be reached, or refused.
        """
        await self._dial_ended.wait()
        if self._failure is not None:
            raise self._failure
        assert self._connection is not None
        return self._connection

    async def receive(self) -> str | bytes:
        """Return the vendor's next message. May be cancelled without losing a message.

        Raises:
            StageError: as in `connected`; or the vendor left pings unanswered, or the connection ended.
        """
        connection = await self.connected()
        try:
            return await connection.recv()
        except ConnectionClosed as error:
            self._fail(failures.ws_cut(self._address, error, pong_ms=self._pong_ms))
        assert self._failure is not None
        raise self._failure

    def leave(self) -> None:
        """End pending `receive` calls; see `dial`."""
        self._fail(failures.broken(self._address, "the adapter closed the connection"))

    async def carry(self) -> None:
        """Dial, send the queued messages, and close when cancelled. `receive` raises its failures."""
        began_s = clock.loop_s()
        try:
            with failures.WsOpening(self._address):
                self._connection = connection = await self._dial()
        except StageError as failure:
            self._fail(failure)
            return
        self.connect_ms = round(1_000 * (clock.loop_s() - began_s))
        self._dial_ended.set()
        try:
            await self._send_all(connection)
        except ConnectionClosed:
            pass  # `receive` raises it
        finally:
            await self._hang_up(connection)

    @property
    def _pong_ms(self) -> int:
        return min(self._address.idle_timeout_ms, self._line.pong_ms or self._address.idle_timeout_ms)

    async def _dial(self) -> ClientConnection:
        pong_s = self._pong_ms / 1_000
        return await _Dial(
            self._address.base_url + self._path,
            additional_headers=dict(self._address.headers),
            user_agent_header="voicepipe",
            compression=None,  # audio does not shrink, and compression costs a window of memory for each connection
            proxy=None,
            open_timeout=self._address.connect_timeout_ms / 1_000,
            ping_interval=min(PING_S, pong_s),
            ping_timeout=pong_s,
            close_timeout=HANG_UP_S,
            max_size=self._line.message_bytes,
            logger=_QUIET,
        )

    def _write(self, message: bytes | str) -> bool:
        """Write a message if nothing waits before it and the vendor takes what is written; return whether it did.

        Waking the task for each 20 ms of audio takes several times as long as writing it.
        """
        connection = self._connection
        if connection is None or not self._idle or self._waiting or self._failure is not None:
            return False
        if connection.state is not State.OPEN or connection.transport.get_write_buffer_size() > UNSENT_BYTES:
            return False
        wrap, protocol = self._line.wrap, connection.protocol
        if isinstance(message, str):
            protocol.send_text(message.encode())
        elif wrap is not None:
            protocol.send_text(wrap(message).encode())
        else:
            protocol.send_binary(message)
        for frame in protocol.data_to_send():
            connection.transport.write(frame)
        self._written_s = self._loop_s()
        return True

    async def _send_all(self, connection: ClientConnection) -> None:
        if self._line.greeting is not None:
            await connection.send(self._line.greeting)
        wrap = self._line.wrap
        while (message := await self._next()) is not None:
            await connection.send(wrap(message) if wrap is not None and isinstance(message, bytes) else message)
            if self._waiting:
                await asyncio.sleep(0)  # a backlog leaves time for other tasks

    async def _next(self) -> bytes | str | None:
        """Return what to send now: queued messages, or the keep-alive after enough idle time; None when it is over."""
        keep_alive = self._line.keep_alive
        if not await self._wait(None if keep_alive is None else self._line.keep_alive_ms / 1_000):
            return self._padding(keep_alive) if isinstance(keep_alive, bytes) else keep_alive
        if self._failure is not None:
            return None
        message = self._waiting.popleft()
        if isinstance(message, bytes):
            message = self._joined(message)
            message += self._padding(self.encoding.silence(max(0, self._min_bytes - len(message))))
        else:
            self._waiting_texts -= 1
        if not self._ready():
            self._some.clear()
        return message

    async def _wait(self, idle_s: float | None) -> bool:
        """Wait until a message waits or the connection has failed; return False when nothing was written for
        `idle_s`."""
        if self._some.is_set():
            return True
        self._idle, self._written_s = True, clock.loop_s()
        try:
            while True:
                try:
                    async with asyncio.timeout_at(None if idle_s is None else self._written_s + idle_s):
                        return await self._some.wait()
                except TimeoutError:
                    if idle_s is None or clock.loop_s() >= self._written_s + idle_s:
                        return False
        finally:
            self._idle = False

    def _ready(self) -> bool:
        """Whether there is something to send now."""
        return bool(self._waiting) and (self._waiting_texts > 0 or self._waiting_bytes >= self._min_bytes)

    def _padding(self, silence: bytes) -> bytes:
        """Count padding silence that is sent now."""
        if silence:
            self._gaps.record(self.sent_bytes, -len(silence))
            self.sent_bytes += len(silence)
        return silence

    def _joined(self, first: bytes) -> bytes:
        parts, n_bytes = [first], len(first)
        most = JOINED_MS * self._line.encoding.bytes_per_ms
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
        self._gaps.record(self.sent_bytes, oldest)

    async def _hang_up(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.timeout(HANG_UP_S):
                if self._line.farewell is not None:
                    await connection.send(self._line.farewell)
                await connection.close()
        except (TimeoutError, ConnectionClosed):
            pass  # the server no longer reads
        finally:
            connection.transport.abort()

    def _fail(self, failure: StageError) -> None:
        if self._failure is None:
            self._failure = failure
            self._dial_ended.set()
            self._some.set()
