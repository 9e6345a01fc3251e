"""Continue a session on a socket that another worker holds, or follow a call there.

The worker that accepted a client's connection keeps it, with its TLS and its WebSocket. The worker of the session uses
it over a Unix socket: each call of `ClientSocket` is a request there. So what waits, waits in the same places as on one
worker: at most one frame and one message are between the two.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from voicepipe.errors import Overload
from voicepipe.protocol.binary import SoundFrame
from voicepipe.protocol.extensions import Resume
from voicepipe.server.sessions.live_sessions import LiveSessions
from voicepipe.server.sessions.resume import FIRST_EVENT_S, Found, Resumptions
from voicepipe.server.sessions.websocket import CLOSE_WAIT_S, AiohttpSocket
from voicepipe.server.webrtc.calls import RtcCallLookup, RtcCalls
from voicepipe.server.webrtc.sideband import serve_sideband
from voicepipe.server.workers.peers import Workers
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.telemetry.log import log_crash

T = TypeVar("T")

_LENGTH: Final = struct.Struct(">I")

CLOSE_LIMIT_S: Final = 3 * CLOSE_WAIT_S
"""Time limit for the other worker to close its WebSocket."""


class _Frame(msgspec.Struct, tag=True, array_like=True):
    pass


# --- from the session's worker --------------------------------------------------------------------


class Receive(_Frame):
    """Receive the client's next message. The answer is `Received`."""


class SendFrame(_Frame):
    """Send a frame. The answer is `Sent`."""

    frame: bytes
    is_sound: bool


class CloseSocket(_Frame):
    """Close the WebSocket. The answer is the end of this connection."""

    code: int
    reason: str


class AbortSocket(_Frame):
    """Abort the WebSocket."""


class ResumeRefused(_Frame):
    """The session can't be resumed by this client, or the call is over."""


# --- from the connection's worker -----------------------------------------------------------------


class ResumeSession(_Frame):
    """The first message of a client that reconnects: its first event."""

    session: str
    secret: str
    last_event_id: str | None


class ServeSideband(_Frame):
    """The first message of a sideband connection of a call over WebRTC."""

    call: RtcCallLookup


class Received(_Frame):
    """The client's message; None: the connection is closed."""

    data: bytes | None
    hung_up: bool


class Sent(_Frame):
    """The frame is sent, or dropped since the connection is closed."""

    gone: bool


_TO_SOCKET: Final = msgspec.msgpack.Decoder(Receive | SendFrame | CloseSocket | AbortSocket | ResumeRefused)
_TO_SESSION: Final = msgspec.msgpack.Decoder(Received | Sent)
_FIRST: Final = msgspec.msgpack.Decoder(ResumeSession | ServeSideband)
_encoder: Final = msgspec.msgpack.Encoder()


class _Pipe:
    """A connection between two workers, in frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, frame: _Frame) -> None:
        """Send; a frame to a worker that is gone is dropped."""
        data = _encoder.encode(frame)
        with suppress(ConnectionError):
            self._writer.write(_LENGTH.pack(len(data)) + data)
            await self._writer.drain()

    def send_now(self, frame: _Frame) -> None:
        """Send without waiting."""
        data = _encoder.encode(frame)
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> bytes | None:
        """Return the next frame; None: the other worker has closed the connection, or has died."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def _pipe(end: socket.socket) -> _Pipe:
    return _Pipe(*await asyncio.open_unix_connection(sock=end))


# --- the worker of the connection -----------------------------------------------------------------


async def relay(end: socket.socket, first: ResumeSession | ServeSideband, client: AiohttpSocket) -> bool:
    """Have the session at the other end use this client's socket until it is done with it; False: it refuses, or no
    worker has it."""
    pipe = await _pipe(end)
    try:
        await pipe.send(first)
        async with background_tasks() as tasks:
            return await _serve_socket(pipe, client, tasks)
    finally:
        pipe.close()


async def _serve_socket(pipe: _Pipe, client: AiohttpSocket, tasks: BackgroundTasks) -> bool:
    is_used = False
    while (data := await pipe.receive()) is not None:
        match _TO_SOCKET.decode(data):
            case ResumeRefused():
                return False
            case Receive():
                tasks.start(_receive(pipe, client), name="relay-receive")
            case SendFrame(frame, is_sound):
                tasks.start(_send(pipe, client, SoundFrame(frame) if is_sound else frame), name="relay-send")
            case CloseSocket(code, reason):
                await client.close(code, reason)
                return True
            case AbortSocket():
                client.abort()
                return True
        is_used = True
    if is_used:  # the session's worker has died: the client must see a broken connection
        client.abort()
    return is_used


async def _receive(pipe: _Pipe, client: AiohttpSocket) -> None:
    data = await client.receive()
    await pipe.send(Received(data, client.hung_up))


async def _send(pipe: _Pipe, client: AiohttpSocket, frame: bytes) -> None:
    await client.send(frame)
    await pipe.send(Sent(client.gone))


