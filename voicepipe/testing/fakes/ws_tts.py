"""A vendor's TTS on a real socket of this machine: text in, audio out, many contexts over one connection.

This is the common part of all such vendors. A vendor is a subclass with its handshake, its messages and its rules. Each
clause is synthesized as the script's next cue requires; a test sends other messages over a `TtsConnection`.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from voicepipe.testing.fakes.cues import (
    CuePoints,
    Cut,
    Garbage,
    Hang,
    HangUp,
    InBandError,
    Malformed,
    NoEnd,
    Status,
    TtsCue,
)
from voicepipe.testing.fakes.script import ReceivedRequest, Script
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.vendor_tts import places
from voicepipe.testing.fakes.ws_stt import refused
from voicepipe.testing.fakes.ws_vendor import FakeWsVendor
from voicepipe.testing.waiting import WAIT_S


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a clause's audio to be sent."""

    context: str
    clause: int
    """Of this context, from 0."""

    text: str
    """Of the whole clause."""

    pcm: bytes
    from_bytes: int
    """Its start in the clause's audio."""

    of_bytes: int
    """Length of the clause's audio."""


class TtsContext:
    """A context, as the vendor holds it."""

    def __init__(self, context: str) -> None:
        self.context = context
        self.n_clauses = 0
        self.n_bytes = 0
        """Length of the audio of its finished clauses."""

        # Never full: a test speaks a few clauses, and ends.
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()
        self.speaking: asyncio.Task[None] | None = None
        self.received: ReceivedRequest | None = None
        """The current or last clause."""


class TtsConnection:
    """One connection: what it received, and the test's control of it."""

    def __init__(self, socket: ServerConnection, path: str, query: Mapping[str, str], headers: Headers) -> None:
        self.path, self.query, self.headers = path, query, headers
        """Of the handshake."""

        self.messages: list[dict[str, Any]] = []
        self.tts_contexts: dict[str, TtsContext] = {}
        """The contexts that are open, by name."""

        self.peak_contexts = 0
        """Maximum number of contexts open at once."""

        self.closed = asyncio.Event()
        self.group: asyncio.TaskGroup | None = None
        self._socket = socket
        self._changed = asyncio.Event()

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

    async def send_all(self, messages: Iterable[str | bytes]) -> None:
        """Send messages."""
        for message in messages:
            await self.send(message)

    async def hang_up(self, code: int = 1000, reason: str = "") -> None:
        """Close with a close frame."""
        await self._socket.close(code, reason)

    async def cut(self) -> None:
        """Drop the connection without a close frame, after all sent data has arrived."""
        await (await self._socket.ping())
        self.abort()

    def abort(self) -> None:
        """Drop the connection without a close frame, at once."""
        self._socket.transport.abort()

    def freeze(self) -> None:
        """Read nothing more, pings included, with the connection open."""
        self._socket.transport.pause_reading()

    # --- for the vendor -----------------------------------------------------------------------

    def begin(self, context: str) -> TtsContext:
        """Open a context."""
        tts_context = self.tts_contexts[context] = TtsContext(context)
        self.peak_contexts = max(self.peak_contexts, len(self.tts_contexts))
        return tts_context

    def drop(self, context: str) -> None:
        """Send nothing more of a context, and remove it."""
        tts_context = self.tts_contexts.pop(context, None)
        if tts_context is not None and tts_context.speaking is not None:
            tts_context.speaking.cancel()
        self.notify()

    def notify(self) -> None:
        """Record a received message, or the end."""
        self._changed.set()
        self._changed = asyncio.Event()


class Refusals(Script[TtsCue, ReceivedRequest]):
    """A script whose requests are clauses, and refused handshakes."""

    def refusal(self) -> Status | None:
        """Return the status with which the next cue refuses a handshake, if it does."""
        if not self._cues or not isinstance(self._cues[0].fault, Status):
            return None
        fault = self._cues.popleft().fault
        return fault if isinstance(fault, Status) else None


