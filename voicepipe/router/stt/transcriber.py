"""A transcriber made of several: when one breaks or its text is late, the next gets the utterance again from its
start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from msgspec import Struct

from voicepipe import clock
from voicepipe.audio.encoding import TelephoneFormat
from voicepipe.audio.resample import Resampler
from voicepipe.errors import StageBroken, StageError, StageExpired, StageTimeout
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import (
    Final,
    Interim,
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptEvent,
    TranscriptionOptions,
    TranscriptStream,
)
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import record_failure
from voicepipe.router.race_runner import StreamQueue, failure_of
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.replay_buffer import BufferedUtterance, ReplayBuffer
from voicepipe.tasks import background_tasks
from voicepipe.values import replace

UNREAD_TEXTS = 64
"""The most texts that are not yet read. Full: the transcriber is not read until a text is."""

PIECE_MS = 100
"""The length of the pieces in which an utterance is replayed."""


class TranscriberCandidate(Struct, frozen=True):
    """A transcriber that may replace others."""

    candidate: Candidate
    transcriber: Transcriber

    def options(self, requested: TranscriptionOptions) -> TranscriptionOptions:
        """Return the settings for this transcriber: a telephone's audio is resampled for it, if it doesn't take it."""
        telephone = requested.telephone if requested.telephone in self.transcriber.capabilities.telephone else None
        return replace(requested, model=self.candidate.model, telephone=telephone)


class RoutedTranscriber:
    """Meets the port `Transcriber`."""

    def __init__(self, transcribers: tuple[TranscriberCandidate, ...], speech_order: SpeechOrder) -> None:
        """`transcribers`: the transcribers in order of preference, best first."""
        self.name = transcribers[0].candidate.spec
        self.capabilities = common(tuple(each.transcriber.capabilities for each in transcribers))
        self._transcribers = {each.candidate.spec: each for each in transcribers}
        self._speech_order = speech_order

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        """Begin one session's stream.

        Raises:
            StageError: from the iterator: all transcribers have failed, one after the other; it is the error of the
                last.
        """
        return self._open(transcription)

    @asynccontextmanager
    async def _open(self, transcription: TranscriptionOptions) -> AsyncIterator[TranscriptStream]:
        async with background_tasks() as owned:
            stream = FailoverStream(transcription, self._transcribers, self._speech_order, self.capabilities)
            owned.start(stream.run(), name=f"stt-router-{self.name}")
            try:
                yield stream
            finally:
                stream.close()


def common(several: tuple[TranscriberCapabilities, ...]) -> TranscriberCapabilities:
    """Return the capabilities to expect of a transcriber that may be any of these: the needs of the most demanding,
    the reliability of the least reliable."""
    return TranscriberCapabilities(
        rate_hz=max(each.rate_hz for each in several),
        streams=any(each.streams for each in several),
        partials=any(each.partials for each in several),
        finalize=all(each.finalize for each in several),
        short_words=all(each.short_words for each in several),
        turn_events=any(each.turn_events for each in several),
        translates=all(each.translates for each in several),
        word_times=all(each.word_times for each in several),
        reports_language=all(each.reports_language for each in several),
        english_only=any(each.english_only for each in several),
        speakers=all(each.speakers for each in several),
        telephone=frozenset[TelephoneFormat]().union(*(each.telephone for each in several)),
    )


class FailoverStream:
    """Meets `TranscriptStream`. `run` it as a task.

    This is no race (`router/race.py`): a race is over with the first output of one request, for which several
    candidates may run side by side. Here one transcriber serves a whole session, and the next gets the audio again.
    """

    def __init__(
        self,
        transcription: TranscriptionOptions,
        transcribers: Mapping[str, TranscriberCandidate],
        speech_order: SpeechOrder,
        capabilities: TranscriberCapabilities,
    ) -> None:
        self._transcription, self._transcribers, self._speech_order, self._capabilities = (
            transcription,
            transcribers,
            speech_order,
            capabilities,
        )
        self._rate_hz = capabilities.push_hz(transcription)
        self._buffer = ReplayBuffer(self._rate_hz, leads=capabilities.streams)
        self._feed: _TranscriberFeed | None = None
        self._events: StreamQueue[TranscriptEvent] = StreamQueue(UNREAD_TEXTS)
        self._failed: set[str] = set()
        """Transcribers that have failed since a text came."""

        self._aged: set[str] = set()
        """Transcribers whose connection grew too old since then: each gets another connection, once."""

        self._transcribed: int | None = None
        """An utterance that is replayed though its text has come: the user may continue in it. Until its text is
        requested again, its transcripts are known already."""

        self._timeout: asyncio.Timeout | None = None
        self._opened_ms = 0
        """When the stream to the present transcriber was opened."""

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        self._buffer.begin(utterance)
        self._transcribed = None
        if self._feed is not None and (current := self._buffer.current) is not None:
            self._feed.begin(current)

    def push(self, samples: Samples) -> None:
        self._buffer.push(samples)
        if self._feed is not None:
            self._feed.push(samples)

    def flush(self, flush: int) -> None:
        self._buffer.flush(flush)
        self._transcribed = None
        if self._feed is not None:
            self._feed.stream.flush(flush)
            self._start_timeout()

    def close(self) -> None:
        """End the relay: the session has left."""
        self._events.end()

    def __aiter__(self) -> FailoverStream:
        return self

    def __anext__(self) -> Awaitable[TranscriptEvent]:
        return self._events.next()

    # --- one transcriber after the other ------------------------------------------------------

    async def run(self) -> None:
        """Run one transcriber after the other until all have failed, or the task is cancelled."""
        why = before = ""
        failure: StageError | None = None
        while (candidate := self._speech_order.next_after(self._failed, "", clock.monotonic_ms())) is not None:
            chosen = self._transcribers[candidate.spec]
            if candidate.spec not in self._aged:
                self._report_fallback(candidate, why, before)
            failure = await failure_of("stt", candidate.spec, self._listen(chosen))
            if failure is None:
                break  # it ended by itself, between two utterances: the session opens another
            if isinstance(failure, StageExpired) and candidate.spec not in self._aged:
                self._aged.add(candidate.spec)
                continue  # with the same: it gets again what waits for its text
            self._failed.add(candidate.spec)
            before, why = candidate.spec, f"{candidate.spec}: {failure.why}"
            breaker = self._speech_order.stats.breaker(candidate)
            record_failure(breaker, candidate.spec, failure, clock.monotonic_ms())
        self._events.end(failure)

    def _report_fallback(self, candidate: Candidate, why: str, before: str) -> None:
        """Report that a transcriber begins that is not the first choice, or not the same as before."""
        is_first = candidate.spec == next(iter(self._transcribers))
        if why or not is_first:
            role: Literal["replacement", "continuation"] = "continuation" if why else "replacement"
            why = why or "the first choice is unhealthy"
            self._events.put(ProviderChanged(candidate.spec, role, why, waited_for=before))

    async def _listen(self, chosen: TranscriberCandidate) -> None:
        """Give this transcriber all audio whose text is pending, and the audio that follows, until the stream ends.

        Raises:
            StageError: the transcriber failed, or is too late with a text that another might have.
        """
        options, capabilities = chosen.options(self._transcription), chosen.transcriber.capabilities
        self._opened_ms = clock.monotonic_ms()
        try:
            async with (
                asyncio.timeout(None) as self._timeout,
                chosen.transcriber.open(options) as stream,
            ):
                rates = (self._rate_hz, capabilities.push_hz(options))
                self._feed = _TranscriberFeed(stream, capabilities, rates, pushes_all=self._capabilities.streams)
                self._feed.catch_up(self._buffer)
                current = self._buffer.current
                self._transcribed = current.number if current is not None and current.is_known else None
                if self._buffer.waits:
                    self._start_timeout()
                async for event in stream:
                    if isinstance(event, Interim | Final):
                        await self._on_text(event, chosen)
                    else:
                        self._events.put(event)
        except TimeoutError:
            why = f"no transcript for {self._speech_order.options.fallback_after_ms} ms"
            raise StageTimeout("stt", provider=chosen.candidate.spec, why=why, retryable=True) from None
        finally:
            self._feed = self._timeout = None
        if self._buffer.waits:
            why = "the stream ended before its last transcript"
            raise StageBroken("stt", provider=chosen.candidate.spec, why=why, retryable=True)

    async def _on_text(self, text: Interim | Final, chosen: TranscriberCandidate) -> None:
        if text.utterance == self._transcribed:
            return
        if isinstance(text, Final):
            self._failed.clear()
            self._aged.clear()
            self._buffer.answered(text.utterance, text.flush)
            self._speech_order.succeeded(chosen.candidate, began_ms=self._opened_ms)
            if not self._buffer.waits and self._timeout is not None:
                self._timeout.reschedule(None)
        self._events.put(text)
        await self._events.wait_for_space()

    def _start_timeout(self) -> None:
        """Start the timeout for a text, where another transcriber might have it sooner."""
        if self._timeout is None or len(self._transcribers) < 2 or self._timeout.expired():
            return
        after_s = self._speech_order.options.fallback_after_ms / 1_000
        if self._timeout.when() is None:
            self._timeout.reschedule(clock.loop_s() + after_s)


class _TranscriberFeed:
    """The stream to one transcriber: which audio it gets, at its own rate, and when."""

    def __init__(
        self,
        stream: TranscriptStream,
        capabilities: TranscriberCapabilities,
        rates: tuple[int, int],
        *,
        pushes_all: bool,
    ) -> None:
        """`rates`: of the audio that is pushed here, and of what the transcriber takes. `pushes_all`: audio is pushed
        here between utterances too."""
        self.stream = stream
        self._capabilities, self._rates, self._pushes_all = capabilities, rates, pushes_all
        self._resampler = Resampler(*rates)
        self._in_utterance = False

    def begin(self, utterance: BufferedUtterance) -> None:
        """Begin an utterance. A transcriber that gets only utterances also gets the audio just before."""
        self.stream.begin(utterance.number)
        self._in_utterance = True
        if self._pushes_all and not self._capabilities.streams:
            self._resampler = Resampler(*self._rates)
            self.push(utterance.lead_sound)

    def push(self, samples: Samples) -> None:
        """Pass on more of the user's audio, if this transcriber gets it."""
        if self._capabilities.streams or self._in_utterance:
            resampled = self._resampler.push(samples)
            if len(resampled):
                self.stream.push(resampled)

    def catch_up(self, buffer: ReplayBuffer) -> None:
        """Replay the audio that came before this transcriber was open."""
        n_piece = PIECE_MS * self._rates[0] // 1_000
        for utterance in buffer:
            if self._capabilities.streams:
                self.push(utterance.lead_sound)
            self.begin(utterance)
            sound = utterance.sound
            for at in range(0, len(sound), n_piece):
                self.push(sound[at : at + n_piece])
            if utterance.flush is not None:
                self.stream.flush(utterance.flush)
