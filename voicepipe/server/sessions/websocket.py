"""Wrap aiohttp's WebSocket of a client behind the port that sessions use."""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections.abc import Callable
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.http import WebSocketReader, WebSocketWriter, WSMessageNoDecodeText

from voicepipe.clock import loop_clock, monotonic_us
from voicepipe.protocol.binary import SoundFrame
from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.server.sessions.message_queue import DATA, QUEUED_BYTES, MessageQueue
from voicepipe.session.connection import UNREAD_LIMIT_S
from voicepipe.session.read_limit import TokenBucket
from voicepipe.session.socket import TakeAtOnce

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""A larger message closes the connection with 1009. Clients send up to 15 MiB of audio in one append."""

CLOSE_WAIT_S: Final = 1.0
"""Time for a client to answer the close frame."""

UNSENT_BYTES: Final = 32 * 1024
"""Output buffer in this process: 0.5 s of speech at 24 kHz in base64."""

KERNEL_BYTES: Final = 64 * 1024
"""Send buffer in the kernel (which takes twice that with its own bookkeeping, socket(7)). By default Linux grows this
to megabytes, a minute of speech. Then a client that has stopped reading would look like one that reads."""

BURST_PINGS: Final = 50
"""Number of pings that are answered at once."""

PINGS_PER_S: Final = 10
"""Pings per second in the long run; more are answered later, and messages behind them are read later."""

UNREAD_BYTES: Final = 256 * 1024
"""Receive buffer in the kernel (it takes twice that likewise). By default Linux grows this to megabytes, minutes of
speech. Then the pings of a client that is read slowly would wait behind the audio until the client disconnects."""

POSTPONED_SHARE: Final = 0.1
"""A ping comes at most this share of its interval too early: 2 s with the usual 20 s."""

MAX_REASON_BYTES: Final = 123
"""Maximum payload of a close frame (RFC 6455, 5.5)."""


class _BackpressuredWebSocket(web.WebSocketResponse[bool]):
    """Reports a missing pong only while this side reads. While it does not, the pong may be in the unread input, and
    `UNREAD_LIMIT_S` detects a lost client.

    `close` waits for the client's close frame also while a task receives: aiohttp would close the connection at once,
    and the client's next message would be answered with a reset, which may overtake the close frame.

    What a client sends postpones the next ping. While no pong is due, only once in `POSTPONED_SHARE` of the time
    between pings: aiohttp schedules a call for each 20 ms of audio. The connection holds no reference to the socket:
    unread input is freed with the socket.
    """

    def __init__(self, *, heartbeat: float, **options: Any) -> None:
        super().__init__(heartbeat=heartbeat, **options)
        self._on_data_received = _postponed_ping(self, POSTPONED_SHARE * heartbeat)  # type: ignore[method-assign]

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: WebSocketWriter) -> None:
        """Begin to read messages into a queue of our own: aiohttp makes its queue here, and takes no other."""
        http = request.protocol
        if not isinstance(http, HttpProtocol):
            super()._post_start(request, protocol, writer)
            return
        early, http._message_tail = http._message_tail, b""  # for the reader below
        super()._post_start(request, protocol, writer)
        self._reader = MessageQueue(http, QUEUED_BYTES, loop=http._loop)
        self._parser = http._payload_parser = WebSocketReader(
            self._reader, self._max_msg_size, compress=False, decode_text=False
        )
        if early:
            self._parser.feed_data(early)

    def _set_closing(self, code: int) -> None:
        if code is WSCloseCode.OK and self._close_wait is not None:
            return  # this side's `close` has woken `receive`; the code of a client's frame is a plain number
        super()._set_closing(code)  # type: ignore[arg-type]

    def _pong_not_received(self) -> None:
        if self._req is not None and self._req.protocol._reading_paused:  # aiohttp has no public attribute for it
            self._reset_heartbeat()
        else:
            super()._pong_not_received()


def _postponed_ping(websocket: _BackpressuredWebSocket, every_s: float) -> Callable[[], None]:
    """Make what aiohttp calls for all data that comes: a single call, since each frame of audio makes it."""
    held, loop_s, postponed_s = weakref.ref(websocket), loop_clock(), 0.0

    def postpone_ping() -> None:
        nonlocal postponed_s
        now_s, response = loop_s(), held()
        if response is not None and (now_s - postponed_s >= every_s or response._pong_response_cb is not None):
            postponed_s = now_s
            web.WebSocketResponse._on_data_received(response)

    return postpone_ping


def upgrade(*, ping_ms: int, subprotocol: str | None) -> web.WebSocketResponse[bool]:
    """Return a response that becomes a WebSocket when it is prepared. Text stays bytes: JSON is read from bytes."""
    return _BackpressuredWebSocket(
        protocols=(subprotocol,) if subprotocol else (),
        heartbeat=ping_ms / 1_000,
        max_msg_size=MAX_FRAME_BYTES + 1,  # aiohttp refuses from this length on
        timeout=CLOSE_WAIT_S,
        autoclose=False,  # the session answers a close frame when its records are stored
        autoping=False,  # `AiohttpSocket` answers, at a limited rate
        compress=False,  # base64 audio compresses little, and it costs CPU for every frame
        writer_limit=0,  # check the transport after every frame, not after every 64 kB
        decode_text=False,
    )


class AiohttpSocket:
    """Implements `ClientSocket` over a prepared WebSocket."""

    def __init__(self, websocket: web.WebSocketResponse[bool], transport: asyncio.Transport | None) -> None:
        self._websocket, self._transport = websocket, transport
        self._pings = TokenBucket(BURST_PINGS, PINGS_PER_S)
        self._over = False
        self._closing: asyncio.Event | None = None
        """Set when this side's `close` is over; None before it."""

        self.hung_up = False
        """Whether either side sent a close frame."""

        if transport is not None:
            transport.set_write_buffer_limits(high=UNSENT_BYTES)
            kernel = transport.get_extra_info("socket")
            if kernel is not None:
                kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
                kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)

    def deliver_to(self, take: TakeAtOnce | None) -> None:
        """Offer each message that comes alone, while `receive` waits, to `take` first; None: to nobody."""
        queue: Any = self._websocket._reader
        if isinstance(queue, MessageQueue):
            queue.take, queue.receiver = take, None if take is None else self._websocket

    @property
    def gone(self) -> bool:
        """Whether the connection is closed."""
        return self._over or self._transport is None or self._transport.is_closing()

    @property
    def has_message(self) -> bool:
        """Whether a text or binary message has come that was not received. aiohttp has no public attribute for it."""
        queue = self._websocket._reader
        return queue is not None and bool(queue._buffer) and queue._buffer[0][0].type in DATA

    async def receive(self) -> bytes | None:
        """Return the next message, text or binary; None when the connection is closed, and on every later call.

        Under this side's `close` that is when it is over: the session then cancels the task that closes.
        """
        while not self._over:
            message = await self._websocket.receive()
            if message.type in DATA:
                data: bytes = message.data
                return data
            if message.type is WSMsgType.PING or message.type is WSMsgType.PONG:
                await self._take_ping(message)
            else:
                self._over = True
                self.hung_up = self.hung_up or message.type is WSMsgType.CLOSE
        if self._closing is not None:
            await self._closing.wait()
        return None

    async def _take_ping(self, message: WSMessageNoDecodeText) -> None:
        """Answer a ping, and yield to other tasks: a client may send nothing but pings and pongs."""
        wait_us = max(0, self._pings.take(1, monotonic_us()))
        await asyncio.sleep(0 if self.gone else wait_us / 1_000_000)
        if message.type is WSMsgType.PING:
            try:
                async with asyncio.timeout(UNREAD_LIMIT_S):
                    await self._websocket.pong(message.data)
            except TimeoutError:
                self.abort()  # a client that does not read
            except ConnectionError:
                pass  # the connection has broken: earlier messages can still be read

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the client does not read. On a closed connection the frame is dropped, and behind
        the client's close frame."""
        if self._over:
            await asyncio.sleep(0)
            return
        try:
            await self._websocket.send_frame(
                frame, WSMsgType.BINARY if isinstance(frame, SoundFrame) else WSMsgType.TEXT
            )
        except ConnectionError:
            await asyncio.sleep(0)  # `receive` reports the end: let its task run

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame after all earlier frames, and wait `CLOSE_WAIT_S` for the client's.

        A client that does not read gets no close frame: the connection is dropped after `CLOSE_WAIT_S`. A second call
        waits for the first.
        """
        self.hung_up = True
        if self._closing is not None:
            await self._closing.wait()
            return
        self._closing = asyncio.Event()
        message = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore").encode()
        try:
            async with asyncio.timeout(2 * CLOSE_WAIT_S):
                await self._websocket.close(code=code, message=message)
        except TimeoutError:
            self.abort()
        finally:
            self._closing.set()
        self._websocket._exception = None  # its traceback keeps the socket alive

    def abort(self) -> None:
        """Drop the connection now, with all unsent data."""
        if self._transport is not None:
            self._transport.abort()
