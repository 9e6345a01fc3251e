"""A vendor's live STT on a real socket of this machine, driven by cues or by the test itself.

This is the common part of all such vendors. A vendor is a subclass with its handshake, its messages and its end. Cues
answer the requests for the final text; a test sends other messages over a `SttConnection`.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from voicepipe.audio.encoding import AudioEncoding, FormatName
from voicepipe.audio.g711 import G711_HZ
from voicepipe.testing.fakes.cues import CuePoints, Cut, Garbage, HangUp, InBandError, Malformed, NoEnd, Status, SttCue
from voicepipe.testing.fakes.script import ReceivedRequest, Script
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_vendor import FakeWsVendor


class Refusals(Script[SttCue | None, ReceivedRequest]):
    """A script whose requests are those for the final text, and refused handshakes."""

    _cues: deque[SttCue | None]

    def refusal(self) -> Status | None:
        """Return the status with which the next cue refuses a handshake, if it does."""
        cue = self._cues[0] if self._cues else None
        if cue is None or not isinstance(cue.fault, Status):
            return None
        self._cues.popleft()
        return cue.fault


class FakeWsTranscriber(FakeWsVendor[SttConnection]):
    """A vendor that answers each request for the final text on cue, in order of arrival.

    The kernel chooses its port. With `script.usual = None` such a request stays unanswered, unless the test answers.
    """

    finalize = "Finalize"
    """The kind of text message that requests the final text."""

    bye = "CloseStream"
    """The kind that ends a connection."""

    error_close = (1011, "")
    """The close code after an error."""

    encodings: Mapping[str, FormatName] = {}
    """The vendor's names of the encodings that it takes, as `encoding` in the query."""

    def __init__(self) -> None:
        super().__init__()
        self.script = Refusals(SttCue())

    # --- a vendor's own -----------------------------------------------------------------------

    @abstractmethod
    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        """Return why a handshake is refused, if it is."""

    @abstractmethod
    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        """Return the final text's messages for the audio since the last request; a fault hits the last message."""

    @abstractmethod
    def error(self, words: str) -> str:
        """Return the message of an error that ends a connection."""

    def kind_of(self, text: str) -> str:
        """Return the kind of a text message."""
        return str(json.loads(text)["type"])

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        """Return the encoding of a connection's audio; None: the query names none that the vendor takes."""
        name, rate = self.encodings.get(query.get("encoding", "")), query.get("sample_rate", "")
        if name is None or not rate.isdecimal() or (name != "audio/pcm" and int(rate) != G711_HZ):
            return None
        return AudioEncoding(int(rate), name)

    def audio_of(self, message: str | bytes) -> bytes | None:
        """Return the audio of a message; None for one without audio."""
        return message if isinstance(message, bytes) else None

    def complaint(self, call: SttConnection) -> str | None:
        """Return the error that ends a connection now, for the last message or for its handshake; None: it goes on."""
        return None

    def greeting(self, call: SttConnection) -> Iterable[str]:
        """Return the first messages."""
        return ()

    def turned_away(self, call: SttConnection) -> tuple[str, int, str] | None:
        """Return the message, close code and reason that end a connection as soon as it is open, if any."""
        return None

    def on_audio(self, call: SttConnection) -> Iterable[str]:
        """Return the messages after received audio."""
        return ()

    def farewell(self, call: SttConnection) -> Iterable[str]:
        """Return the last messages."""
        return ()

    def refused(self, refusal: Status) -> Response:
        """Return the refusal of a handshake."""
        return refused(refusal, json.dumps({"error": refusal.message}), {})

    # --- a server -----------------------------------------------------------------------------

    @property
    def open_calls(self) -> list[SttConnection]:
        """Return the open connections."""
        return [call for call in self.calls if not call.closed.is_set()]

    def _abort(self, call: SttConnection) -> None:
        call.cut()

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        refusal = self.script.refusal() or self.refusal_of(url.path, dict(parse_qsl(url.query)), request.headers)
        return None if refusal is None else self.refused(refusal)

    # --- a call -------------------------------------------------------------------------------

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        query = parse_qsl(urlsplit(socket.request.path).query)
        encoding = self.encoding_of(dict(query))
        assert encoding is not None, "the vendor refuses another encoding"
        call = SttConnection(socket, query, socket.request.headers, encoding)
        self._add(call)
        # Never full: a test sends a few requests, and ends.
        received: asyncio.Queue[tuple[ReceivedRequest, SttCue, int]] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(self._answer_all(call, received), name="fake-ws-stt")
                await self._listen(call, socket, received)
                answering.cancel()
        finally:
            call.end()

    async def _listen(
        self,
        call: SttConnection,
        socket: ServerConnection,
        received: asyncio.Queue[tuple[ReceivedRequest, SttCue, int]],
    ) -> None:
        try:
            if await self._complains(call):
                return
            if (away := self.turned_away(call)) is not None:
                await call.send(away[0])
                await call.hang_up(*away[1:])
            await call.send_all(self.greeting(call))
            async for message in socket:
                audio = self.audio_of(message)
                if audio is not None:
                    call.take_audio(audio)
                    if call.has_other_encoding:
                        await call.send(self.error("the audio is in another encoding than the request names"))
                        await call.hang_up(*self.error_close)
                        return
                    await call.send_all(self.on_audio(call))
                    continue
                assert isinstance(message, str)
                kind = self.kind_of(message)
                call.take_control(kind, message)
                if await self._complains(call):
                    return
                if kind == self.finalize:
                    self._record(call, received)
                elif kind == self.bye:
                    await call.send_all(self.farewell(call))
                    await call.hang_up()
        except ConnectionClosed:
            pass  # cut, or closed while sending

    async def _complains(self, call: SttConnection) -> bool:
        words = self.complaint(call)
        if words is not None:
            await call.send(words)
            await call.hang_up()
        return words is not None

    def _record(self, call: SttConnection, received: asyncio.Queue[tuple[ReceivedRequest, SttCue, int]]) -> None:
        question = ReceivedRequest(self.finalize, headers=dict(call.headers))
        question.samples = call.samples
        self.script.arrive(question)
        if (cue := self.script.take(question)) is not None:
            received.put_nowait((question, cue, call.received_ms))

    async def _answer_all(
        self, call: SttConnection, received: asyncio.Queue[tuple[ReceivedRequest, SttCue, int]]
    ) -> None:
        final_ms = 0
        try:
            while True:
                question, cue, received_ms = await received.get()
                try:
                    await self._answer(call, cue, final_ms, received_ms)
                except (asyncio.CancelledError, ConnectionClosed):
                    question.gone.set()
                    raise
                finally:
                    question.ended.set()
                final_ms = received_ms
        except ConnectionClosed:
            pass  # the reader gets it too
        finally:
            while not received.empty():
                question, *_ = received.get_nowait()
                question.gone.set()
                question.ended.set()

    async def _answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> None:
        """Finalize the audio since the last request; a fault's position counts characters of the last message."""
        await asyncio.sleep(cue.delay_ms / 1_000)
        await CuePoints(None, cue.hold).reach(1_000_000)
        if cue.raw is not None:
            await call.send_raw(cue.raw)
            return
        *first, message = self.answer(call, cue, start_ms, end_ms)
        after = getattr(cue.fault, "after", 0)
        match cue.fault:
            case None:
                await call.send_all([*first, message])
            case Cut() | HangUp():
                await call.send_in_part(message, after, call.cut)
            case InBandError(message=words):
                await call.send(self.error(words))
                await call.hang_up(*self.error_close)
            case Malformed():
                await call.send('{"type": ')
                await call.send_all([*first, message])
            case Garbage():
                await call.send(b"\x00\xff\xfe\x80")
            case NoEnd():
                await call.hang_up()
            case _:  # Hang and Stall
                await call.send_in_part(message, after, lambda: None)


def refused(refusal: Status, body: str, more_headers: Mapping[str, str]) -> Response:
    """Return a handshake's refusal in JSON, with its `Retry-After` if it has one."""
    data = body.encode()
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data)), **more_headers})
    if refusal.retry_after is not None:
        headers["Retry-After"] = refusal.retry_after
    return Response(refusal.status, HTTPStatus(refusal.status).phrase, headers, data)
