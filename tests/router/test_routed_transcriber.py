"""A pool of STT providers keeps the port's promises, and loses no word when one of them breaks."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageExpired
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import (
    EndOfTurn,
    Final,
    Interim,
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptEvent,
    TranscriptionOptions,
)
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.replay_buffer import MAX_MS, MAX_UTTERANCES, ReplayBuffer
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.testing.conformance.transcriber import (
    ScriptedTranscriberConformance,
    SttScript,
    TranscriberConformance,
    final,
    push,
)
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, LeavesNothing
from voicepipe.testing.fakes.cues import Hang, HangUp, Status, SttCue
from voicepipe.testing.fakes.ports import FakeTranscriber, FakeTranscriptStream
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.transcriber import REQUEST_STYLE
from voicepipe.testing.waiting import WAIT_S, eventually

SEED = 20_261_121
STREAMS = TranscriberCapabilities(rate_hz=16_000, streams=True, partials=True)


def routed(*transcribers: FakeTranscriber, **options: Any) -> RoutedTranscriber:
    """Return a pool of these transcribers."""
    candidates = tuple(Candidate(spec=transcriber.name) for transcriber in transcribers)
    chosen = RouterOptions(**{"fallback_after_ms": 60_000, **options})
    candidates_with_transcriber = tuple(
        TranscriberCandidate(c, transcriber) for c, transcriber in zip(candidates, transcribers, strict=True)
    )
    return RoutedTranscriber(candidates_with_transcriber, SpeechOrder(candidates, chosen, SharedStats()))


def named(*usual: SttCue | None, **each: Any) -> list[FakeTranscriber]:
    def transcriber(i: int, cue: SttCue | None) -> FakeTranscriber:
        return FakeTranscriber(lambda _: cue, name=f"v{i}/ear", **each)

    return [transcriber(i, cue) for i, cue in enumerate(usual)]


def broken(spec: str) -> StageBroken:
    return StageBroken("stt", provider=spec, why="the test cut it", retryable=True)


async def opened(transcriber: FakeTranscriber) -> FakeTranscriptStream:
    """Its first stream."""

    async def probe() -> FakeTranscriptStream | None:
        return transcriber.streams[0] if transcriber.streams else None

    return await eventually(probe)


@pytest.fixture
def speech() -> Samples:
    return tone("as long as this takes", rate_hz=16_000)


class TestAlone(ScriptedTranscriberConformance):
    @pytest.fixture
    def fake(self, timeout_ms: int) -> FakeTranscriber:
        return FakeTranscriber(lambda _: SttCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    def script(self, fake: FakeTranscriber) -> SttScript:
        script: SttScript = cast("Any", fake.script)
        return script

    @pytest.fixture
    def transcriber(self, fake: FakeTranscriber) -> Transcriber:
        return routed(fake)


class TestBesideOneThatRefuses(TranscriberConformance):
    @pytest.fixture
    def transcriber(self) -> Transcriber:
        return routed(*named(SttCue(fault=Status(503)), SttCue()))


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "asks"])
async def test_an_utterance_is_replayed(speech: Samples, streams: bool) -> None:
    """One breaks while the user speaks: the next gets the utterance from its first sample on."""
    each = TranscriberCapabilities(rate_hz=16_000, streams=streams)
    first, second = named(None, SttCue(text="all of it"), capabilities=each)
    provider_events: list[TranscriptEvent] = []
    async with (
        routed(first, second).open(TranscriptionOptions(model="any")) as stream,
        asyncio.timeout(WAIT_S),
    ):
        texts = asyncio.ensure_future(final(stream, beside=provider_events))
        stream.begin(1)
        push(stream, speech)
        await opened(first)
        first.streams[0].fail(broken(first.name))
        await opened(second)
        push(stream, speech)
        stream.flush(1)
        assert await texts == Final(1, 1, "all of it")
    assert np.array_equal((await second.script.nth(0)).samples, np.concatenate([speech, speech]))
    assert provider_events == [
        ProviderChanged("v1/ear", "continuation", "v0/ear: the test cut it", waited_for="v0/ear")
    ]


async def test_an_expired_connection_is_replaced_by_the_same_transcriber(speech: Samples) -> None:
    """Its vendor ends connections after a while, in mid-utterance too: that is no failure, and no word is lost."""
    transcriber, other = named(None, SttCue(text="heard elsewhere"))
    provider_events: list[TranscriptEvent] = []
    both = routed(transcriber, other)
    async with (
        both.open(TranscriptionOptions(model="any")) as stream,
        asyncio.timeout(WAIT_S),
    ):
        texts = asyncio.ensure_future(final(stream, beside=provider_events))
        stream.begin(1)
        push(stream, speech)
        await opened(transcriber)
        transcriber.script.usual = lambda _: SttCue(text="all of it")
        transcriber.streams[0].fail(StageExpired("stt", provider=transcriber.name, why="too old", retryable=True))
        stream.flush(1)
        assert await texts == Final(1, 1, "all of it")
    assert (len(transcriber.streams), other.streams, provider_events) == (2, [], [])
    assert both._speech_order.stats.breaker_of(transcriber.name).errors == {}


async def test_a_transcriber_that_expires_at_once_is_left(speech: Samples) -> None:
    """A vendor that ends each connection is no use."""
    transcriber, other = named(None, SttCue(text="heard elsewhere"))

    async def fail(number: int) -> None:
        async def probe() -> bool | None:
            return len(transcriber.streams) > number or None

        await eventually(probe)
        transcriber.streams[number].fail(StageExpired("stt", provider=transcriber.name, why="too old", retryable=True))

    async with routed(transcriber, other).open(TranscriptionOptions(model="any")) as stream, asyncio.timeout(WAIT_S):
        texts = asyncio.ensure_future(final(stream))
        stream.begin(1)
        push(stream, speech)
        await fail(0)
        await fail(1)
        stream.flush(1)
        assert await texts == Final(1, 1, "heard elsewhere")


async def test_a_pending_flush_is_repeated(speech: Samples) -> None:
    """Two texts are due when a transcriber breaks: both come from the next, by their numbers."""
    first, second = named(None, SttCue(text="heard"))
    async with routed(first, second).open(TranscriptionOptions(model="any")) as stream:
        for utterance in (1, 2):
            stream.begin(utterance)
            push(stream, speech)
            stream.flush(7)
        await first.script.nth(1)
        first.streams[0].fail(broken(first.name))
        finals = [await final(stream), await final(stream)]
    assert sorted(text.utterance for text in finals) == [1, 2]
    assert {text.flush for text in finals} == {7}


async def test_a_late_text_is_fetched_elsewhere(speech: Samples) -> None:
    """A transcriber that does not answer in time is left for another."""
    first, second = named(SttCue(fault=Hang()), SttCue(text="in time"))
    async with routed(first, second, fallback_after_ms=50).open(TranscriptionOptions(model="any")) as stream:
        stream.begin(1)
        push(stream, speech)
        stream.flush(1)
        assert (await final(stream)).text == "in time"
    assert first.streams[0].left.is_set()


async def test_an_interim_text_is_no_answer(speech: Samples) -> None:
    """It is passed on, and the final one is late all the same."""
    first, second = named(None, SttCue(text="in time"))
    stream_events: list[TranscriptEvent] = []
    async with routed(first, second, fallback_after_ms=50).open(TranscriptionOptions(model="any")) as stream:
        opened_stream = await opened(first)
        stream.begin(1)
        push(stream, speech)
        stream.flush(1)
        opened_stream.emit(Interim(1, "in"))
        async with asyncio.timeout(WAIT_S):
            async for event in stream:
                stream_events.append(event)
                if isinstance(event, Final):
                    break
    assert [event for event in stream_events if isinstance(event, Interim)] == [Interim(1, "in")]
    assert stream_events[-1] == Final(1, 1, "in time")


async def test_what_a_transcriber_reports_is_passed_on() -> None:
    (first,) = named(None)
    async with routed(first).open(TranscriptionOptions(model="any")) as stream, asyncio.timeout(WAIT_S):
        (await opened(first)).emit(EndOfTurn(1, 0.9))
        assert await anext(aiter(stream)) == EndOfTurn(1, 0.9)


async def test_an_utterance_transcriber_gets_no_audio_between_utterances(speech: Samples) -> None:
    (first,) = named(None)
    async with routed(first).open(TranscriptionOptions(model="any")) as stream, asyncio.timeout(WAIT_S):
        opened_stream = await opened(first)
        push(stream, speech)
        assert len(opened_stream.samples) == 0
        stream.begin(1)
        push(stream, speech)
        assert np.array_equal(opened_stream.samples, speech)


async def test_a_text_that_came_is_not_repeated(speech: Samples) -> None:
    """The next transcriber gets the utterance, in case the user goes on, and sends no text before a flush."""
    first, second = named(None, None, capabilities=STREAMS)
    async with routed(first, second).open(TranscriptionOptions(model="any")) as stream:
        stream.begin(1)
        push(stream, speech)
        stream.flush(1)
        (await first.script.nth(0)).answer("hello")
        assert (await final(stream)).text == "hello"
        first.streams[0].fail(broken(first.name))
        await opened(second)
        second.streams[0].emit(Final(1, 0, "hallo"))
        second.streams[0].emit(Final(2, 0, "behind it"))
        assert (await final(stream)).text == "behind it"
        push(stream, speech)
        stream.flush(2)
        (await second.script.nth(0)).answer("hello again")
        assert await final(stream) == Final(1, 2, "hello again")


async def test_rates_may_differ(speech: Samples) -> None:
    """The pool takes audio at the highest rate, and each transcriber gets its own rate."""
    first = FakeTranscriber(lambda _: SttCue(fault=HangUp()), name="v0/ear")
    wide = TranscriberCapabilities(rate_hz=24_000, streams=True, short_words=False)
    second = FakeTranscriber(lambda _: SttCue(text="hi"), name="v1/ear", capabilities=wide)
    transcriber = routed(first, second)
    assert transcriber.capabilities == TranscriberCapabilities(rate_hz=24_000, streams=True, short_words=False)
    sound = tone("as long as this takes", rate_hz=24_000)
    async with transcriber.open(TranscriptionOptions(model="any")) as stream:
        stream.begin(1)
        push(stream, sound)
        stream.flush(1)
        assert (await final(stream)).text == "hi"
    narrow = (await first.script.nth(0)).samples
    assert abs(len(narrow) * 3 // 2 - len(sound)) < 24_000 // 20
    assert np.array_equal((await second.script.nth(0)).samples, sound)


async def test_an_utterance_transcriber_gets_the_audio_before_it(speech: Samples) -> None:
    """Beside a transcriber of the whole call, one that works per utterance gets the first word, said before speech was
    noticed.
    """
    first = FakeTranscriber(lambda _: SttCue(fault=HangUp()), name="v0/ear", capabilities=STREAMS)
    second = FakeTranscriber(lambda _: SttCue(), name="v1/ear")
    async with routed(first, second).open(TranscriptionOptions(model="any")) as stream:
        push(stream, speech[:4_000])
        stream.begin(1)
        push(stream, speech[4_000:])
        stream.flush(1)
        await final(stream)
    assert np.array_equal((await second.script.nth(0)).samples, speech)


async def test_all_fail(speech: Samples) -> None:
    """The stream is over, with the last one's error."""
    transcriber = routed(*named(SttCue(fault=Status(503)), SttCue(fault=HangUp())))
    async with transcriber.open(TranscriptionOptions(model="any")) as stream:
        stream.begin(1)
        stream.flush(1)
        with pytest.raises(StageBroken, match="v1/ear"):
            await final(stream)


