"""A speech-to-speech vendor on a local socket: the parts that all of their protocols have.

A vendor's own fake decides what a message means. Everything that was received is stored, so that a test can read it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from voicepipe.audio.samples import to_pcm
from voicepipe.testing.fakes.cues import CallCue, Cut, Fault, Garbage, HangUp, Hold, InBandError, Malformed, Status
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_vendor import FakeWsVendor
from voicepipe.testing.waiting import WAIT_S

RATE_HZ = 24_000
PIECE_MS = 100
"""The length of each piece of audio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechCue:
    """The making of one answer. A fault's position counts pieces of audio."""

    text: str = "It is noon."
    ms_per_char: int = 40
    calls: tuple[CallCue, ...] = ()
    fault: Fault | None = None
    hold: Hold | None = None
    text_first: bool = True
    """Whether the words come before the audio, or behind it."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the audio as little-endian PCM."""
        if not self.text:
            return
        pcm = to_pcm(tone(self.text, ms_per_char=self.ms_per_char, rate_hz=RATE_HZ))
        for first in range(0, len(pcm), PIECE_MS * RATE_HZ * 2 // 1_000):
            yield pcm[first : first + PIECE_MS * RATE_HZ * 2 // 1_000]

    def words(self) -> Iterator[str]:
        """Yield the text in words with the space behind each."""
        words = self.text.split()
        yield from (word + (" " if place < len(words) - 1 else "") for place, word in enumerate(words))


class Ended(Exception):
    """Raised where a fault has ended an answer."""


@dataclass(eq=False)
class SpeechCall:
    """One connection: what it received, and its history at the vendor."""

    socket: ServerConnection
    query: dict[str, str]
    headers: Headers
    group: asyncio.TaskGroup
    messages: list[dict[str, Any]] = field(default_factory=list)
    """All that came, without the audio."""

    audio_bytes: int = 0
    """Audio of the user that is not part of an item yet."""

    items: list[dict[str, Any]] = field(default_factory=list)
    """The conversation as the vendor has it."""

    answering: asyncio.Task[None] | None = None
    n: int = 0
    """Number of the answers so far."""

    closed: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of one kind, in order."""
        return [each for each in self.messages if each.get("type", next(iter(each))) == kind]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a message, or the end, makes the condition true.

        Raises:
            TimeoutError: nothing did within `WAIT_S`.
        """
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await self.changed.wait()

    def notify(self) -> None:
        """Wake what waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def cut(self) -> None:
        """Drop the connection without a close frame."""
        self.socket.transport.abort()


class FakeSpeechVendor(FakeWsVendor[SpeechCall]):
    """A server; `cues` are used in order, the last one again and again."""

    def __init__(self, *cues: SpeechCue) -> None:
        super().__init__()
        self.cues = deque(cues or (SpeechCue(),))
        self.refusals: deque[Status] = deque()
        """Handshakes that are refused, in order."""

    @abstractmethod
    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        """Return why a handshake is refused, if it is."""

    @abstractmethod
    async def take(self, call: SpeechCall, message: str | bytes) -> None:
        """Handle a message."""

    async def greet(self, call: SpeechCall) -> None:
        """Send the first messages."""
        return

    @abstractmethod
    def error_of(self, status: Status | InBandError) -> str:
        """Return the message of an error."""

    def next_cue(self) -> SpeechCue:
        """Return the cue of the next answer."""
        return self.cues[0] if len(self.cues) == 1 else self.cues.popleft()

    async def fault(self, call: SpeechCall, fault: Fault | None, n_pieces: int) -> None:
        """Do what the cue names at this piece of its audio.

        Raises:
            Ended: the answer is over.
        """
        if fault is None or n_pieces < getattr(fault, "after", 0):
            return
        match fault:
            case Cut() | HangUp():
                call.cut()
            case InBandError() | Status():
                await call.socket.send(self.error_of(fault))
            case Malformed():
                await call.socket.send('{"type": ')
            case Garbage():
                await call.socket.send(b"\x00\xff\xfe\x80")
            case _:  # Hang and Stall
                await asyncio.Event().wait()
        raise Ended

    def _abort(self, call: SpeechCall) -> None:
        call.cut()

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        refusal = self.refusals.popleft() if self.refusals else None
        refusal = refusal or self.refusal_of(url.path, dict(parse_qsl(url.query)), request.headers)
        if refusal is None:
            return None
        data = self.error_of(refusal).encode()
        headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(data))})
        return Response(refusal.status, HTTPStatus(refusal.status).phrase, headers, data)

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        query = dict(parse_qsl(urlsplit(socket.request.path).query))
        async with asyncio.TaskGroup() as group:
            call = SpeechCall(socket, query, socket.request.headers, group)
            self._add(call)
            try:
                await self.greet(call)
                async for message in socket:
                    await self.take(call, message)
                    call.notify()
            except ConnectionClosed:
                pass  # cut, or closed while sending
            finally:
                if call.answering is not None:
                    call.answering.cancel()
                call.closed.set()
                call.notify()
