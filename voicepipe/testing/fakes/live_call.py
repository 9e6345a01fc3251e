"""One call at a fake ear: what came over it, and the test's hand on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.fakes.desk import WAIT_S


class Call:
    """One connection: what came over it, and the test's hand on it."""

    def __init__(self, socket: ServerConnection, query: list[tuple[str, str]], headers: Headers, rate_hz: int) -> None:
        self.query, self.headers = query, headers
        """The query's pairs and the headers of the handshake."""

        self.controls: list[str] = []
        """The kinds of the text messages, in order, as the vendor names them."""

        self.texts: list[str] = []
        """The text messages themselves, but those that hold audio."""

        self.close_code: int | None = None
        """How the other side closed; None while it has not, or never did."""

        self.closed = asyncio.Event()
        self.mid_message = False
        """It stands in the middle of a message that it will not end: nothing else can be said."""

        self.turns = 0
        """How many turns the vendor has ended, for vendors that count them."""

        self.speaking = False
        """Such a vendor has told that somebody speaks."""

        self.message_bytes: list[int] = []
        """How long each message of audio was."""

        self.rate_hz = rate_hz
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

    async def say_all(self, messages: Iterable[str]) -> None:
        """Send messages, unless it stands in the middle of one."""
        for message in () if self.mid_message else messages:
            await self.say(message)

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

    def take_audio(self, data: bytes) -> None:
        """Keep audio that came."""
        assert data, "an empty binary message ends the stream"
        self._audio += data
        self.message_bytes.append(len(data))
        self._tell()

    def take_control(self, kind: str, text: str) -> None:
        """Keep a text message that came."""
        self.controls.append(kind)
        self.texts.append(text)
        self._tell()

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
