"""Deepgram's `/v1/listen` on a real socket of this machine, as told by cues or by the test's own hand.

async with FakeDeepgram() as vendor:
    vendor.desk.usual = None                      # Finalize stays unanswered, unless the test answers
    ...                                           # open the ear at vendor.base_url
    call = await vendor.nth(0)
    await call.until(lambda: call.heard_ms >= 500)
    await call.say(results("hello", 0, 500, is_final=True, speech_final=True))

Messages are written from Deepgram's API reference, "Live Audio", "Finalize" and "Errors".
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.fakes.cues import Course, Cut, Garbage, HangUp, InBandError, Malformed, NoEnd, Status, SttCue
from voicepipe.testing.fakes.desk import WAIT_S, Asked, Desk

KEY = "dg-test-0123456789"
"""The one key that it takes."""


def results(
    text: str,
    start_ms: int,
    end_ms: int,
    *,
    is_final: bool = False,
    speech_final: bool = False,
    from_finalize: bool = False,
    languages: list[str] | None = None,
) -> str:
    """A `Results` message; its words share the stretch evenly."""
    said = text.split()
    step = (end_ms - start_ms) / 1_000 / max(1, len(said))
    words = [
        {
            "word": word.lower().strip(".,?!"),
            "start": round(start_ms / 1_000 + i * step, 3),
            "end": round(start_ms / 1_000 + (i + 1) * step, 3),
            "confidence": 0.99,
            "punctuated_word": word,
        }
        for i, word in enumerate(said)
    ]
    alternative: dict[str, Any] = {"transcript": text, "confidence": 0.99, "words": words}
    if languages is not None:
        alternative["languages"] = languages
    return json.dumps(
        {
            "type": "Results",
            "channel_index": [0, 1],
            "duration": (end_ms - start_ms) / 1_000,
            "start": start_ms / 1_000,
            "is_final": is_final,
            "speech_final": speech_final,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [alternative]},
            "metadata": {"request_id": "fake", "model_uuid": "fake"},
        }
    )


class Call:
    """One connection: what came over it, and the test's hand on it."""

    def __init__(self, socket: ServerConnection, query: list[tuple[str, str]], headers: Headers) -> None:
        self.query, self.headers = query, headers
        self.controls: list[str] = []
        """The types of the text messages, in order: `KeepAlive`, `Finalize`, `CloseStream`."""

        self.close_code: int | None = None
        """How the other side closed; None while it has not, or never did."""

        self.closed = asyncio.Event()
        self.mid_message = False
        """It stands in the middle of a message that it will not end: nothing else can be said."""

        self.message_bytes: list[int] = []
        """How long each message of audio was."""

        self.rate_hz = int(dict(query)["sample_rate"])
        self._socket = socket
        self._audio = bytearray()
        self._changed = asyncio.Event()

    @property
    def samples(self) -> Samples:
        """All audio that came: int16, (n_samples,)."""
        return np.frombuffer(bytes(self._audio), dtype="<i2").astype(np.int16)

    @property
    def heard_ms(self) -> int:
        """How much audio came."""
        return len(self._audio) // 2 * 1_000 // self.rate_hz

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something that came, or the end, makes it so.

        Raises:
            TimeoutError: nothing did within `WAIT_S`.
        """
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await self._changed.wait()

    async def say(self, message: str | bytes) -> None:
        """Send a message, text or binary, whatever it is."""
        await self._socket.send(message)

    async def say_raw(self, data: bytes) -> None:
        """Send bytes as a text message, UTF-8 or not."""
        await self._socket.send(data, text=True)

    async def hang_up(self, code: int = 1000, reason: str = "") -> None:
        """Close with a close frame."""
        await self._socket.close(code, reason)

    def cut(self) -> None:
        """Die without a word."""
        self._socket.transport.abort()

    def freeze(self) -> None:
        """Read nothing more, pings included, with the connection open."""
        self._socket.transport.pause_reading()

    # --- for the vendor -----------------------------------------------------------------------

    def take(self, message: str | bytes) -> str | None:
        """Keep what came; the type of a text message."""
        kind = None
        if isinstance(message, bytes):
            assert message, "an empty binary message ends the stream"
            self._audio += message
            self.message_bytes.append(len(message))
        else:
            kind = str(json.loads(message)["type"])
            self.controls.append(kind)
        self._tell()
        return kind

    def end(self) -> None:
        """The connection is over."""
        self.close_code = self._socket.protocol.close_rcvd.code if self._socket.protocol.close_rcvd else None
        self.closed.set()
        self._tell()

    async def say_in_part(self, message: str, n_chars: int, then: Callable[[], Any]) -> None:
        """Begin a message, do `then`, and never end it."""

        async def parts() -> AsyncIterator[str]:
            if n_chars:
                yield message[:n_chars]
            then()
            await asyncio.Event().wait()

        self.mid_message = True
        await self._socket.send(parts())

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Refusals(Desk[SttCue | None, Asked]):
    """A desk whose questions are `Finalize` messages, and handshakes that are refused."""

    _cues: deque[SttCue | None]

    def refusal(self) -> Status | None:
        """The status with which the next cue has a handshake refused, if it is that."""
        cue = self._cues[0] if self._cues else None
        if cue is None or not isinstance(cue.fault, Status):
            return None
        self._cues.popleft()
        return cue.fault


class FakeDeepgram:
    """A vendor that answers each `Finalize` on cue, in the order of their coming. Its port is the kernel's choice."""

    def __init__(self) -> None:
        self.desk = Refusals(SttCue())
        self.calls: list[Call] = []
        self._server: Server | None = None
        self._arrived = asyncio.Event()

    @property
    def base_url(self) -> str:
        """What a provider's `base_url` must be to get here."""
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}/v1"

    async def __aenter__(self) -> FakeDeepgram:
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

    # --- the handshake ------------------------------------------------------------------------

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        if (refusal := self.desk.refusal()) is not None:
            return _refuse(refusal.status, "FAKE_ERROR", refusal.message, retry_after=refusal.retry_after)
        if request.headers.get("Authorization") != f"Token {KEY}":
            return _refuse(401, "INVALID_AUTH", "Invalid credentials.")
        query = dict(parse_qsl(urlsplit(request.path).query))
        if urlsplit(request.path).path != "/v1/listen" or not query.get("model"):
            return _refuse(400, "Bad Request", "expected /v1/listen and a model")
        if query.get("encoding") != "linear16" or not query.get("sample_rate", "").isdecimal():
            return _refuse(400, "Bad Request", "expected linear16 and its sample_rate")
        return None

    # --- a call -------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        call = Call(socket, parse_qsl(urlsplit(socket.request.path).query), socket.request.headers)
        self.calls.append(call)
        self._arrived.set()
        self._arrived = asyncio.Event()
        # Never full: a test asks a few times, and ends.
        asked: asyncio.Queue[tuple[Asked, SttCue, int]] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(self._answer_all(call, asked), name="fake-deepgram")
                await self._listen(call, socket, asked)
                answering.cancel()
        finally:
            call.end()

    async def _listen(
        self, call: Call, socket: ServerConnection, asked: asyncio.Queue[tuple[Asked, SttCue, int]]
    ) -> None:
        try:
            async for message in socket:
                match call.take(message):
                    case "Finalize":
                        question = Asked("Finalize", headers=dict(call.headers))
                        question.samples = call.samples
                        self.desk.arrive(question)
                        if (cue := self.desk.take(question)) is not None:
                            asked.put_nowait((question, cue, call.heard_ms))
                    case "CloseStream":
                        # What it does next: say all that is left, sum up, and close.
                        if not call.mid_message:
                            await call.say(json.dumps({"type": "Metadata", "duration": call.heard_ms / 1_000}))
                        await call.hang_up()
        except ConnectionClosed:
            pass  # cut, or closed while it was spoken to

    async def _answer_all(self, call: Call, asked: asyncio.Queue[tuple[Asked, SttCue, int]]) -> None:
        final_ms = 0
        try:
            while True:
                question, cue, heard_ms = await asked.get()
                try:
                    await _answer(call, cue, final_ms, heard_ms)
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


