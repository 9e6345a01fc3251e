"""Streaming TTS adapters keep the port's promises, against vendors that misbehave, with warm sockets and without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext

import numpy as np
import pytest

from voicepipe.errors import StageRefused
from voicepipe.ports.provider_events import SynthesizerConnected
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Synthesizer, Voice, audio_of
from voicepipe.providers.built_in import factory
from voicepipe.providers.net import connection_pool
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import (
    ScriptedSynthesizerConformance,
    TtsScript,
    events_of,
    outcome,
    sound_of,
    speak,
)
from voicepipe.testing.conformance.waits import LeavesNothing
from voicepipe.testing.fakes import cartesia_tts, elevenlabs_tts, rime_tts, together_tts
from voicepipe.testing.fakes.cues import Garbage, Hold, InBandError, Malformed, NoEnd, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer
from voicepipe.testing.waiting import WAIT_S

VENDORS = {
    "cartesia": (cartesia_tts.FakeCartesia, cartesia_tts.KEY, "sonic-3"),
    "elevenlabs": (elevenlabs_tts.FakeElevenLabs, elevenlabs_tts.KEY, "eleven_flash_v2_5"),
    "rime": (rime_tts.FakeRime, rime_tts.KEY, "coda"),
    "together": (together_tts.FakeTogetherTts, together_tts.KEY, "hexgrad/Kokoro-82M"),
}


@pytest.fixture(params=VENDORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def vendor(kind: str) -> AsyncIterator[FakeWsSynthesizer]:
    async with VENDORS[kind][0]() as vendor:
        yield vendor


@pytest.fixture
def script(vendor: FakeWsSynthesizer) -> TtsScript:
    return vendor.script


@pytest.fixture
def voice(kind: str) -> Voice:
    return Voice(model=VENDORS[kind][2])


def synthesizer_at(kind: str, base_url: str, *, timeout_ms: int, key: str | None = None) -> Synthesizer:
    _, usual_key, model = VENDORS[kind]
    settings = ProviderSettings(
        kind=kind, base_url=base_url, api_key=usual_key if key is None else key, idle_timeout_ms=timeout_ms
    )
    made: Synthesizer = factory(kind, "tts", key="agents.default.tts")(Spec(kind, model), settings)
    return made


@pytest.fixture(params=[False, True], ids=["dialled", "warm"])
async def synthesizer(
    kind: str, vendor: FakeWsSynthesizer, timeout_ms: int, request: pytest.FixtureRequest
) -> AsyncIterator[Synthesizer]:
    async with connection_pool.lifetime() if request.param else nullcontext():
        yield synthesizer_at(kind, vendor.base_url, timeout_ms=timeout_ms)


class TestPort(ScriptedSynthesizerConformance):
    """Its other fixtures are the module's."""

    @pytest.fixture
    def voice(self, kind: str) -> Voice:
        return Voice(model=VENDORS[kind][2])


