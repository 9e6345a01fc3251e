"""A provider that stands alone keeps its port's promises while it is watched, and what is wrong with it is told of."""

from __future__ import annotations

from typing import Any, cast

import pytest

from voicepipe import clock
from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.router.alone import LoneEar, LoneVoice
from voicepipe.router.health import Health, healths
from voicepipe.router.pool import Experience
from voicepipe.router.speed import Speed
from voicepipe.stages.synthesizer import Synthesizer, Voice
from voicepipe.stages.transcriber import Hearing, Transcriber
from voicepipe.testing.conformance.promptness import PATIENT_MS
from voicepipe.testing.conformance.synthesizer import ScriptedSynthesizerConformance, TtsDesk, speak
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttDesk, final, push
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.stages import FakeSynthesizer, FakeTranscriber
from voicepipe.testing.fakes.tone import tone


def of(experience: Experience, stage: Any) -> Health:
    """How the only one is doing."""
    (found,) = healths(experience, stage, clock.monotonic_ms())
    return found


class TestEar(ScriptedTranscriberConformance):
    @pytest.fixture
    def patience_ms(self) -> int:
        return PATIENT_MS

    @pytest.fixture
    def fake(self, patience_ms: int) -> FakeTranscriber:
        return FakeTranscriber(lambda _: SttCue(), idle_timeout_ms=patience_ms)

    @pytest.fixture
    def desk(self, fake: FakeTranscriber) -> SttDesk:
        desk: SttDesk = cast("Any", fake.desk)
        return desk

    @pytest.fixture
    def transcriber(self, fake: FakeTranscriber) -> Transcriber:
        return LoneEar(fake, Experience())


class TestVoice(ScriptedSynthesizerConformance):
    @pytest.fixture
    def patience_ms(self) -> int:
        return PATIENT_MS

    @pytest.fixture
    def fake(self, patience_ms: int) -> FakeSynthesizer:
        return FakeSynthesizer(TtsCue(), idle_timeout_ms=patience_ms)

    @pytest.fixture
    def desk(self, fake: FakeSynthesizer) -> TtsDesk:
        desk: TtsDesk = cast("Any", fake.desk)
        return desk

    @pytest.fixture
    def synthesizer(self, fake: FakeSynthesizer) -> Synthesizer:
        return LoneVoice(fake, Experience())


async def test_a_voice_whose_key_is_refused_needs_a_person_until_it_sounds() -> None:
    fake, experience = FakeSynthesizer(TtsCue(fault=Status(401)), name="v/voice"), Experience()
    voice = LoneVoice(fake, experience)
    with pytest.raises((StageRefused, ExceptionGroup)):
        await speak(voice, Voice(model="any"), "Hello.")
    told = of(experience, "tts")
    assert (told.spec, told.stage, told.state, told.n_opened) == ("v/voice", "tts", "open", 1)
    assert told.alert.startswith("401: ")
    fake.desk.cue(TtsCue())
    await speak(voice, Voice(model="any"), "Hello.")
    assert of(experience, "tts").alert == ""


async def test_an_ear_that_breaks_is_counted_once_and_is_well_with_its_next_text() -> None:
    cues = [SttCue(fault=Status(403)), SttCue(text="all is well")]
    ear, experience = FakeTranscriber(lambda _: cues.pop(0), name="v/ear"), Experience()
    lone = LoneEar(ear, experience)

    async def hear() -> str:
        async with lone.open(Hearing(model="any")) as stream:
            stream.begin(1)
            push(stream, tone("so long", rate_hz=16_000))
            stream.flush(1)
            return (await final(stream)).text

    with pytest.raises(StageError):
        await hear()
    told = of(experience, "stt")
    assert (told.alert[:5], told.n_opened) == ("403: ", 1)
    assert await hear() == "all is well"
    assert of(experience, "stt").alert == ""


async def test_what_another_stage_did_is_not_held_against_a_voice() -> None:
    """A model's failure ends the speech as well."""
    experience = Experience()
    lone = LoneVoice(FakeSynthesizer(TtsCue(), name="v/voice"), experience)
    async with lone.open(Voice(model="any")):
        assert of(experience, "tts").in_flight == 1
    with pytest.raises(StageBroken):
        async with lone.open(Voice(model="any")):
            raise StageBroken("llm", provider="m/m", why="cut", retryable=True)
    assert (of(experience, "tts").state, of(experience, "tts").in_flight) == ("closed", 0)
    assert experience.breaker_of("v/voice").is_troubled is False


def test_speed_is_that_of_the_latest_answers_by_their_tokens() -> None:
    """What came at once, or has no count, tells nothing."""
    speed = Speed()
    speed.note(40, 5)
    speed.note(0, 900)
    speed.note(1, 900)
    assert (speed.itl_ms, speed.tokens_per_s) == (None, None)
    speed.note(51, 1_000)
    assert (speed.itl_ms, speed.tokens_per_s) == (20, 50)
    for _ in range(200):
        speed.note(101, 1_000)
    assert speed.itl_ms == pytest.approx(10, rel=0.01)
    assert speed.tokens_per_s == pytest.approx(100, rel=0.01)
