"""Hold providers to limits: a provider that sends too much, or too little in too long, counts as broken.

Every provider is wrapped once, where it is made, so that sessions, REST and each attempt of a router have the same
limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Final

from voicepipe import clock
from voicepipe.audio.samples import Samples, first_audible
from voicepipe.errors import StageBroken, StageTimeout
from voicepipe.ports.limits import ProviderLimits
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, TextDelta
from voicepipe.ports.synthesizer import RATE_HZ, Speech, SpeechEvent, Spoken, Synthesizer, Voice
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import Interim, Transcriber, TranscriptEvent, TranscriptionOptions, TranscriptStream
from voicepipe.registry import Stage
from voicepipe.values import replace

SPEECH_S: Final = 10
"""Audio that any text may have, however short."""

SLOW_S: Final = 15.0
"""Time within which there must be `min_speech_ms` of audio."""

TRANSCRIPT_CHARS: Final = 4_000
"""The transcript that any utterance may have, however short."""

TEXTS: Final = 1_000
"""The number of transcripts that any utterance may have, interim ones too."""


YIELD_EVERY_S: Final = 0.005
"""Time after which other tasks run: a provider that sends faster than its answer is read would block the event loop."""


class _LoopYielder:
    """Yields to other tasks on the event loop every `YIELD_EVERY_S`."""

    def __init__(self) -> None:
        self.now_s = clock.loop_clock()
        self._since_s = self.now_s()

    async def yield_to_loop(self) -> None:
        """Wait for one turn of the event loop if it is due."""
        if self.now_s() - self._since_s >= YIELD_EVERY_S:
            await asyncio.sleep(0)
            self._since_s = self.now_s()


# --- the LLM --------------------------------------------------------------------------------------


class LimitedModel:
    """Meets the port `Model` with the model that it wraps."""

    def __init__(self, inner: Model, limits: ProviderLimits) -> None:
        self.name = inner.name
        self._inner, self._limits = inner, limits

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Start an answer; raises the model's errors, and `StageError` from the iterator at a limit."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        async with self._inner.open(request) as events:
            yield _LimitedAnswer(events, self.name, self._limits)

    async def warm(self, request: ModelRequest) -> None:
        """Prepare for this request; errors are ignored."""
        await self._inner.warm(request)


class _LimitedAnswer:
    """An answer within its limits. Only the time spent waiting for the model counts, not the time of a slow reader."""

    def __init__(self, events: AsyncIterator[ModelEvent], name: str, limits: ProviderLimits) -> None:
        self._events, self._name, self._limits = events, name, limits
        self._n_chars = self._n_argument_chars = 0
        self._calls: set[int] = set()
        self._quiet_s = self._waited_s = 0.0
        self._loop_yielder = _LoopYielder()

    def __aiter__(self) -> _LimitedAnswer:
        return self

    async def __anext__(self) -> ModelEvent:
        await self._loop_yielder.yield_to_loop()
        now_s, limits = self._loop_yielder.now_s, self._limits
        began_s = now_s()
        left_s = min(limits.max_quiet_s - self._quiet_s, limits.max_answer_s - self._waited_s)
        event: ModelEvent | None = None
        try:
            async with asyncio.timeout(left_s):
                event = await anext(self._events)
        except TimeoutError:
            pass  # `_refuse_slowness` names it
        self._refuse_slowness(event, now_s() - began_s)
        assert event is not None
        self._count(event)
        return event

    def _refuse_slowness(self, event: ModelEvent | None, waited_s: float) -> None:
        self._waited_s += waited_s
        self._quiet_s = 0.0 if event is not None and _has_output(event) else self._quiet_s + waited_s
        limits, why = self._limits, ""
        if self._quiet_s >= limits.max_quiet_s:
            why = f"only keep-alives or empty pieces for {limits.max_quiet_s} s"
        elif event is None or self._waited_s >= limits.max_answer_s:
            why = f"the answer was not complete within {limits.max_answer_s} s"
        if why:
            raise StageTimeout("llm", provider=self._name, why=why, retryable=True)

    def _count(self, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._n_chars += len(text)
                self._refuse(self._n_chars, self._limits.max_answer_chars, "characters of text")
            case CallDelta(index, _, _, arguments):
                self._calls.add(index)
                self._n_argument_chars += len(arguments)
                self._refuse(len(self._calls), self._limits.max_calls, "function calls")
                self._refuse(self._n_argument_chars, self._limits.max_argument_chars, "characters of arguments")
            case _:
                pass

    def _refuse(self, n: int, limit: int, what: str) -> None:
        if n > limit:
            raise _broken("llm", self._name, f"expected at most {limit} {what} in an answer, got more")


def _has_output(event: ModelEvent) -> bool:
    match event:
        case TextDelta(text):
            return bool(text.strip())
        case CallDelta(_, call_id, name, arguments):
            return bool(call_id or name or arguments.strip())
        case _:
            return isinstance(event, Finished)


# --- the synthesizer ------------------------------------------------------------------------------


class LimitedSynthesizer:
    """Meets the port `Synthesizer` with the synthesizer that it wraps."""

    def __init__(self, inner: Synthesizer, limits: ProviderLimits) -> None:
        self.name, self.voices = inner.name, inner.voices
        self._inner, self._limits = inner, limits

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Keep ready what `open` needs."""
        return self._inner.keep_warm(voice)

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Start one turn's speech; raises the synthesizer's errors, and `StageError` from the iterator at a
        limit."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with self._inner.open(voice) as speech:
            yield _LimitedSpeech(speech, self.name, self._limits)


