"""One connection at a fake STT: what it received, and the test's control of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.waiting import WAIT_S

HUGE_STEP = 28_000
"""A step between two samples that loud speech does not have: 26,009 is the largest one of the tests' recordings."""


class SttConnection:
    """One connection: what it received, and the test's control of it."""

    def __init__(
        self, socket: ServerConnection, query: list[tuple[str, str]], headers: Headers, encoding: AudioEncoding
    ) -> None:
        self.query, self.headers = query, headers
        """The query's pairs and the headers of the handshake."""

        self.controls: list[str] = []
        """The kinds of the text messages, in order, under the vendor's names."""

        self.texts: list[str] = []
        """The text messages themselves, except those that contain audio."""

        self.close_code: int | None = None
        """The client's close code; None before it, or without one."""

        self.closed = asyncio.Event()
        self.mid_message = False
        """Whether it is inside a message that it will not end: nothing else can be sent."""

        self.turns = 0
        """Number of turns that the vendor has ended, for vendors that count them."""

        self.speaking = False
        """Whether such a vendor has reported speech."""

        self.message_bytes: list[int] = []
        """Length of each message of audio."""

        self.encoding = encoding
        """That which the request names."""

        self._socket = socket
        self._audio = bytearray()
        self._changed = asyncio.Event()

    @property
    def samples(self) -> Samples:
        """Return all received audio: int16, (n_samples,)."""
        return self.encoding.decode(bytes(self._audio))

    @property
    def received_ms(self) -> int:
        """Return the amount of received audio."""
        return len(self._audio) // self.encoding.bytes_per_ms

    @property
    def has_other_encoding(self) -> bool:
        """Return whether the latest second of audio can't be speech in the encoding that the request names.

        Zero crossings of G.711 that is read as int16, and the low bytes of int16 that is read as G.711, are steps of
        nearly full scale between two samples.
        """
        encoding = self.encoding
        latest = encoding.decode(self._audio[-1_000 * encoding.bytes_per_ms :]).astype(np.int32)
        return int(np.sum(np.abs(np.diff(latest)) > HUGE_STEP)) > 2

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a received message, or the end, makes the condition true.

        Raises:
            TimeoutError: nothing did within `WAIT_S`.
        """
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await self._changed.wait()

    async def send(self, message: str | bytes) -> None:
        """Send any message, text or binary."""
        await self._socket.send(message)

    async def send_all(self, messages: Iterable[str]) -> None:
        """Send messages, unless it is inside an unfinished one."""
        for message in () if self.mid_message else messages:
            await self.send(message)

    async def send_raw(self, data: bytes) -> None:
        """Send bytes as a text message, UTF-8 or not."""
        await self._socket.send(data, text=True)

    async def hang_up(self, code: int = 1000, reason: str = "") -> None:
        """Close with a close frame."""
        await self._socket.close(code, reason)

    def cut(self) -> None:
        """Drop the connection without a close frame."""
        self._socket.transport.abort()

    def freeze(self) -> None:
        """Read nothing more, pings included, with the connection open."""
        self._socket.transport.pause_reading()

    # --- for the vendor -----------------------------------------------------------------------

    def take_audio(self, data: bytes) -> None:
        """Store received audio."""
        assert data, "an empty binary message ends the stream"
        self._audio += data
        self.message_bytes.append(len(data))
        self._notify()

    def take_control(self, kind: str, text: str) -> None:
        """Store a received text message."""
        self.controls.append(kind)
        self.texts.append(text)
        self._notify()

    def end(self) -> None:
        """Record that the connection is over."""
        self.close_code = self._socket.protocol.close_rcvd.code if self._socket.protocol.close_rcvd else None
        self.closed.set()
        self._notify()

    async def send_in_part(self, message: str, n_chars: int, then: Callable[[], Any]) -> None:
        """Begin a message, do `then`, and never end it."""

        async def parts() -> AsyncIterator[str]:
            if n_chars:
                yield message[:n_chars]
            then()
            await asyncio.Event().wait()

        self.mid_message = True
        await self._socket.send(parts())

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
