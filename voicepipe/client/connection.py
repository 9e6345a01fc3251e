"""Connect to a server over a WebSocket, and resume on a new one if it breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pybase64
import websockets
from websockets.asyncio.client import ClientConnection

from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.client.address import Address
from voicepipe.client.errors import CallEnded, CallFailed, CallRefused, ServerUnreachable
from voicepipe.client.last_output import LastOutput
from voicepipe.client.microphone import RATE_HZ
from voicepipe.clock import monotonic_ms
from voicepipe.protocol import binary
from voicepipe.protocol.extensions import GoingAway, Resumed, read_server_event
from voicepipe.tasks import BackgroundTasks

CONNECT_S: Final = 10.0
"""Timeout of the handshake; a server whose models are still loading refuses at once."""

MAX_FRAME_BYTES: Final = 16 << 20
"""The server's own limit for inbound frames."""

MAX_RESENT_SAMPLES: Final = 30 * RATE_HZ
"""Microphone audio that can be sent again: the 15 s that a server waits, and the time to detect the lost connection."""

TRANSIENT: Final = frozenset((429, 502, 503, 504))
"""Statuses of a server that stops or starts, and of a balancer without a server: another attempt may succeed."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 2.0
"""Pause between two attempts to resume."""


def pause_after(last_pause_s: float, lasted_s: float) -> float:
    """Return the pause after a failed attempt to resume: twice the last pause, or `FIRST_PAUSE_S` if the attempt has
    lasted longer. Then the node has waited for the store, which may be available any moment."""
    pause_s = min(max(FIRST_PAUSE_S, 2 * last_pause_s), MAX_PAUSE_S)
    return FIRST_PAUSE_S if lasted_s > pause_s else pause_s


class Connection:
    """The connection of one session. Call `receive` from one task; send from any task."""

    def __init__(self, address: Address, key: str | None, websocket: ClientConnection, tasks: BackgroundTasks) -> None:
        self._address, self._key, self._websocket, self._tasks = address, key, websocket, tasks
        self._resuming: asyncio.Task[None] | None = None
        """The running resumption, a task of its own: an incomplete one would lose the secret. A waiting task may be
        cancelled."""

        self._refusal: Exception | None = None
        """Why the session could not be resumed."""

        self._lock = asyncio.Lock()
        self._session_id = self._secret = self._last_event_id = ""
        self._window_ms = 0
        self._binary = False
        self._n_sent = 0
        # Full: the oldest is dropped; the server has received it long before.
        self._buffered: deque[Samples] = deque()
        self._n_buffered = 0
        self._abandoned: ClientConnection | None = None
        """The connection that was abandoned last: frames that are still read from it are ignored."""

        self.last_output = LastOutput()
        self.on_resumed: Callable[[Resumed], list[dict[str, Any]]] = lambda resumed: []
        """Returns the events to send once the session is resumed."""

        self.recent_events: Callable[[], list[dict[str, Any]]] = list
        """Returns the client's events that another node may not have."""

    @property
    def sent_samples(self) -> int:
        """Return how much microphone audio was sent, at 24 kHz; audio sent twice counts once."""
        return self._n_sent

    def use_binary(self, enabled: bool) -> None:
        """Switch audio to binary frames, or back."""
        self._binary = enabled

    def may_resume(self, session_id: str, secret: str, window_ms: int) -> None:
        """Allow resuming: the server accepts this secret for `window_ms` after the connection broke."""
        self._session_id, self._secret, self._window_ms = session_id, secret, window_ms

    # --- sending and receiving ----------------------------------------------------------------

    async def send(self, event: dict[str, Any], *, again: bool = True) -> None:
        """Send an event; `again`: if the connection breaks, send it on the next one, too.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        await self._send(msgspec.json.encode(event).decode(), again=again)

    async def send_sound(self, samples: Samples) -> None:
        """Send more of the microphone's audio: int16, (n_samples,), 24 kHz.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        async with self._lock:
            await self._resumption()
            self._n_sent += len(samples)
            if self._secret:
                self._buffer(samples)
            websocket = self._websocket
            try:
                await websocket.send(self._sound(samples))
            except websockets.ConnectionClosed as closed:
                await self._reconnect(websocket, closed)  # sends the buffered audio again, with these samples

    async def receive(self) -> str | bytes:
        """Wait for the server's next frame.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        while True:
            websocket = self._websocket
            try:
                raw = await websocket.recv()
            except websockets.ConnectionClosed as closed:
                async with self._lock:
                    await self._reconnect(websocket, closed)
            else:
                if websocket is self._abandoned:
                    continue  # the server sends the frame again after the resumption
                if self._store_event_id(raw) == GoingAway.__struct_config__.tag:
                    await self._move(websocket)
                else:
                    return raw

    async def close(self) -> None:
        """Close the connection."""
        self._secret = ""
        await self._websocket.close()

    async def _send(self, message: str, *, again: bool) -> None:
        async with self._lock:
            await self._resumption()
            while True:
                websocket = self._websocket
                try:
                    return await websocket.send(message)
                except websockets.ConnectionClosed as closed:
                    await self._reconnect(websocket, closed)
                    if not again:
                        return None

    def _sound(self, samples: Samples) -> str | bytes:
        pcm = to_pcm(samples)
        if self._binary:
            return binary.user_frame(pcm)
        return f'{{"type":"input_audio_buffer.append","audio":"{pybase64.b64encode_as_string(pcm)}"}}'

    def _store_event_id(self, raw: str | bytes) -> str:
        """Store the ID of the latest event, for a resumption. Return the type of the event."""
        if isinstance(raw, bytes):
            number = binary.agent_sound(raw).number
            self._last_event_id = f"{self._last_event_id.rpartition('_')[0]}_{number:x}"
            return ""
        head = _head_of(raw)
        self._last_event_id = head.event_id
        return head.type

    def _buffer(self, samples: Samples) -> None:
        self._buffered.append(samples)
        self._n_buffered += len(samples)
        while self._n_buffered - len(self._buffered[0]) >= MAX_RESENT_SAMPLES:
            self._n_buffered -= len(self._buffered.popleft())

    # --- resuming -----------------------------------------------------------------------------

    async def _reconnect(self, websocket: ClientConnection, closed: websockets.ConnectionClosed) -> None:
        """Replace the connection `websocket` by a new one, unless that has happened already. The calling method holds
        the lock.
        """
        await self._resumption()
        if self._websocket is not websocket:
            return
        self._abandoned = websocket
        is_final = closed.rcvd is not None and closed.rcvd.code != websockets.CloseCode.SERVICE_RESTART
        if not self._secret or is_final:  # a close frame ends the session on purpose
            raise ended(closed) from closed
        self._resuming = self._tasks.start(self._resume_in_time(), name="resumption")
        await self._resumption()
        if self._websocket is websocket:
            raise ended(closed) from (self._refusal or closed)

    async def _resumption(self) -> None:
        """Wait for the resumption in progress, if there is one. The calling method holds the lock."""
        if self._resuming is not None:
            await asyncio.shield(self._resuming)

    async def _resume_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._window_ms / 1_000):
                await self._retry_resume()
        except (TimeoutError, CallFailed) as why:
            self._secret, self._refusal = "", why
        finally:
            self._resuming = None

    async def _move(self, websocket: ClientConnection) -> None:
        """Leave a node that stops: resume as after a lost connection."""
        async with self._lock:
            if self._websocket is websocket and self._secret:
                websocket.transport.abort()
                await websocket.wait_closed()
                await self._reconnect(websocket, websockets.ConnectionClosedError(None, None))

    async def _retry_resume(self) -> None:
        pause_s = 0.0
        while True:
            begin_ms = monotonic_ms()
            try:
                return await self._resume()
            except CallRefused as refused:
                if refused.status not in TRANSIENT:
                    raise
            except (ServerUnreachable, websockets.ConnectionClosed):
                pass
            pause_s = pause_after(pause_s, (monotonic_ms() - begin_ms) / 1_000)
            await asyncio.sleep(pause_s)

    async def _resume(self) -> None:
        """Try to resume once.

        Raises:
            CallFailed: the server refuses to resume.
            ConnectionClosed: the connection broke again.
        """
        websocket = await dial(self._address, self._key, resume=self._session_id)
        try:
            await self._resume_on(websocket)
        except BaseException:
            websocket.transport.abort()
            raise

    async def _resume_on(self, websocket: ClientConnection) -> None:
        names = {"session_id": self._session_id, "secret": self._secret, "last_event_id": self._last_event_id}
        request = {**names, **self.last_output.to_wire(), "sent": self.recent_events()}
        await websocket.send(msgspec.json.encode({"type": "voicepipe.resume", **request}).decode())
        raw = await websocket.recv()
        try:
            answer = read_server_event(raw)
        except msgspec.ValidationError as refused:
            raise CallFailed(f"the server refused the resumption: {_error_in(raw)}") from refused
        assert isinstance(answer, Resumed)
        self._secret, self._websocket = answer.secret, websocket
        await self._send_again(answer.input_received_ms)
        for event in self.on_resumed(answer):
            await websocket.send(msgspec.json.encode(event).decode())

    async def _send_again(self, received_ms: int) -> None:
        """Send the microphone audio that the server has not received."""
        if not self._buffered:
            return
        first = self._n_sent - self._n_buffered
        rest = np.concatenate(self._buffered)[max(0, received_ms * RATE_HZ // 1_000 - first) :]
        for start in range(0, len(rest), RATE_HZ):
            await self._websocket.send(self._sound(rest[start : start + RATE_HZ]))


class _EventHead(msgspec.Struct):
    event_id: str = ""
    type: str = ""


_HEAD_DECODER: Final = msgspec.json.Decoder(_EventHead)


def _head_of(raw: str) -> _EventHead:
    """Return the ID and the type of an event; empty: there is none."""
    try:
        return _HEAD_DECODER.decode(raw)
    except msgspec.DecodeError:
        return _EventHead()


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _ErrorEvent(msgspec.Struct):
    error: _Error


def _error_in(raw: str | bytes) -> str:
    """Return the text of an `error` event, for a message."""
    try:
        error = msgspec.json.decode(raw, type=_ErrorEvent).error
    except msgspec.DecodeError:
        return "its answer is no error event"
    return f"{error.code}: {error.message}"


async def dial(address: Address, key: str | None, *, resume: str = "") -> ClientConnection:
    """Open a WebSocket to a server; `resume` names the session to resume.

    Raises:
        ServerUnreachable: no server answers there.
        CallRefused: the server refused the connection; the error has the reason.
    """
    url = address.websocket
    if resume:
        url = f"{url}{'&' if '?' in url else '?'}resume={quote(resume, safe='')}"
    try:
        return await websockets.connect(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else None,
            compression=None,  # base64 of speech hardly shrinks
            max_size=MAX_FRAME_BYTES,
            open_timeout=CONNECT_S,
            proxy=None if address.on_loopback else True,
        )
    except websockets.InvalidStatus as refusal:
        raise _refused(refusal) from refusal
    except (OSError, websockets.WebSocketException) as why:
        raise ServerUnreachable(address.websocket, str(why) or type(why).__name__) from why


def _refused(refusal: websockets.InvalidStatus) -> CallRefused:
    """Return the error with the server's own text from `{"error": {"message", "code"}}`, if the body has that form."""
    response = refusal.response
    try:
        error: dict[str, Any] = msgspec.json.decode(response.body or b"", type=dict[str, Any])["error"]
        return CallRefused(response.status_code, str(error["message"]), code=str(error.get("code") or ""))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return CallRefused(response.status_code, response.reason_phrase or "without a reason")


def ended(closed: websockets.ConnectionClosed) -> CallEnded:
    """Return the closed connection as a `CallEnded`."""
    close = closed.rcvd or closed.sent
    return CallEnded(close.code if close else 1006, close.reason if close else "")