class TestLiveVoices(LeavesNothing):
    """What all of them do beyond the port's own promises."""

    async def test_turns_share_a_socket_that_was_there(
        self, kind: str, vendor: FakeWsSynthesizer, voice: Voice, timeout_ms: int
    ) -> None:
        """It is dialled when a session begins, and serves turn after turn in contexts of their own."""
        synthesizer = synthesizer_at(kind, vendor.base_url, timeout_ms=timeout_ms)
        async with connection_pool.lifetime():
            with synthesizer.keep_warm(voice):
                await vendor.nth(0)
                for _ in range(3):
                    assert len(sound_of(await speak(synthesizer, voice, "One.", "Two."), 1))
        contexts = [received.question["context"] for received in vendor.script.received]
        if kind != "together":  # whose events name clauses and no turns
            assert len({context.partition(".")[0] for context in contexts}) == 3
        assert [call.peak_contexts > 0 for call in vendor.calls].count(True) == 1

    async def test_the_connection_is_reported_once_before_any_audio(
        self, synthesizer: Synthesizer, voice: Voice
    ) -> None:
        kinds = [type(event) for event in await events_of(synthesizer, voice, "One.", "Two.")]
        assert kinds.index(SynthesizerConnected) == 0
        assert set(kinds[1:]) == {Spoken}

    async def test_words_have_times(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """Each clause's words in their order, from the beginning of the clause."""
        clauses = ("It opens at nine,", "and closes late.")
        spoken_audio = await speak(synthesizer, voice, *clauses)
        for number, clause in enumerate(clauses):
            words = [word for spoken in spoken_audio if spoken.clause == number for word in spoken.words]
            assert [word.word for word in words] == clause.split()[: len(words)]
            assert len(words) >= len(clause.split()) - 1  # the last may be reported with nothing after it
            starts = [word.start_ms for word in words]
            assert starts == sorted(starts)
            assert starts[0] <= 50
            assert starts[-1] <= len(sound_of(spoken_audio, number)) * 1_000 // RATE_HZ

    async def test_clause_that_comes_late(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """All clauses before it have been played, and no audio is due: that is no stall, and it is spoken."""
        async with synthesizer.open(voice) as speech, asyncio.timeout(WAIT_S):
            speech.push("First.")
            sound, n_samples = audio_of(speech), 0
            while n_samples < len(tone("First.")):
                n_samples += len((await anext(sound)).samples)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.4):  # longer than `timeout_ms`
                    await anext(sound)
            speech.push("Second.")
            speech.finish()
            assert len(sound_of([spoken async for spoken in sound], 1)) == len(tone("Second."))

    test_clause_that_comes_late = pytest.mark.parametrize("timeout_ms", [250])(test_clause_that_comes_late)

    async def test_consumer_that_stops_makes_the_vendor_wait(
        self, vendor: FakeWsSynthesizer, synthesizer: Synthesizer, voice: Voice
    ) -> None:
        """Unread audio is not buffered without bound."""
        vendor.script.cue(TtsCue(chunk_bytes=96_000))
        async with synthesizer.open(voice) as speech:
            speech.push("x" * 10_000)  # 400 s of sound, 26 MB as base64: more than loopback's buffers hold
            await anext(audio_of(speech))
            received = await vendor.script.nth(0)
            for _ in range(4_000):  # turns of the loop in which a reader without bound would have read it all
                await asyncio.sleep(0)
            assert not received.ended.is_set()

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            (Malformed(), "expected a message of the vendor's API"),
            (Garbage(), "expected text, got 4 bytes"),
            (NoEnd(after=4_800), r"closed the connection \(1000"),
            (InBandError(message="The voice is hoarse."), r"The voice is hoarse\."),
        ],
    )
    async def test_break_in_the_answer(
        self, vendor: FakeWsSynthesizer, synthesizer: Synthesizer, voice: Voice, fault: Malformed, words: str
    ) -> None:
        """The error is reported, and the next turn speaks, on another socket if need be."""
        vendor.script.cue(TtsCue(fault=fault))
        _, error = await outcome(synthesizer, voice, "Hello there.")
        assert error is not None
        assert re.search(words, error.why)
        assert np.array_equal(sound_of(await speak(synthesizer, voice, "Again."), 0), tone("Again."))

    async def test_answer_without_sound(
        self, vendor: FakeWsSynthesizer, synthesizer: Synthesizer, voice: Voice
    ) -> None:
        """Words were said, and nothing came: that is a failure; of dots it is none."""
        vendor.script.cue(TtsCue(raw=b""))
        _, error = await outcome(synthesizer, voice, "Hello.")
        assert error is not None
        assert "no audio" in str(error)
        vendor.script.cue(TtsCue(raw=b""))
        assert await speak(synthesizer, voice, "...") == []

    async def test_wrong_key(self, kind: str, vendor: FakeWsSynthesizer, voice: Voice, timeout_ms: int) -> None:
        """The error has the package's own text: the vendor's may hold a part of the key."""
        refused = synthesizer_at(kind, vendor.base_url, timeout_ms=timeout_ms, key="wrong")
        _, error = await outcome(refused, voice, "Hello.")
        assert isinstance(error, StageRefused)
        assert (error.status, error.why) == (401, "HTTP 401: the key was refused")

    async def test_speaker_is_cut_in_time(
        self, vendor: FakeWsSynthesizer, synthesizer: Synthesizer, voice: Voice
    ) -> None:
        """No audio of a turn that was cut is played in the next."""
        hold = Hold(after=4_800)
        vendor.script.cue(TtsCue(hold=hold))
        async with synthesizer.open(voice) as speech:
            speech.push("A clause of some length.")
            await anext(audio_of(speech))
        hold.release.set()
        await soon((await vendor.script.nth(0)).gone)
        assert np.array_equal(sound_of(await speak(synthesizer, voice, "Yes?"), 0), tone("Yes?"))
