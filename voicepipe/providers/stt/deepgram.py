"""Speech to text by Deepgram's nova models, streaming, over its `/v1/listen` WebSocket.

The whole call is sent. What the vendor calls final is joined to the text of an utterance; a flush asks it to make the
rest final at once (`Finalize`), unless it has called the caller's end of speech already.
Sources: Deepgram docs, "Live Audio", "Finalize", "Audio Keep Alive", "Endpointing", "Errors", and "STT Troubleshooting
WebSocket, NET, and DATA Errors". Marked `unverified` is what they do not say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.net.ws import Line, VendorSocket, dial
from voicepipe.providers.stt import deepgram_wire as wire
from voicepipe.providers.stt.deepgram_options import RATE_HZ, DeepgramOptions
from voicepipe.providers.stt.segments import Margins, Segment, Segments, Word
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.helpers import helpers
from voicepipe.stages.transcriber import (
    Heard,
    Hearing,
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptStream,
)

SAMPLE_BYTES = 2

LINE = Line(
    audio_bytes_per_ms=SAMPLE_BYTES * RATE_HZ // 1_000,
    buffer_ms=30_000,
    # Neither audio nor this for 10 s ends the stream with NET-0001; every 3 to 5 s is asked for ("Audio Keep Alive").
    keep_alive=wire.KEEP_ALIVE,
    keep_alive_ms=4_000,
    farewell=wire.CLOSE_STREAM,
)

MARGINS = Margins(
    lead=RATE_HZ // 2,  # noticing a voice takes 100 to 250 ms; as much again for word times that are rough
    trailing=RATE_HZ // 5,  # a pause is flushed some 100 ms after the last voiced sample
    scant=RATE_HZ // 2,  # unverified: the docs say "no significant amount of audio", without a figure
)

FINALIZE_MS = 400
"""How long a `Finalize` with scant audio left may stay unanswered, since the docs promise no answer then. Unverified:
an answer takes 50 to 300 ms."""

FIRST_FINALIZE_MS = 1_500
"""The same while nothing is known of the utterance: an empty text is only right when nobody spoke."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """The ear `spec.model` at the server that `settings` name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = DeepgramOptions.of(spec, settings)
    return _Deepgram(Peer.of("stt", spec, settings, auth_scheme="Token", scheme="ws"), options)


class _Deepgram:
    def __init__(self, peer: Peer, options: DeepgramOptions) -> None:
        self.name = peer.name
        self.capabilities = TranscriberCapabilities(rate_hz=RATE_HZ, streams=True, partials=True, finalize=True)
        self._peer, self._options = peer, options

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        return self._open(hearing)

    @asynccontextmanager
    async def _open(self, hearing: Hearing) -> AsyncIterator[TranscriptStream]:
        path = f"/listen?{self._options.query(hearing)}"
        async with dial(self._peer, path, LINE) as socket, helpers() as owned:
            stream = _Stream(self._peer, socket)
            owned.start(stream.read(), name=f"stt-{self.name}")
            try:
                yield stream
            finally:
                stream.close()


class _Stream:
    """One session's ear."""

    def __init__(self, peer: Peer, socket: VendorSocket) -> None:
        self._peer, self._socket = peer, socket
        self._segments = Segments(MARGINS)
        self._pushed_samples = 0
        # Full means that nobody reads texts: the socket is not read either, and the vendor has to wait.
        self._heard: asyncio.Queue[Heard | StageError | None] = asyncio.Queue(maxsize=64)
        self._failure: StageError | None = None
        self._closed = False
        self._flushed_s = self._received_s = self._up_s = 0.0  # by the loop's own clock, as its timeouts are
        self._patience: asyncio.Timeout | None = None

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        self._segments.begin(utterance, self._pushed_samples)

    def push(self, samples: Samples) -> None:
        self._pushed_samples += len(samples)
        self._socket.send_audio(samples.astype("<i2", copy=False).tobytes())

    def flush(self, flush: int) -> None:
        answer = self._segments.flush(flush, self._pushed_samples, ask=self._heard.full())
        if answer is not None:
            self._heard.put_nowait(answer)
            return
        self._socket.send(wire.FINALIZE)
        self._flushed_s = clock.loop_s()
        if self._patience is not None:
            self._patience.reschedule(self._due_s())

    def close(self) -> None:
        """Wake whoever still listens: there is nothing more to hear."""
        self._closed = True
        if not self._heard.full():
            self._heard.put_nowait(None)

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Heard:
        while self._failure is None and not self._closed:
            heard = await self._heard.get()
            if isinstance(heard, StageError):
                self._failure = heard
            elif heard is not None:
                return heard
        raise self._failure or StopAsyncIteration

    # --- the vendor ---------------------------------------------------------------------------

    async def read(self) -> None:
        """Turn the vendor's messages into texts until it fails; the failure is the last thing heard."""
        try:
            await self._socket.connected()
            self._up_s = clock.loop_s()
            while True:
                for heard in await self._next():
                    await self._heard.put(heard)
        except StageError as failure:
            await self._heard.put(failure)

    async def _next(self) -> list[Heard]:
        try:
            async with asyncio.timeout_at(self._due_s()) as self._patience:
                message = await self._socket.receive()
        except TimeoutError:
            return [self._answer_unasked()]
        finally:
            self._patience = None
        self._received_s = clock.loop_s()
        segment = wire.read(self._peer, message, RATE_HZ)
        return [] if segment is None else self._segments.take(self._placed(segment))

    def _due_s(self) -> float | None:
        """When to wait no longer. A vendor may be silent for ever, but not when a flush waits for it."""
        if not self._segments.waiting:
            return None
        asked_s = max(self._flushed_s, self._up_s)
        if self._segments.scant:
            return asked_s + (FINALIZE_MS if self._segments.known else FIRST_FINALIZE_MS) / 1_000
        return max(asked_s, self._received_s) + self._peer.idle_timeout_ms / 1_000

    def _answer_unasked(self) -> Heard:
        if self._segments.scant:
            return self._segments.give_up()
        why = f"nothing came for {self._peer.idle_timeout_ms} ms"
        raise StageTimeout(self._peer.stage, provider=self._peer.name, why=why, retryable=True)

    def _placed(self, segment: Segment) -> Segment:
        """The segment in positions of what was pushed: Deepgram counts what it got."""
        if not self._socket.dropped_bytes:
            return segment
        words = tuple(Word(self._place(w.start), self._place(w.end), w.text) for w in segment.words)
        return replace(segment, start=self._place(segment.start), end=self._place(segment.end), words=words)

    def _place(self, sample: int) -> int:
        return self._socket.pushed_at(sample * SAMPLE_BYTES) // SAMPLE_BYTES