class FakeWsSynthesizer(FakeWsVendor[TtsConnection]):
    """A vendor that synthesizes each clause on cue. The kernel chooses its port."""

    def __init__(self) -> None:
        super().__init__()
        self.script = Refusals(TtsCue())

    # --- a vendor's own -----------------------------------------------------------------------

    @abstractmethod
    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        """Return why a handshake is refused, if it is."""

    @abstractmethod
    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        """Handle a message: `speak`, `finish`, `drop`, or refuse it."""

    @abstractmethod
    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str | bytes]:
        """Return the messages that carry a piece of audio."""

    @abstractmethod
    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        """Return the messages after a clause's audio."""

    @abstractmethod
    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        """Return the messages after the end of a context."""

    @abstractmethod
    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        """Return the message of an error."""

    # --- a server -----------------------------------------------------------------------------

    @property
    def open_calls(self) -> list[TtsConnection]:
        """Return the open connections."""
        return [call for call in self.calls if not call.closed.is_set()]

    @property
    def open_contexts(self) -> int:
        """Return the number of contexts that are open on them."""
        return sum(len(call.tts_contexts) for call in self.open_calls)

    def _abort(self, call: TtsConnection) -> None:
        call.abort()

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        url = urlsplit(request.path)
        refusal = self.script.refusal() or self.refusal_of(url.path, dict(parse_qsl(url.query)), request.headers)
        return None if refusal is None else refused(refusal, json.dumps({"message": refusal.message}), {})

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        url = urlsplit(socket.request.path)
        call = TtsConnection(socket, url.path, dict(parse_qsl(url.query)), socket.request.headers)
        self._add(call)
        try:
            async with asyncio.TaskGroup() as call.group:
                async for message in socket:
                    assert isinstance(message, str)
                    call.messages.append(json.loads(message))
                    await self.take(call, call.messages[-1])
                    call.notify()
                for context in list(call.tts_contexts):
                    call.drop(context)
        except* ConnectionClosed:
            pass  # cut, or closed while sending
        finally:
            call.tts_contexts.clear()
            call.closed.set()
            call.notify()

    # --- a context ----------------------------------------------------------------------------

    def speak(self, call: TtsConnection, context: str, text: str, *, after: Iterable[asyncio.Task[None]] = ()) -> None:
        """Synthesize a clause after the earlier ones, in a context that is opened if necessary, when `after` are
        over."""
        tts_context = call.tts_contexts.get(context) or call.begin(context)
        tts_context.texts.put_nowait(text)
        self._work(call, tts_context, after)

    def finish(self, call: TtsConnection, context: str) -> None:
        """End a context after all its clauses."""
        tts_context = call.tts_contexts[context]
        tts_context.texts.put_nowait(None)
        self._work(call, tts_context)

    def _work(self, call: TtsConnection, tts_context: TtsContext, after: Iterable[asyncio.Task[None]] = ()) -> None:
        if tts_context.speaking is None:
            assert call.group is not None
            tts_context.speaking = call.group.create_task(
                self._speak_all(call, tts_context, list(after)), name="fake-ws-tts"
            )

    async def _speak_all(self, call: TtsConnection, tts_context: TtsContext, after: list[asyncio.Task[None]]) -> None:
        if after:
            await asyncio.wait(after)
        while (text := await tts_context.texts.get()) is not None:
            received = self.script.arrive(
                ReceivedRequest({"input": text, "context": tts_context.context}, headers=dict(call.headers))
            )
            cue = self.script.take(received)
            tts_context.received = received
            try:
                if not await self._speak(call, tts_context, text, cue):
                    return
            except (asyncio.CancelledError, ConnectionClosed):
                received.gone.set()
                raise
            finally:
                received.ended.set()
        await call.send_all(self.context_over(tts_context))
        call.tts_contexts.pop(tts_context.context, None)
        call.notify()

    async def _speak(self, call: TtsConnection, tts_context: TtsContext, text: str, cue: TtsCue) -> bool:
        """Synthesize one clause; False when no audio of the context can follow."""
        await asyncio.sleep(cue.ttfb_ms / 1_000)
        if not await self._begin(call, tts_context, cue):
            return False
        sound = tone(text, ms_per_char=cue.ms_per_char).astype("<i2").tobytes() if cue.raw is None else cue.raw
        cue_points = CuePoints(cue.fault, cue.hold)
        begins = places(cue, len(sound))
        for begin, end in zip(begins, [*begins[1:], len(sound)], strict=True):
            fault = await cue_points.reach(begin)
            if fault is not None and not await self._fail(call, tts_context, fault):
                return False
            piece = Piece(tts_context.context, tts_context.n_clauses, text, sound[begin:end], begin, len(sound))
            await call.send_all(self.sound(piece, tts_context))
            await asyncio.sleep(cue.gap_ms / 1_000)
        tts_context.n_clauses += 1
        tts_context.n_bytes += len(sound)
        await call.send_all(self.clause_over(tts_context))
        return True

    async def _begin(self, call: TtsConnection, tts_context: TtsContext, cue: TtsCue) -> bool:
        match cue.fault:
            case HangUp():
                await call.cut()
            case Hang():
                await asyncio.Event().wait()
            case _:
                return True
        return False

    async def _fail(self, call: TtsConnection, tts_context: TtsContext, fault: object) -> bool:
        match fault:
            case Cut():
                await call.cut()
            case NoEnd():
                await call.hang_up()
            case InBandError():
                await self.fail(call, tts_context.context, fault)
            case Malformed():
                await call.send('{"type": ')
                return True
            case Garbage():
                await call.send(b"\x00\xff\xfe\x80")
                return True
        return False