class _LimitedSpeech:
    """The speech of one turn within its limits."""

    def __init__(self, inner: Speech, name: str, limits: ProviderLimits) -> None:
        self._inner, self._events, self._name, self._limits = inner, aiter(inner), name, limits
        self._n_chars = self._n_words = self._n_samples = self._n_silent = 0
        self._has_words = False
        """Whether it was given something to say: a letter or a digit."""

        self._window_from_s: float | None = None
        self._window_s = 0.0
        """Time spent waiting for the synthesizer since the window began."""

        self._window_samples = 0
        self._loop_yielder = _LoopYielder()

    def push(self, clause: str) -> None:
        """Speak this clause after those before it."""
        self._n_chars += len(clause)
        self._has_words = self._has_words or any(map(str.isalnum, clause))
        self._window_from_s = None
        self._inner.push(clause)

    def finish(self) -> None:
        """Declare that no clause follows."""
        self._window_from_s = None
        self._inner.finish()

    def __aiter__(self) -> _LimitedSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        await self._loop_yielder.yield_to_loop()
        began_s = clock.loop_s()
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            self._refuse_only_silence()
            raise
        if not isinstance(event, Spoken):
            self._window_s += clock.loop_s() - began_s
            return event
        self._refuse_length(event.samples)
        self._refuse_silence(event.samples)
        self._refuse_slowness(event.samples, clock.loop_s() - began_s)
        return self._with_few_words(event)

    def _refuse_length(self, samples: Samples) -> None:
        self._n_samples += len(samples)
        by_text_s = SPEECH_S + self._n_chars * self._limits.max_speech_ms_per_char / 1_000
        max_s = min(by_text_s, self._limits.max_speech_s)
        if self._n_samples > max_s * RATE_HZ:
            why = f"expected at most {max_s:.0f} s of audio for {self._n_chars} characters, got more"
            raise _broken("tts", self._name, why)

    def _refuse_silence(self, samples: Samples) -> None:
        self._n_silent = self._n_silent + len(samples) if first_audible(samples) is None else 0
        if self._n_silent > self._limits.max_silence_s * RATE_HZ:
            raise _broken("tts", self._name, f"expected speech, got {self._limits.max_silence_s} s of silence")

    def _refuse_only_silence(self) -> None:
        """Refuse words that came as silence: the turn would count as spoken."""
        if self._has_words and 0 < self._n_silent == self._n_samples:
            raise _broken("tts", self._name, "expected speech, got only silence")

    def _refuse_slowness(self, samples: Samples, waited_s: float) -> None:
        """Refuse audio that trickles in. A window begins with audio, and anew with each clause."""
        if self._window_from_s is None:
            self._begin_window()
            return
        self._window_s += waited_s
        self._window_samples += len(samples)
        if self._window_s < SLOW_S:
            return
        if self._window_samples < self._limits.min_speech_ms * RATE_HZ // 1_000:
            why = f"expected at least {self._limits.min_speech_ms} ms of audio in {SLOW_S:.0f} s, got less"
            raise StageTimeout("tts", provider=self._name, why=why, retryable=True)
        self._begin_window()

    def _begin_window(self) -> None:
        self._window_from_s, self._window_s, self._window_samples = clock.loop_s(), 0.0, 0

    def _with_few_words(self, spoken: Spoken) -> Spoken:
        """Leave out times of words that were never given to the synthesizer: there are no more words than
        characters."""
        max_words = max(0, self._n_chars - self._n_words)
        self._n_words += min(max_words, len(spoken.words))
        return spoken if len(spoken.words) <= max_words else replace(spoken, words=spoken.words[:max_words])


