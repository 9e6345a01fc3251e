"""A vendor's live ear on a real socket of this machine, told by cues or by the test's own hand.

What all such vendors have in common. One is a subclass: its handshake, its messages, how it ends. Cues answer the
requests to make all final; a test that wants to say something else says it over a `Call`.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from voicepipe.testing.fakes.cues import Course, Cut, Garbage, HangUp, InBandError, Malformed, NoEnd, Status, SttCue
from voicepipe.testing.fakes.desk import WAIT_S, Asked, Desk
from voicepipe.testing.fakes.live_call import Call


class Refusals(Desk[SttCue | None, Asked]):
    """A desk whose questions are requests to make all final, and handshakes that are refused."""

    _cues: deque[SttCue | None]

    def refusal(self) -> Status | None:
        """The status with which the next cue has a handshake refused, if it is that."""
        cue = self._cues[0] if self._cues else None
        if cue is None or not isinstance(cue.fault, Status):
            return None
        self._cues.popleft()
        return cue.fault


class FakeLiveEar(ABC):
    """A vendor that answers each request to make all final on cue, in the order of their coming.

    Its port is the kernel's choice. With `desk.usual = None` such a request stays unanswered, unless the test answers.
    """

    base_path = ""
    """What a provider's `base_url` ends with."""

    finalize = "Finalize"
    """The kind of text message that asks to make all final."""

    bye = "CloseStream"
    """The kind that ends a call."""

    error_close = (1011, "")
    """With what it closes after an error."""

    def __init__(self) -> None:
        self.desk = Refusals(SttCue())
        self.calls: list[Call] = []
        self._server: Server | None = None
        self._arrived = asyncio.Event()

    # --- a vendor's own -----------------------------------------------------------------------

    @abstractmethod
    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        """Why a handshake is refused, if it is."""

    @abstractmethod
    def answer(self, call: Call, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        """What it says when it is asked to make final what came between; a fault hits the last message."""

    @abstractmethod
    def error(self, words: str) -> str:
        """Its message of an error that ends a call."""

    def kind_of(self, text: str) -> str:
        """What kind of text message that is."""
        return str(json.loads(text)["type"])

    def rate_hz_of(self, query: Mapping[str, str]) -> int:
        """The sample rate of a call."""
        return int(query["sample_rate"])

    def audio_of(self, message: str | bytes) -> bytes | None:
        """The audio that a message holds; None for one without any."""
        return message if isinstance(message, bytes) else None

    def complaint(self, call: Call) -> str | None:
        """The error with which it ends a call now, for what came last or for how it was opened; None: it goes on."""
        return None

    def greeting(self, call: Call) -> Iterable[str]:
        """What it says first."""
        return ()

    def turned_away(self, call: Call) -> tuple[str, int, str] | None:
        """The message, close code and reason with which a call ends as soon as it is up, if it does."""
        return None

    def on_audio(self, call: Call) -> Iterable[str]:
        """What it says when it hears something."""
        return ()

    def farewell(self, call: Call) -> Iterable[str]:
        """What it says last."""
        return ()

    def refused(self, refusal: Status) -> Response:
        """Its way to refuse a handshake."""
        return refused(refusal, json.dumps({"error": refusal.message}), {})

    # --- a server -----------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """What a provider's `base_url` must be to get here."""
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}{self.base_path}"

    @property
    def open_calls(self) -> list[Call]:
        """The calls that have not ended."""
        return [call for call in self.calls if not call.closed.is_set()]

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve, "127.0.0.1", 0, process_request=self._admit, compression=None, ping_interval=None
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        for call in self.calls:
            call.cut()
        self._server.close()
        await self._server.wait_closed()

    async def nth(self, n: int) -> Call:
        """The `n`th call, from 0, when it has come.

        Raises:
            TimeoutError: it did not come within `WAIT_S`.
        """
        async with asyncio.timeout(WAIT_S):
            while len(self.calls) <= n:
                await self._arrived.wait()
        return self.calls[n]

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        refusal = self.desk.refusal() or self.refusal_of(url.path, dict(parse_qsl(url.query)), request.headers)
        return None if refusal is None else self.refused(refusal)

    # --- a call -------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        query = parse_qsl(urlsplit(socket.request.path).query)
        call = Call(socket, query, socket.request.headers, self.rate_hz_of(dict(query)))
        self.calls.append(call)
        self._arrived.set()
        self._arrived = asyncio.Event()
        # Never full: a test asks a few times, and ends.
        asked: asyncio.Queue[tuple[Asked, SttCue, int]] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(self._answer_all(call, asked), name="fake-live-ear")
                await self._listen(call, socket, asked)
                answering.cancel()
        finally:
            call.end()

    async def _listen(
        self, call: Call, socket: ServerConnection, asked: asyncio.Queue[tuple[Asked, SttCue, int]]
    ) -> None:
        try:
            if await self._complains(call):
                return
            if (away := self.turned_away(call)) is not None:
                await call.say(away[0])
                await call.hang_up(*away[1:])
            await call.say_all(self.greeting(call))
            async for message in socket:
                audio = self.audio_of(message)
                if audio is not None:
                    call.take_audio(audio)
                    await call.say_all(self.on_audio(call))
                    continue
                assert isinstance(message, str)
                kind = self.kind_of(message)
                call.take_control(kind, message)
                if await self._complains(call):
                    return
                if kind == self.finalize:
                    self._note(call, asked)
                elif kind == self.bye:
                    await call.say_all(self.farewell(call))
                    await call.hang_up()
        except ConnectionClosed:
            pass  # cut, or closed while it was spoken to

    async def _complains(self, call: Call) -> bool:
        words = self.complaint(call)
        if words is not None:
            await call.say(words)
            await call.hang_up()
        return words is not None

    def _note(self, call: Call, asked: asyncio.Queue[tuple[Asked, SttCue, int]]) -> None:
        question = Asked(self.finalize, headers=dict(call.headers))
        question.samples = call.samples
        self.desk.arrive(question)
        if (cue := self.desk.take(question)) is not None:
            asked.put_nowait((question, cue, call.heard_ms))

    async def _answer_all(self, call: Call, asked: asyncio.Queue[tuple[Asked, SttCue, int]]) -> None:
        final_ms = 0
        try:
            while True:
                question, cue, heard_ms = await asked.get()
                try:
                    await self._answer(call, cue, final_ms, heard_ms)
                except (asyncio.CancelledError, ConnectionClosed):
                    question.gone.set()
                    raise
                finally:
                    question.ended.set()
                final_ms = heard_ms
        except ConnectionClosed:
            pass  # the reader sees it too
        finally:
            while not asked.empty():
                question, *_ = asked.get_nowait()
                question.gone.set()
                question.ended.set()

    async def _answer(self, call: Call, cue: SttCue, start_ms: int, end_ms: int) -> None:
        """Make final what came since the last time; a fault's position counts characters of the last message."""
        await asyncio.sleep(cue.delay_ms / 1_000)
        await Course(None, cue.hold).reach(1_000_000)
        if cue.raw is not None:
            await call.say_raw(cue.raw)
            return
        *first, message = self.answer(call, cue, start_ms, end_ms)
        after = getattr(cue.fault, "after", 0)
        match cue.fault:
            case None:
                await call.say_all([*first, message])
            case Cut() | HangUp():
                await call.say_in_part(message, after, call.cut)
            case InBandError(message=words):
                await call.say(self.error(words))
                await call.hang_up(*self.error_close)
            case Malformed():
                await call.say('{"type": ')
                await call.say_all([*first, message])
            case Garbage():
                await call.say(b"\x00\xff\xfe\x80")
            case NoEnd():
                await call.hang_up()
            case _:  # Hang and Stall
                await call.say_in_part(message, after, lambda: None)


def refused(refusal: Status, body: str, more_headers: Mapping[str, str]) -> Response:
    """A handshake's refusal in JSON, with its `Retry-After` if it has one."""
    data = body.encode()
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), **more_headers})
    if refusal.retry_after is not None:
        headers["Retry-After"] = refusal.retry_after
    return Response(refusal.status, HTTPStatus(refusal.status).phrase, headers, data)
