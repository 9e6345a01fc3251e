"""A call at a fake carrier, its audio in real time on a real socket, and the carrier's API.

What is played moves on with the user's audio, 20 ms at a time, and a mark comes back when everything before it was
played or dropped.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp import web

from voicepipe.clock import loop_s
from voicepipe.tasks import background_tasks
from voicepipe.testing.waiting import WAIT_S

FRAME_BYTES: Final = 160
"""20 ms of mu-law at 8 kHz."""

FRAME_S: Final = 0.02
SILENCE: Final = b"\xff" * FRAME_BYTES


PUBLIC_URL: Final = "http://voice.example.com"
"""The address of the server for carriers that do not sign it."""


def reached(url: str, server_url: str) -> str:
    """Return where an address below `PUBLIC_URL` is here: at the server of the other address.

    Raises:
        AssertionError: it is another address.
    """
    public, here = urlsplit(url), urlsplit(server_url)
    assert public.netloc == urlsplit(PUBLIC_URL).netloc, url
    return urlunsplit(public._replace(netloc=here.netloc))


class CarrierCall(ABC):
    """One call, from the point of view of the user on the phone and of the carrier. Audio is mu-law at 8 kHz here."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, call_id: str) -> None:
        self._websocket, self.call_id = websocket, call_id
        self.played = bytearray()
        """The agent's audio that the user has received, without the carrier's silence."""

        self.cleared: list[int] = []
        """Of each message that drops what is queued: the bytes that it dropped."""

        self.n_marks = 0
        self.garbage: list[str] = []
        """Messages that the carrier would not take."""

        self.close_code: int | None = None
        self.hold_frames = 0
        """How many frames of 20 ms audio is held back before it plays, if nothing else was playing."""

        self._held = 0
        self._speech: deque[bytes] = deque()
        self._queue: deque[bytes | str] = deque()
        self._changed = asyncio.Condition()

    @abstractmethod
    async def start(self) -> None:
        """Send the first messages of the stream."""

    @abstractmethod
    async def send_audio(self, frame: bytes, number: int) -> None:
        """Send 20 ms of the user's audio; `number` counts them from 1."""

    @abstractmethod
    async def send_mark(self, name: str) -> None:
        """Report that everything before this mark was played or dropped."""

    @abstractmethod
    async def press(self, digits: str) -> None:
        """Press keys."""

    @abstractmethod
    async def hang_up(self) -> None:
        """End the call as the user."""

    @abstractmethod
    async def take(self, message: aiohttp.WSMessage) -> None:
        """Take a message of the server.

        Raises:
            ValueError, KeyError, TypeError, AssertionError: the carrier would not take it.
        """

    def speak(self, mulaw: bytes) -> None:
        """Speak, in real time, behind what is being said; silence follows."""
        padded = mulaw + SILENCE[: -len(mulaw) % FRAME_BYTES]
        self._speech.extend(padded[at : at + FRAME_BYTES] for at in range(0, len(padded), FRAME_BYTES))

    async def send_raw(self, message: str | bytes) -> None:
        """Send anything."""
        await (self._websocket.send_str(message) if isinstance(message, str) else self._websocket.send_bytes(message))

    def cut(self) -> None:
        """Break the connection without a close frame."""
        connection = self._websocket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; it is looked at after each frame and message."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(holds)

    async def ended(self) -> None:
        """Wait until the server has closed the media stream."""
        await self.until(lambda: self.close_code is not None)

    @property
    def unplayed_bytes(self) -> int:
        """The agent's audio that waits to be played."""
        return sum(len(each) for each in self._queue if isinstance(each, bytes))

    def queue_audio(self, mulaw: bytes) -> None:
        """Play audio behind what is queued."""
        if not self._queue:
            self._held = self.hold_frames
        self._queue.append(mulaw)

    def queue_mark(self, name: str) -> None:
        """Return a mark once everything before it was played."""
        self.n_marks += 1
        self._queue.append(name)

    def stall(self, n_frames: int) -> None:
        """Play nothing for `n_frames` of 20 ms, as a carrier that lacks packets."""
        self._held = n_frames

    def clear(self) -> list[str]:
        """Drop what is queued; return the marks in it."""
        self.cleared.append(self.unplayed_bytes)
        marks = [each for each in self._queue if isinstance(each, str)]
        self._queue.clear()
        return marks

    async def run(self) -> None:
        """Send and play audio in real time, until the stream ends."""
        async with asyncio.TaskGroup() as group:
            clock = group.create_task(self._tick(), name="clock")
            async for message in self._websocket:
                try:
                    await self.take(message)
                except (ValueError, KeyError, TypeError, AssertionError):
                    self.garbage.append(str(message.data))
                await self._notify()
            self.close_code = self._websocket.close_code or 0
            clock.cancel()
            await self._notify()

    async def _tick(self) -> None:
        began_s, n_frames = loop_s(), 0
        while not self._websocket.closed:
            frame = self._speech.popleft() if self._speech else SILENCE
            try:
                await self.send_audio(frame, n_frames + 1)
                await self._play(FRAME_BYTES)
            except ConnectionError:
                return
            await self._notify()
            n_frames += 1
            await asyncio.sleep(max(0, began_s + n_frames * FRAME_S - loop_s()))

    async def _play(self, n_bytes: int) -> None:
        """Play `n_bytes` of what is queued, and return the marks that it reaches."""
        if self._held:
            self._held -= 1
            return
        while self._queue:
            first = self._queue[0]
            if isinstance(first, str):
                self._queue.popleft()
                await self.send_mark(first)
            elif n_bytes:
                piece, rest = first[:n_bytes], first[n_bytes:]
                self.played += piece
                n_bytes -= len(piece)
                if rest:
                    self._queue[0] = rest
                else:
                    self._queue.popleft()
            else:
                return

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def running(call: CarrierCall) -> AsyncIterator[None]:
    """Start a call's media stream; the block is the call."""
    async with background_tasks() as tasks:
        await call.start()
        tasks.start(call.run(), name="carrier-call")
        yield
        assert call.garbage == []


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request to a carrier's API."""

    method: str
    path: str
    authorization: str
    content_type: str
    body: bytes


class CarrierApi(ABC):
    """The API of a carrier."""

    def __init__(self) -> None:
        self.calls: list[ApiCall] = []
        """The requests that it took, in order."""

        self.answer: web.Response | None = None
        """What it answers in place of its own, each time in a new response: one can be sent once."""

        self.n_to_refuse = 0
        """How many of the next requests it fails to take."""

        self.n_refused = 0

        self._changed = asyncio.Condition()

    @abstractmethod
    def answered(self, call: ApiCall) -> web.Response:
        """Return the answer to a request."""

    async def until(self, *paths: str) -> ApiCall:
        """Return the first request to one of these paths, once it has come."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: any(each.path in paths for each in self.calls))
        return next(each for each in self.calls if each.path in paths)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yield the API's address."""

        async def take(request: web.Request) -> web.Response:
            call = ApiCall(
                method=request.method,
                path=request.path,
                authorization=request.headers.get("Authorization", ""),
                content_type=request.content_type,
                body=await request.read(),
            )
            if self.n_to_refuse:
                self.n_to_refuse -= 1
                return web.Response(status=500)
            answer = self.answered(call) if self.answer is None else _again(self.answer)
            self.n_refused += answer.status >= 300
            if 200 <= answer.status < 300:
                async with self._changed:
                    self.calls.append(call)
                    self._changed.notify_all()
            return answer

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _again(answer: web.Response) -> web.Response:
    return web.Response(body=answer.body, status=answer.status, content_type=answer.content_type)
