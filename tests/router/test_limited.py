"""A provider held to limits keeps its port's promises, and what it sends beyond them ends it with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from itertools import repeat
from typing import Any, cast

import numpy as np
import pytest

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.ports.limits import ProviderLimits
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.ports.provider_events import ModelConnected, SynthesizerConnected
from voicepipe.ports.synthesizer import RATE_HZ, Speech, SpeechEvent, Spoken, Synthesizer, Voice, WordTime
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
from voicepipe.router.limited import LimitedModel, LimitedSynthesizer, LimitedTranscriber
from voicepipe.testing.conformance.model import first_output
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsScript
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttScript
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cues import SttCue, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, FakeTranscriber

HI = ModelRequest(model="m", messages=())
TONE = np.tile(np.array([4_096, -4_096], dtype=np.int16), RATE_HZ // 20)  # 100 ms
SILENCE = np.zeros(RATE_HZ, dtype=np.int16)  # 1 s
FEW = ProviderLimits(
    max_answer_chars=100,
    max_argument_chars=100,
    max_calls=4,
    max_quiet_s=20,
    max_answer_s=60,
    max_speech_s=30,
    max_silence_s=5,
)


class Hands:
    """The loop's clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(clock, "loop_s", lambda: self.now_s)
        monkeypatch.setattr(clock, "loop_clock", lambda: lambda: self.now_s)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    return Hands(monkeypatch)


# --- the ports' promises --------------------------------------------------------------------------


class TestTranscriber(ScriptedTranscriberConformance):
    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    def fake(self, timeout_ms: int) -> FakeTranscriber:
        return FakeTranscriber(lambda _: SttCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, fake: FakeTranscriber) -> SttScript:
        script: SttScript = cast("Any", fake.script)
        return script

    @pytest.fixture
    def transcriber(self, fake: FakeTranscriber) -> Transcriber:
        return LimitedTranscriber(fake, ProviderLimits())