async def test_a_session_survives_more_failures_than_it_has_transcribers(speech: Samples) -> None:
    """One that failed long ago may serve again."""
    first, second = named(None, None)
    provider_events: list[TranscriptEvent] = []
    async with routed(first, second).open(TranscriptionOptions(model="any")) as stream:
        # Each but the first utterance is also flushed at the transcriber before, which breaks just then.
        for utterance, (transcriber, n) in enumerate(((first, 0), (second, 0), (first, 2))):
            stream.begin(utterance)
            push(stream, speech)
            stream.flush(1)
            (await transcriber.script.nth(n)).answer(f"text {utterance}")
            assert (await final(stream, beside=provider_events)).text == f"text {utterance}"
            transcriber.streams[-1].fail(broken(transcriber.name))
    assert [each.provider for each in provider_events if isinstance(each, ProviderChanged)][:2] == ["v1/ear", "v0/ear"]


class TestCancellation(LeavesNothing):
    async def test_a_hundred_sessions_end_at_any_point(self, speech: Samples) -> None:
        """Whichever transcriber is in use, fails or steps in just then: every opened transcriber is closed."""
        dice = random.Random(SEED)
        faults = (None, Status(503), HangUp())
        transcribers = [
            FakeTranscriber(lambda _: SttCue(fault=dice.choice(faults)), name=f"v{i}/ear", capabilities=capabilities)
            for i, capabilities in enumerate((STREAMS, REQUEST_STYLE))
        ]
        for _ in range(100):
            async with routed(*transcribers).open(TranscriptionOptions(model="any")) as stream:
                for utterance in range(dice.randrange(3)):
                    stream.begin(utterance)
                    push(stream, speech[:3_200])
                    stream.flush(1)
                    for _ in range(dice.randrange(20)):
                        await asyncio.sleep(0)
        assert all(opened.left.is_set() for transcriber in transcribers for opened in transcriber.streams)