class RelayedSessions:
    """The sessions of the other workers, for `resume`."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def find(self, session_id: str) -> Found:
        """Return whether another worker has this session; `unknown` also while the supervisor does not answer."""
        try:
            return await self._workers.find_session(session_id)
        except Overload:
            return "unknown"

    async def resume(self, resume_request: Resume, socket: AiohttpSocket) -> bool:
        """Continue the session there on this socket; return when it is done with it. False: refused."""
        end = self._workers.relay(resume_request.session_id)
        first = ResumeSession(resume_request.session_id, resume_request.secret, resume_request.last_event_id)
        return end is not None and await relay(end, first, socket)


class RelayedRtcCalls:
    """The calls over WebRTC of the other workers. Implements `OtherRtcCalls`."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def session_of(self, lookup: RtcCallLookup) -> str:
        """Return the ID of the call's session; empty: no worker has the call.

        Raises:
            Overload: the supervisor, or a worker that may have it, does not answer.
        """
        return await self._workers.session_of_call(lookup)

    async def serve_sideband(self, lookup: RtcCallLookup, session: str, socket: AiohttpSocket) -> bool:
        """Have the worker of the call use this sideband connection to the end; False: the call is over."""
        end = self._workers.relay(session)
        return end is not None and await relay(end, ServeSideband(lookup), socket)

    async def hang_up(self, lookup: RtcCallLookup) -> bool:
        """End the call; False: no worker has it.

        Raises:
            Overload: the supervisor, or a worker that may have it, does not answer.
        """
        return await self._workers.hang_up(lookup)


# --- the worker of the session --------------------------------------------------------------------


class RelayedSocket:
    """Implements `ClientSocket` over the connection to the worker that has the WebSocket."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._receiving: asyncio.Future[bytes | None] | None = None
        self._sending: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self._over = False
        self.hung_up = False
        """Whether either side sent a close frame."""

        self.gone = False
        """Whether the connection is closed, by what this worker has received."""

        self.has_message = False
        """Whether a message has come that was not received: each is requested, so none."""

    async def run(self) -> None:
        """Take the answers of the other worker until it closes the connection."""
        while (data := await self._pipe.receive()) is not None:
            match _TO_SESSION.decode(data):
                case Received(message, hung_up):
                    self.hung_up = self.hung_up or hung_up
                    self.gone = self.gone or message is None
                    _resolve(self._receiving, message)
                    self._receiving = None
                case Sent(gone):
                    self.gone = self.gone or gone
                    _resolve(self._sending, None)
                    self._sending = None
        self._end()

    async def receive(self) -> bytes | None:
        """Return the next message; None when the connection is closed, and on every later call."""
        if self._over or self._ended.is_set():
            return None
        if self._receiving is None:  # else an earlier call was cancelled: its message is still to come
            self._receiving = asyncio.get_running_loop().create_future()
            await self._pipe.send(Receive())
        message = await asyncio.shield(self._receiving)
        self._over = message is None
        return message

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the client does not read. On a closed connection the frame is dropped."""
        if self._sending is not None:
            await asyncio.shield(self._sending)
        if self.gone:
            await asyncio.sleep(0)  # `receive` reports the end: let its task run
            return
        self._sending = sending = asyncio.get_running_loop().create_future()
        await self._pipe.send(SendFrame(frame, isinstance(frame, SoundFrame)))
        await asyncio.shield(sending)

    async def close(self, code: int, reason: str) -> None:
        """Have the other worker close the WebSocket, and wait for that within `CLOSE_LIMIT_S`."""
        self.hung_up = True
        if not self._ended.is_set():
            await self._pipe.send(CloseSocket(code, reason))
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self._ended.wait()
        self.abort()

    def abort(self) -> None:
        """Drop the connection now, with all unsent data."""
        if not self._ended.is_set():
            self._pipe.send_now(AbortSocket())
            self._end()
        self._pipe.close()

    def _end(self) -> None:
        self.gone = True
        self._ended.set()
        _resolve(self._receiving, None)
        _resolve(self._sending, None)
        self._receiving = self._sending = None


def _resolve(future: asyncio.Future[T] | None, value: T) -> None:
    if future is not None and not future.done():
        future.set_result(value)


async def serve_relay(end: socket.socket, sessions: LiveSessions, resumptions: Resumptions, calls: RtcCalls) -> None:
    """Continue the session that the other worker's client names, if it may, or have it follow the call."""
    pipe = await _pipe(end)
    try:
        async with asyncio.timeout(FIRST_EVENT_S):
            data = await pipe.receive()
        if data is None or sessions.closing:
            return
        client = RelayedSocket(pipe)
        async with background_tasks() as tasks:
            tasks.start(client.run(), name="relayed-socket")
            if not await _serve(_FIRST.decode(data), client, sessions, resumptions, calls):
                await pipe.send(ResumeRefused())
    except TimeoutError:
        pass  # the other worker hangs
    except Exception as error:
        log_crash("relay", error)
    finally:
        pipe.close()


async def _serve(
    first: ResumeSession | ServeSideband,
    client: RelayedSocket,
    sessions: LiveSessions,
    resumptions: Resumptions,
    calls: RtcCalls,
) -> bool:
    """Serve a client to the end; False: what it names is not here, or not for it."""
    if isinstance(first, ServeSideband):
        call = calls.find(first.call)
        if call is not None:
            await serve_sideband(call, client)
        return call is not None
    resume_request = Resume(session_id=first.session, secret=first.secret, last_event_id=first.last_event_id)
    is_resumed = await resumptions.resume(sessions.find(first.session), resume_request, client)
    if is_resumed:
        await client.close(1000, "")
    return is_resumed
