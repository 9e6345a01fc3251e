"""TTS over a WebSocket, text in and audio out: the common part of all such vendors.

A vendor's own module makes and parses its messages, with a `TtsProtocol` and a `TurnCodec` without I/O. A turn is a
context on a WebSocket (`net.multiplex`) that was open before (`net.connection_pool`). It is cancelled at the vendor
when the turn is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

import pybase64
from msgspec import Struct

from voicepipe import clock
from voicepipe.audio.samples import PcmJoiner
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.provider_events import SynthesizerConnected
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Voice, WordTime
from voicepipe.providers.net import connection_pool, failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import B, Context, Note, SharingRules, Source

PONG_MS = 3_000
"""Timeout of a ping: a dead connection is detected while no turn waits for it."""


def pcm_of(address: ProviderAddress, data: str) -> bytes:
    """Return the bytes of a piece of audio in a message.

    Raises:
        StageError: it is not base64.
    """
    try:
        return pybase64.b64decode(data, validate=True)
    except ValueError as error:
        raise failures.broken(address, f"expected base64, got {len(data)} characters ({error})") from None


class Sound(Struct, frozen=True):
    """More of the clause's audio: little-endian PCM16 at the port's rate, cut anywhere."""

    pcm: bytes


class Words(Struct, frozen=True):
    """Start times of the clause's words, from its beginning; sent before or with the audio that contains them."""

    words: tuple[WordTime, ...]


class ClauseOver(Struct, frozen=True):
    """The clause has no more audio."""


TtsEvent = Sound | Words | ClauseOver

M = TypeVar("M", contravariant=True)


class TurnCodec(Protocol[M]):
    """A turn at the vendor: creates its messages, parses the answers, and tracks its open contexts."""

    def push(self, clause: str) -> Sequence[str]:
        """Return the messages that synthesize a clause after the earlier ones, at once."""
        ...

    def finish(self) -> Sequence[str]:
        """Return the messages that mark the last clause."""
        ...

    def cancel(self) -> Sequence[str] | None:
        """Return the messages that end the open contexts at the vendor; None without any."""
        ...

    def decode(self, body: M) -> Iterable[TtsEvent]:
        """Parse a message.

        Raises:
            StageError: it is an error.
        """
        ...

    @property
    def awaits_answer(self) -> bool:
        """Whether the vendor sends more without a further request. After `finish`, False is the end."""
        ...


class TtsProtocol(Protocol[B]):
    """A vendor's protocol; one for all turns."""

    plan: SharingRules

    def path(self, voice: Voice) -> str:
        """Return the path of its WebSocket, below the address's `base_url`.

        Raises:
            StageError: the vendor does not support these options.
        """
        ...

    def read(self, message: str | bytes) -> Iterable[Note[B]]:
        """Return a message and its context; nothing for a message to ignore.

        Raises:
            StageError: it is an error without a context, or not a message.
        """
        ...

    def begin(self, key: str, voice: Voice) -> TurnCodec[B]:
        """Return a turn whose contexts are called `key`, perhaps with a dot and a suffix."""
        ...


class StreamedSynthesizer(Generic[B]):
    """Implements the port `Synthesizer` over a `TtsProtocol`."""

    def __init__(self, address: ProviderAddress, wire: TtsProtocol[B]) -> None:
        self.name = address.name
        self.voices: frozenset[str] | None = None
        self._address, self._wire = address, wire

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Keep a WebSocket ready for a session that will use these options."""
        return connection_pool.keep_ready(self._source(voice))

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with connection_pool.lease(self._source(voice)) as context:
            codec = self._wire.begin(context.key, voice)
            context.cancel = codec.cancel
            speech = _Speech(self._address, context, codec)
            try:
                yield speech
            finally:
                speech.close()

    def _source(self, voice: Voice) -> Source[B]:
        return Source(self._address, self._wire.path(voice), self._wire.plan, self._wire.read)


class _Speech(Generic[B]):
    """The speech of one turn."""

    def __init__(self, address: ProviderAddress, context: Context[B], codec: TurnCodec[B]) -> None:
        self._address, self._context, self._codec = address, context, codec
        self._ready: deque[SpeechEvent] = deque()  # at most the audio of one message of the vendor
        self._is_connected = False
        self._joiner = PcmJoiner()
        self._words: tuple[WordTime, ...] = ()
        self._clause = 0
        self._has_words = self._has_sound = self._finished = self._left = False
        self._failure: StageError | None = None
        self._sent_s = self._received_s = 0.0
        self._timeout: asyncio.Timeout | None = None

    # --- the turn -----------------------------------------------------------------------------

    def push(self, clause: str) -> None:
        self._has_words = self._has_words or any(map(str.isalnum, clause))
        self._send(self._codec.push(clause))

    def finish(self) -> None:
        self._finished = True
        self._send(self._codec.finish())

    def close(self) -> None:
        """End the speech; wake the waiting iterator."""
        self._left = True
        self._look_again()

    def __aiter__(self) -> _Speech[B]:
        return self

    async def __anext__(self) -> SpeechEvent:
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                raise StopAsyncIteration
            try:
                await self._receive()
            except StageError as failure:
                self._failure = failure
                self._context.is_trusted = False
        return self._ready.popleft()

    # --- the vendor ---------------------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        return self._left or (self._finished and not self._codec.awaits_answer)

    def _send(self, messages: Sequence[str]) -> None:
        for message in messages:
            self._context.send(message)
        self._sent_s = clock.loop_s()
        self._look_again()

    async def _receive(self) -> None:
        """Handle one message, unless another event has to be handled first."""
        try:
            async with asyncio.timeout_at(self._due_s()) as self._timeout:
                await self._context.wait_until_dialled()
                if not self._is_connected:
                    self._report_connected()
                    return
                self._look_again()
                body = await self._context.receive()
        except TimeoutError:
            if not self._is_over:
                why = f"no data for {self._address.idle_timeout_ms} ms"
                raise StageTimeout(self._address.stage, provider=self._address.name, why=why, retryable=True) from None
            return
        finally:
            self._timeout = None
        self._received_s = clock.loop_s()
        for event in self._codec.decode(body):
            self._take(event)
        if self._is_over and not self._left and self._has_words and not self._has_sound:
            raise failures.broken(self._address, "the answer had no audio")

    def _report_connected(self) -> None:
        self._is_connected = True
        if (hidden_ms := self._context.tts_connect_hidden_ms) is not None:
            self._ready.append(SynthesizerConnected(hidden_ms))

    def _take(self, event: TtsEvent) -> None:
        match event:
            case Words(words):
                self._words += words
            case ClauseOver():
                self._clause += 1
                self._words = ()
                self._joiner.clear()
            case Sound(pcm):
                if len(samples := self._joiner.push(pcm)):
                    self._ready.append(Spoken(self._clause, samples, self._words))
                    self._words, self._has_sound = (), True

    def _due_s(self) -> float | None:
        """Return when to stop waiting: at once when it is over, and never when nothing is due from the vendor."""
        if self._is_over:
            return 0.0
        up_s = self._context.up_s
        if up_s is None or not self._codec.awaits_answer:
            return None
        return max(self._sent_s, self._received_s, up_s) + self._address.idle_timeout_ms / 1_000

    def _look_again(self) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._due_s())
