"""A single provider keeps its port's promises while the router watches it, and its faults are reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from voicepipe import clock
from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions
from voicepipe.router.health import Health, healths
from voicepipe.router.latency_stats import OutputSpeed
from voicepipe.router.pool import SharedStats
from voicepipe.router.single import SingleSynthesizer, SingleTranscriber
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsScript, speak
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttScript, final, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, FakeTranscriber
from voicepipe.testing.fakes.tone import tone


def of(stats: SharedStats, stage: Any) -> Health:
    """How the only one is doing."""
    (found,) = healths(stats, stage, clock.monotonic_ms())
    return found


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
        return SingleTranscriber(fake, SharedStats())


class TestVoice(ScriptedSynthesizerConformance):
    @pytest.fixture
    def timeout_ms(self) -> int:
        return LONG_TIMEOUT_MS

    @pytest.fixture
    def fake(self, timeout_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=timeout_ms)

    @pytest.fixture
    def script(self, fake: FakeSynthesizer) -> TtsScript:
        script: TtsScript = cast("Any", fake.script)
        return script

    @pytest.fixture
    def synthesizer(self, fake: FakeSynthesizer) -> Synthesizer:
        return SingleSynthesizer(fake, SharedStats())


async def test_a_voice_whose_key_is_refused_needs_a_person_until_it_sounds() -> None:
    fake, stats = FakeSynthesizer(TtsCue(fault=Status(401)), name="v/voice"), SharedStats()
    voice = SingleSynthesizer(fake, stats)
    with pytest.raises((StageRefused, ExceptionGroup)):
        await speak(voice, Voice(model="any"), "Hello.")
    row = of(stats, "tts")
    assert (row.spec, row.stage, row.state, row.n_opened) == ("v/voice", "tts", "open", 1)
    assert row.alert.startswith("401: ")
    fake.script.cue(TtsCue())
    await speak(voice, Voice(model="any"), "Hello.")
    assert of(stats, "tts").alert == ""


async def test_a_broken_transcriber_counts_once_and_recovers_with_its_next_text() -> None:
    cues = [SttCue(fault=Status(403)), SttCue(text="all is well")]
    transcriber, stats = FakeTranscriber(lambda _: cues.pop(0), name="v/ear"), SharedStats()
    lone = SingleTranscriber(transcriber, stats)

    async def transcribe() -> str:
        async with lone.open(TranscriptionOptions(model="any")) as stream:
            stream.begin(1)
            push(stream, tone("so long", rate_hz=16_000))
            stream.flush(1)
            return (await final(stream)).text

    with pytest.raises(StageError):
        await transcribe()
    row = of(stats, "stt")
    assert (row.alert[:5], row.n_opened) == ("403: ", 1)
    assert await transcribe() == "all is well"
    assert of(stats, "stt").alert == ""


async def test_a_stream_from_before_does_not_undo_the_failure_of_another() -> None:
    """A session that began before a key was revoked is transcribed on; new ones are not."""
    transcriber, stats = FakeTranscriber(name="v/ear"), SharedStats()
    options = TranscriptionOptions(model="any")
    async with SingleTranscriber(transcriber, stats).open(options) as stream:
        await asyncio.sleep(0.002)  # the instants differ, in ms
        refused = StageRefused("stt", provider="v/ear", why="no", retryable=False, status=403)
        stats.breaker_of("v/ear").failed(refused, clock.monotonic_ms())
        transcriber.streams[0].emit(Final(1, 1, "all is well"))
        assert await anext(aiter(stream)) == Final(1, 1, "all is well")
    assert (of(stats, "stt").alert, of(stats, "stt").state) == ("403: no", "open")


async def test_what_another_stage_did_is_not_held_against_a_voice() -> None:
    """A model's failure ends the speech as well."""
    stats = SharedStats()
    lone = SingleSynthesizer(FakeSynthesizer(TtsCue(), name="v/voice"), stats)
    async with lone.open(Voice(model="any")):
        assert of(stats, "tts").in_flight == 1
    with pytest.raises(StageBroken):
        async with lone.open(Voice(model="any")):
            raise StageBroken("llm", provider="m/m", why="cut", retryable=True)
    assert (of(stats, "tts").state, of(stats, "tts").in_flight) == ("closed", 0)
    assert stats.breaker_of("v/voice").is_tripped is False


def test_speed_is_that_of_the_latest_answers_by_their_tokens() -> None:
    """Answers that came at once, or have no token count, don't count."""
    speed = OutputSpeed()
    speed.record(40, 5)
    speed.record(0, 900)
    speed.record(1, 900)
    assert (speed.itl_ms, speed.tokens_per_s) == (None, None)
    speed.record(51, 1_000)
    assert (speed.itl_ms, speed.tokens_per_s) == (20, 50)
    for _ in range(200):
        speed.record(101, 1_000)
    assert speed.itl_ms == pytest.approx(10, rel=0.01)
    assert speed.tokens_per_s == pytest.approx(100, rel=0.01)


class Unopened(FakeSynthesizer):
    """It fails before there is anything to speak with."""

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        raise StageRefused("tts", provider=self.name, why="HTTP 401", retryable=False, status=401)
        yield


async def test_a_provider_that_cannot_be_opened_is_observed() -> None:
    stats = SharedStats()
    voice = SingleSynthesizer(Unopened(name="v/voice"), stats)
    with pytest.raises(StageRefused):
        async with voice.open(Voice(model="any")):
            pytest.fail("it was opened")
    row = of(stats, "tts")
    assert (row.state, row.alert, row.in_flight) == ("open", "401: HTTP 401", 0)


async def test_an_interim_text_is_no_recovery() -> None:
    """A transcriber has recovered when an utterance is transcribed to its end."""
    transcriber, stats = FakeTranscriber(name="v/ear"), SharedStats()
    stats.breaker_of("v/ear").failed(StageRefused("stt", provider="v/ear", why="no", retryable=False, status=403), 0.0)
    async with SingleTranscriber(transcriber, stats).open(TranscriptionOptions(model="any")) as stream:
        for text, alert in ((Interim(1, "all"), "403: no"), (Final(1, 1, "all is well"), "")):
            transcriber.streams[0].emit(text)
            assert await anext(aiter(stream)) == text
            assert of(stats, "stt").alert == alert