def test_buffered_audio_is_bounded() -> None:
    """The oldest goes, and is counted."""
    buffer = ReplayBuffer(16_000, leads=True)
    buffer.begin(1)
    for _ in range(MAX_MS // 100 + 5):
        buffer.push(np.zeros(1_600, dtype=np.int16))
    (utterance,) = buffer
    assert len(utterance.sound) == 16 * MAX_MS
    assert buffer.n_dropped_samples == 5 * 1_600


def test_pending_utterances_are_bounded() -> None:
    """The oldest is no longer waited for, and its audio is dropped."""
    buffer = ReplayBuffer(16_000, leads=False)
    for number in range(MAX_UTTERANCES + 2):
        buffer.begin(number)
        buffer.push(np.full(10, number, dtype=np.int16))
        buffer.flush(1)
    assert [each.number for each in buffer] == list(range(2, MAX_UTTERANCES + 2))
    assert buffer._n_samples == 10 * MAX_UTTERANCES


def test_a_text_that_is_requested_before_any_utterance_is_not_waited_for() -> None:
    """And the audio before the request is none of the next utterance's."""
    buffer = ReplayBuffer(16_000, leads=True)
    buffer.push(np.ones(10, dtype=np.int16))
    buffer.flush(1)
    assert not buffer.waits
    buffer.begin(1)
    assert buffer.current is not None
    assert len(buffer.current.lead_sound) == 0
