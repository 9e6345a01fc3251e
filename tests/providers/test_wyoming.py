"""Wyoming transcribers and synthesizers: the ports' promises, what is sent, and how the answers are read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from voicepipe.audio.resample import Resampler
from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice
from voicepipe.ports.transcriber import Final, Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.built_in import factory
from voicepipe.providers.wyoming.stt import open_transcriber
from voicepipe.providers.wyoming.tts import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import (
    ScriptedSynthesizerConformance,
    TtsScript,
    outcome,
    sound_of,
    speak,
)
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttScript, final, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.wyoming import FakeWyoming, event
from voicepipe.testing.waiting import WAIT_S

SECOND = tone("x" * 25, rate_hz=16_000)
NO_RETRY_AFTER = [(400, None, False), (401, None, False), (404, None, False), (429, None, True), (503, None, True)]
"""Wyoming has no way to say when to come again."""

refusals = pytest.mark.parametrize(("status", "retry_after", "retryable"), NO_RETRY_AFTER)


def settings(vendor: FakeWyoming, timeout_ms: int = LONG_TIMEOUT_MS) -> ProviderSettings:
    return ProviderSettings(kind="wyoming", base_url=vendor.base_url, idle_timeout_ms=timeout_ms)


class _Wyoming:
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeWyoming]:
        async with FakeWyoming() as vendor:
            yield vendor


class TestWyomingTranscriber(_Wyoming, ScriptedTranscriberConformance):
    @pytest.fixture
    def script(self, vendor: FakeWyoming) -> SttScript:
        return vendor.stt

    @pytest.fixture
    def transcriber(self, vendor: FakeWyoming, timeout_ms: int) -> Transcriber:
        return open_transcriber(Spec("piper", "default"), settings(vendor, timeout_ms))

    @refusals
    async def test_refusal(
        self,
        transcriber: Transcriber,
        script: SttScript,
        transcription: TranscriptionOptions,
        speech: Samples,
        status: int,
        retry_after: str | None,
        retryable: bool,
    ) -> None:
        """An error with a status says so."""
        await super().test_refusal(transcriber, script, transcription, speech, status, retry_after, retryable)


class TestWyomingSynthesizer(_Wyoming, ScriptedSynthesizerConformance):
    @pytest.fixture
    def script(self, vendor: FakeWyoming) -> TtsScript:
        return vendor.tts

    @pytest.fixture
    def synthesizer(self, vendor: FakeWyoming, timeout_ms: int) -> Synthesizer:
        return open_synthesizer(Spec("piper", "default"), settings(vendor, timeout_ms))

    @refusals
    async def test_refusal(
        self,
        synthesizer: Synthesizer,
        script: TtsScript,
        voice: Voice,
        status: int,
        retry_after: str | None,
        retryable: bool,
    ) -> None:
        """An error with a status says so."""
        await super().test_refusal(synthesizer, script, voice, status, retry_after, retryable)


@pytest.fixture
async def vendor() -> AsyncIterator[FakeWyoming]:
    async with FakeWyoming() as vendor:
        yield vendor


def test_registry_finds_both() -> None:
    assert factory("wyoming", "stt", key="agents.default.stt") is open_transcriber
    assert factory("wyoming", "tts", key="agents.default.tts") is open_synthesizer


@pytest.mark.parametrize("base_url", ["", "ws://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://:10300"])
@pytest.mark.parametrize("make", [open_transcriber, open_synthesizer])
def test_wrong_address(make: Callable[[Spec, ProviderSettings], object], base_url: str) -> None:
    with pytest.raises(ConfigError, match=r'providers\.home\.base_url: expected "tcp://HOST:PORT"'):
        make(Spec("home", "default"), ProviderSettings(kind="wyoming", base_url=base_url))


@pytest.mark.parametrize(
    ("transcription", "question"),
    [
        (TranscriptionOptions(model="default"), {}),
        (
            TranscriptionOptions(model="small", language="de-CH", prompt="Voicepipe, Zürich HB"),
            {"name": "small", "language": "de", "transcript_terms": ["Voicepipe", "Zürich HB"]},
        ),
    ],
)
async def test_stt_requests(
    vendor: FakeWyoming, transcription: TranscriptionOptions, question: dict[str, object]
) -> None:
    transcriber = open_transcriber(Spec("home", transcription.model), settings(vendor))
    async with transcriber.open(transcription) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "what time is it")
    assert vendor.stt.received[0].question == question
    assert np.array_equal(vendor.stt.received[0].samples, SECOND)


@pytest.mark.parametrize(
    ("voice", "who"),
    [
        (Voice(model="default"), None),
        (Voice(model="default", language="de-CH"), {"language": "de_CH"}),
        (Voice(model="en_US-lessac-medium"), {"name": "en_US-lessac-medium"}),
        (Voice(model="en_US-lessac-medium", voice="en_GB-alan-low"), {"name": "en_GB-alan-low"}),
    ],
)
async def test_tts_requests(vendor: FakeWyoming, voice: Voice, who: dict[str, str] | None) -> None:
    synthesizer = open_synthesizer(Spec("home", voice.model), settings(vendor))
    await speak(synthesizer, voice, "Hello.")
    assert vendor.tts.received[0].question == {"text": "Hello."} | ({"voice": who} if who else {})


async def test_other_rates_become_the_ports(vendor: FakeWyoming) -> None:
    """Piper speaks at 22.05 kHz or 16."""
    vendor.tts.cue(TtsCue(rate_hz=22_050, chunk_bytes=777))
    synthesizer = open_synthesizer(Spec("home", "default"), settings(vendor))
    next_text = await speak(synthesizer, Voice(model="default"), "A clause.")
    resampler = Resampler(22_050, RATE_HZ)
    whole = resampler.push(tone("A clause.", rate_hz=22_050))
    assert np.array_equal(sound_of(next_text, 0), np.concatenate([whole, resampler.flush()]))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (event("transcript", {}), "expected a transcript with a text"),
        (b"[1]\n", "expected a Wyoming event"),
        (b'{"type": "transcript", "data_length": -1}\n', "expected a Wyoming event"),
        (b'{"type": "transcript", "payload_length": 99999999}\n', "expected a Wyoming event"),
        (b'{"type": "transcript", "data_length": 3}\n[1]', "expected a Wyoming event"),
        (b'{"type": "transcript", "data_length": 9}\n{}', "the connection was cut"),
    ],
)
async def test_answer_that_breaks(vendor: FakeWyoming, raw: bytes, why: str) -> None:
    vendor.stt.cue(SttCue(raw=raw))
    transcriber = open_transcriber(Spec("home", "default"), settings(vendor))
    async with transcriber.open(TranscriptionOptions(model="default")) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        with pytest.raises(StageBroken, match=why):
            await final(stream)


async def test_sound_of_another_kind(vendor: FakeWyoming) -> None:
    """It is refused, and not played as noise."""
    vendor.tts.cue(TtsCue(rate_hz=4_000))
    synthesizer = open_synthesizer(Spec("home", "default"), settings(vendor))
    _, error = await outcome(synthesizer, Voice(model="default"), "Hello.")
    assert isinstance(error, StageBroken)
    assert error.why == "expected 16-bit mono sound, got 2 bytes a sample, 1 channels, 4000 Hz"


async def test_no_server() -> None:
    """The text says so."""
    async with FakeWyoming() as vendor:
        gone = settings(vendor)
    async with open_transcriber(Spec("home", "default"), gone).open(TranscriptionOptions(model="default")) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        with pytest.raises(StageError, match="is it running"):
            await final(stream)


async def test_error_with_a_status(vendor: FakeWyoming) -> None:
    vendor.stt.cue(SttCue(fault=Status(503, "loading")))
    async with open_transcriber(Spec("home", "default"), settings(vendor)).open(
        TranscriptionOptions(model="d")
    ) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(StageRefused, match="loading"):
                await final(stream)


async def test_cancellation(vendor: FakeWyoming) -> None:
    """A hundred turns, each cut at a random point, leave no connection at the server."""
    dice = random.Random(20_261_121)
    transcriber = open_transcriber(Spec("home", "default"), settings(vendor))
    synthesizer = open_synthesizer(Spec("home", "default"), settings(vendor))
    begun = asyncio.Event()

    async def turn() -> None:
        async with (
            transcriber.open(TranscriptionOptions(model="default")) as stream,
            synthesizer.open(Voice(model="default")) as speech,
        ):
            begun.set()
            stream.begin(1)
            push(stream, SECOND)
            stream.flush(1)
            await final(stream)
            speech.push("A clause.")
            speech.push("And another one.")
            async for _ in speech:
                pass

    for _ in range(100):
        begun.clear()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(turn())
            await begun.wait()
            for _ in range(dice.randrange(80)):
                await asyncio.sleep(0)
            task.cancel()
    for received in (*vendor.stt.received, *vendor.tts.received):
        await soon(received.ended)
    assert len(vendor.stt.received) > 10
    assert vendor.tts.received