async def _answer(call: Call, cue: SttCue, start_ms: int, end_ms: int) -> None:
    """Make final what came since the last time; a fault's position counts characters of the message."""
    await asyncio.sleep(cue.delay_ms / 1_000)
    languages = [cue.language] if cue.language else None
    message = results(cue.text, start_ms, end_ms, is_final=True, from_finalize=True, languages=languages)
    after = getattr(cue.fault, "after", 0)
    course = Course(None, cue.hold)
    await course.reach(1_000_000)
    match cue.fault:
        case None:
            await (call.say(message) if cue.raw is None else call.say_raw(cue.raw))
        case Cut() | HangUp():
            await call.say_in_part(message, after, call.cut)
        case InBandError(message=words):
            # Its type is known from Deepgram's own clients; the reference shows none.
            await call.say(json.dumps({"type": "Error", "description": words, "message": words, "variant": "fake"}))
            await call.hang_up(1011, "NET-0000")
        case Malformed():
            await call.say('{"type": ')
            await call.say(message)
        case Garbage():
            await call.say(b"\x00\xff\xfe\x80")
        case NoEnd():
            await call.hang_up()
        case _:  # Hang and Stall
            await call.say_in_part(message, after, lambda: None)


def _refuse(status: int, code: str, words: str, *, retry_after: str | None = None) -> Response:
    """What the docs show: the words in the body and in the header `dg-error`."""
    body = json.dumps({"err_code": code, "err_msg": words, "request_id": "fake"}).encode()
    headers = Headers({"dg-error": words, "Content-Type": "application/json", "Content-Length": str(len(body))})
    if retry_after is not None:
        headers["Retry-After"] = retry_after
    return Response(status, HTTPStatus(status).phrase, headers, body)