# --- the transcriber ------------------------------------------------------------------------------


class LimitedTranscriber:
    """Meets the port `Transcriber` with the transcriber that it wraps."""

    def __init__(self, inner: Transcriber, limits: ProviderLimits) -> None:
        self.name, self.capabilities = inner.name, inner.capabilities
        self._inner, self._limits = inner, limits

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        """Start one session's stream; raises the transcriber's errors, and `StageError` from the iterator at a
        limit."""
        return self._open(transcription)

    @asynccontextmanager
    async def _open(self, transcription: TranscriptionOptions) -> AsyncIterator[TranscriptStream]:
        async with self._inner.open(transcription) as stream:
            yield _LimitedStream(stream, self.name, self.capabilities.push_hz(transcription), self._limits)


class _LimitedStream:
    """The stream of one session within its limits. These grow with the audio of the running utterance."""

    def __init__(self, inner: TranscriptStream, name: str, rate_hz: int, limits: ProviderLimits) -> None:
        self._events, self._name, self._rate_hz, self._limits = aiter(inner), name, rate_hz, limits
        self._inner, self.flush = inner, inner.flush
        self._n_samples = 0
        self._n_events: dict[type, int] = {}  # interim ones, final ones, and others
        self._loop_yielder = _LoopYielder()

    def begin(self, utterance: int) -> None:
        """A new utterance starts with the next `push`."""
        self._n_samples = 0
        self._n_events.clear()
        self._inner.begin(utterance)

    def push(self, samples: Samples) -> None:
        """Pass on more of the user's audio."""
        self._n_samples += len(samples)
        self._inner.push(samples)

    def __aiter__(self) -> _LimitedStream:
        return self

    async def __anext__(self) -> TranscriptEvent:
        while True:
            await self._loop_yielder.yield_to_loop()
            event = await anext(self._events)
            self._n_events[type(event)] = self._n_events.get(type(event), 0) + 1
            why = self._too_much(event)
            if not why:
                return event
            if isinstance(event, FinalText):
                raise _broken("stt", self._name, why)  # an interim transcript that is left out costs nothing

    def _too_much(self, event: TranscriptEvent) -> str:
        length_s, limits = self._n_samples / self._rate_hz, self._limits
        max_chars = TRANSCRIPT_CHARS + round(length_s * limits.max_transcript_chars_per_s)
        if isinstance(event, Interim | FinalText) and len(event.text) > max_chars:
            return f"expected at most {max_chars} characters for {length_s:.0f} s of audio, got {len(event.text)}"
        max_texts = TEXTS + round(length_s * limits.max_texts_per_s)
        if self._n_events[type(event)] > max_texts:
            return f"expected at most {max_texts} transcripts of an utterance, got more"
        return ""


def limited(stage: Stage, provider: Any, limits: ProviderLimits) -> Any:
    """Return the Transcriber, Model or Synthesizer `provider`, held to `limits`."""
    match stage:
        case "stt":
            return LimitedTranscriber(provider, limits)
        case "llm":
            return LimitedModel(provider, limits)
        case "tts":
            return LimitedSynthesizer(provider, limits)


def _broken(stage: str, name: str, why: str) -> StageBroken:
    return StageBroken(stage, provider=name, why=why, retryable=True)