class TestSynthesizer(ScriptedSynthesizerConformance):
    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    def fake(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(lambda _: TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, fake: FakeSynthesizer) -> TtsScript:
        script: TtsScript = cast("Any", fake.script)
        return script

    @pytest.fixture
    def synthesizer(self, fake: FakeSynthesizer) -> Synthesizer:
        return LimitedSynthesizer(fake, ProviderLimits())


# --- the language model ---------------------------------------------------------------------------


class Talker:
    """A model that says these events; a number is a wait, by the clock that is moved by hand."""

    name = "fake/llm"

    def __init__(self, events: Iterator[ModelEvent | float], hands: Hands | None = None) -> None:
        self._events, self._handlers = events, hands
        self.left = False

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        try:
            yield self._said()
        finally:
            self.left = True

    async def warm(self, request: ModelRequest) -> None: ...

    async def _said(self) -> AsyncIterator[ModelEvent]:
        for event in self._events:
            if isinstance(event, float):
                assert self._handlers is not None
                self._handlers.now_s += event
            else:
                yield event


async def until_it_fails(events: AsyncIterator[Any], came: list[Any]) -> StageError | None:
    """Keep what comes; returns the failure, if there is one."""
    try:
        async for event in events:
            came.append(event)  # noqa: PERF401 what came before a failure counts
    except StageError as failure:
        return failure
    return None


async def answer(model: Model) -> tuple[list[ModelEvent], StageError | None]:
    """Everything that comes, and how it failed."""
    events: list[ModelEvent] = []
    async with LimitedModel(model, FEW).open(HI) as answered:
        return events, await until_it_fails(answered, events)


ENDLESS: dict[str, tuple[Callable[[], Iterator[ModelEvent]], str]] = {
    "text": (lambda: repeat(TextDelta("and so on ")), "expected at most 100 characters of text in an answer, got more"),
    "one piece": (lambda: iter([TextDelta("x" * 101)]), "expected at most 100 characters of text"),
    "arguments": (
        lambda: repeat(CallDelta(0, "", "", "x" * 10)),
        "expected at most 100 characters of arguments in an answer, got more",
    ),
    "calls": (
        lambda: (CallDelta(i, f"c{i}", "look", "") for i in range(1_000_000)),
        "expected at most 4 function calls in an answer, got more",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_answer_without_end(kind: str) -> None:
    """The failure is retryable with another model, and the vendor's connection is closed."""
    said, why = ENDLESS[kind]
    talker = Talker(said())
    events, failure = await answer(talker)
    assert failure is not None
    assert (failure.stage, failure.provider, failure.retryable) == ("llm", "fake/llm", True)
    assert why in failure.why
    assert len(events) <= 10
    assert talker.left


@pytest.mark.parametrize(
    "empty", [Usage(input_tokens=1, output_tokens=0), TextDelta("\n"), CallDelta(0, "", "", " ")], ids=str
)
async def test_an_answer_that_says_nothing(empty: ModelEvent, hands: Hands) -> None:
    """Keep-alives, empty pieces and blanks are no answer, however steadily they come."""
    talker = Talker((each for _ in repeat(None) for each in (1.0, empty)), hands)
    events, failure = await answer(talker)
    assert failure is not None
    assert "only keep-alives or empty pieces for 20 s" in failure.why
    assert len(events) == 19


async def test_an_answer_that_trickles(hands: Hands) -> None:
    """A letter now and then is something, but an answer has an end."""
    events, failure = await answer(Talker((each for _ in repeat(None) for each in (7.0, TextDelta("a"))), hands))
    assert failure is not None
    assert "not complete within 60 s" in failure.why
    assert len(events) == 8


async def test_a_model_that_falls_silent_is_waited_for_no_longer() -> None:
    """The wait itself ends, whatever the vendor's connection does."""

    class Silent(Talker):
        async def _said(self) -> AsyncIterator[ModelEvent]:
            await asyncio.Event().wait()
            yield TextDelta("never")

    model = LimitedModel(Silent(iter(())), ProviderLimits(max_quiet_s=1))
    with pytest.raises(StageError, match="pieces for 1 s"):
        async with model.open(HI) as answered:
            await anext(answered)


async def test_connections_do_not_count_as_output() -> None:
    """A model that only reports connections is as silent as one that reports nothing."""

    class Connecting(Talker):
        async def _said(self) -> AsyncIterator[ModelEvent]:
            while True:
                await asyncio.sleep(0.01)
                yield ModelConnected()

    model = LimitedModel(Connecting(iter(())), ProviderLimits(max_quiet_s=1))
    with pytest.raises(StageError, match="pieces for 1 s"):
        async with model.open(HI) as answered:
            await first_output(answered)


async def test_a_slow_reader_is_not_the_models_fault(hands: Hands) -> None:
    """Time in which the reader requests no event is not counted."""
    said: list[ModelEvent] = [TextDelta("a"), TextDelta("b"), Finished("stop")]
    seen = []
    async with LimitedModel(Talker(iter(said)), FEW).open(HI) as answered:
        async for event in answered:
            seen.append(event)
            hands.now_s += 100
    assert seen == said


async def test_a_flood_lets_others_have_their_turn() -> None:
    """A model that never waits for anything does not keep the loop to itself."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(others())
        model = LimitedModel(Talker(repeat(TextDelta("word "))), ProviderLimits(max_answer_chars=500_000))
        began_s = asyncio.get_running_loop().time()
        async with model.open(HI) as answered:
            assert await until_it_fails(answered, []) is not None
        took_s = asyncio.get_running_loop().time() - began_s
        other.cancel()
    assert turns >= min(1, took_s / 0.1)


# --- the voice ------------------------------------------------------------------------------------


class Singer:
    """A TTS that yields these pieces of audio, whatever the text; a number is a wait."""

    name = "fake/tts"
    voices: frozenset[str] | None = None

    def __init__(self, sound: Iterator[SpeechEvent | float], hands: Hands | None = None) -> None:
        self._sound, self._handlers = sound, hands

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return nullcontext()

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Speech]:
        yield self

    def push(self, clause: str) -> None: ...
    def finish(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        for spoken in self._sound:
            if isinstance(spoken, float):
                assert self._handlers is not None
                self._handlers.now_s += spoken
            else:
                yield spoken


async def speech(singer: Singer, text: str = "Hello.", limits: ProviderLimits = FEW) -> tuple[list[SpeechEvent], str]:
    """All that comes, and why it ended."""
    came: list[SpeechEvent] = []
    async with LimitedSynthesizer(singer, limits).open(Voice(model="v")) as spoken:
        spoken.push(text)
        spoken.finish()
        failure = await until_it_fails(aiter(spoken), came)
    assert failure is None or (failure.stage, failure.provider, failure.retryable) == ("tts", "fake/tts", True)
    return came, "" if failure is None else failure.why


async def test_speech_without_end() -> None:
    """Six characters have 10 s, and two more for each of them."""
    came, why = await speech(Singer(repeat(Spoken(0, TONE))))
    assert "expected at most 22 s of audio for 6 characters, got more" in why
    assert len(came) == 220


async def test_a_long_text_has_a_longest_speech_too() -> None:
    """However much text there is."""
    _, why = await speech(Singer(repeat(Spoken(0, TONE))), text="word " * 1_000)
    assert "expected at most 30 s of audio for 5000 characters" in why


async def test_silence_without_end() -> None:
    """It is no speech, though audio comes."""
    came, why = await speech(Singer(repeat(Spoken(0, SILENCE))))
    assert "expected speech, got 5 s of silence" in why
    assert len(came) == 5


@pytest.mark.parametrize(
    ("text", "sounds", "why"),
    [
        ("Hello.", (SILENCE, SILENCE), "expected speech, got only silence"),
        ("Hello.", (SILENCE, TONE), ""),
        ("Hello.", (TONE, SILENCE), ""),
        (" ... ", (SILENCE,), ""),
    ],
)
async def test_words_are_not_only_silence(text: str, sounds: tuple[Samples, ...], why: str) -> None:
    """A text without words may be a pause."""
    sent = [Spoken(0, each) for each in sounds]
    came, failure = await speech(Singer(iter(sent)), text=text)
    assert came == sent
    assert why in failure
    assert bool(failure) is bool(why)


async def test_pauses_are_speech() -> None:
    """Of any number, as long as each is short."""
    sound = [Spoken(0, each) for _ in range(4) for each in (TONE, SILENCE, SILENCE)]
    assert await speech(Singer(iter(sound))) == (sound, "")


async def test_speech_that_trickles(hands: Hands) -> None:
    """One millisecond of audio three times a second never counts as speech."""
    came, why = await speech(Singer((each for _ in repeat(None) for each in (0.3, Spoken(0, TONE[:24]))), hands))
    assert "expected at least 1000 ms of audio in 15 s, got less" in why
    assert 50 <= len(came) <= 51  # by how 0.3 is rounded


async def test_reports_hide_no_trickle(hands: Hands) -> None:
    """The time before a report counts as the time before audio does."""
    trickle = (0.15, SynthesizerConnected(0), 0.15, Spoken(0, TONE[:24]))
    came, why = await speech(Singer((each for _ in repeat(None) for each in trickle), hands))
    assert "expected at least 1000 ms of audio in 15 s, got less" in why
    assert 50 <= sum(isinstance(each, Spoken) for each in came) <= 51
    assert SynthesizerConnected(0) in came


async def test_a_slow_voice_is_waited_for(hands: Hands) -> None:
    """One that needs ten times as long as its speech lasts, or long to begin."""
    sound = [each for _ in range(40) for each in (1.0, Spoken(0, TONE))]
    came, why = await speech(Singer(iter([40.0, *sound]), hands))
    assert (len(came), why) == (40, "")


async def test_unspoken_words_have_no_times() -> None:
    """A vendor's message may hold any number of them."""
    words = tuple(WordTime("a", i) for i in range(10_000))
    came, why = await speech(Singer(iter([Spoken(0, TONE, words), Spoken(0, TONE, words)])))
    assert ([len(each.words) for each in came if isinstance(each, Spoken)], why) == ([6, 0], "")


# --- the transcriber ------------------------------------------------------------------------------


class Writer:
    """A transcriber that gives these texts."""

    name = "fake/stt"
    capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True)

    def __init__(self, texts: Iterator[TranscriptEvent]) -> None:
        self._texts = texts

    @asynccontextmanager
    async def open(self, transcription: TranscriptionOptions) -> AsyncIterator[TranscriptStream]:
        yield self

    def begin(self, utterance: int) -> None: ...
    def push(self, samples: Any) -> None: ...
    def flush(self, flush: int) -> None: ...

    async def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        for text in self._texts:
            yield text


async def outcome_of(writer: Writer, *, after_s: int) -> tuple[int, str]:
    """Return the number of texts that come after this audio, and why they end."""
    came: list[TranscriptEvent] = []
    async with LimitedTranscriber(writer, ProviderLimits()).open(TranscriptionOptions(model="m")) as stream:
        stream.begin(1)
        stream.push(np.zeros(after_s * 16_000, dtype=np.int16))
        failure = await until_it_fails(aiter(stream), came)
    assert failure is None or (failure.stage, failure.provider, failure.retryable) == ("stt", "fake/stt", True)
    return len(came), "" if failure is None else failure.why


async def test_a_transcript_longer_than_speech_can_be() -> None:
    """Two seconds have 4200 characters at most; an interim transcript that has more is left out."""
    assert await outcome_of(Writer(iter([Interim(1, "w" * 4_200), Final(1, 1, "w" * 4_200)])), after_s=2) == (2, "")
    n, why = await outcome_of(Writer(iter([Interim(1, "w" * 4_201), Final(1, 1, "w" * 4_201)])), after_s=2)
    assert (n, why) == (0, "expected at most 4200 characters for 2 s of audio, got 4201")


async def test_the_transcript_of_a_long_recording() -> None:
    """An hour may have as many words as an hour holds."""
    assert await outcome_of(Writer(iter([Final(1, 1, "word " * 20_000)])), after_s=3_600) == (1, "")


async def test_transcripts_without_end() -> None:
    """Each transcript costs time: excess interim ones are left out, and excess final ones end the stream."""
    interims: list[TranscriptEvent] = [Interim(1, "word")] * 5_000
    assert await outcome_of(Writer(iter([*interims, Final(1, 1, "word")])), after_s=2) == (1_201, "")
    n, why = await outcome_of(Writer(repeat(Final(1, 0, "word"))), after_s=2)
    assert (n, why) == (1_200, "expected at most 1200 transcripts of an utterance, got more")
