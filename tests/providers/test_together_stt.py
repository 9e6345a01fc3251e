"""The transcriber at Together: the port's promises, what it sends, and how it reads the vendor's messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions
from voicepipe.providers.built_in import factory
from voicepipe.providers.together.stt import MIN_MS, open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript, final, next_text, push
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.together_stt import KEY, FakeTogetherStt, completed, delta, failed
from voicepipe.testing.fakes.tone import tone

SPEC = Spec("together", "openai/whisper-large-v3")
TRANSCRIPTION = TranscriptionOptions(model="openai/whisper-large-v3", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]


class TestTogetherTranscriber(LiveTranscriberConformance, TranscriberCancellation):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeTogetherStt]:
        async with FakeTogetherStt() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeTogetherStt) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeTogetherStt, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(kind="together", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms)
        return open_transcriber(SPEC, settings)


@pytest.fixture
async def vendor() -> AsyncIterator[FakeTogetherStt]:
    async with FakeTogetherStt() as vendor:
        yield vendor


@pytest.fixture
def make_transcriber(
    vendor: FakeTogetherStt, transcriber_factory: Callable[..., Callable[..., Transcriber]]
) -> MakeTranscriber:
    return transcriber_factory(SPEC, vendor.base_url, kind="together", key=KEY)


def test_registry_finds_it() -> None:
    assert factory("together", "stt", key="stt") is open_transcriber


async def test_handshake_switches_the_vendors_own_turns_off(
    vendor: FakeTogetherStt, make_transcriber: MakeTranscriber
) -> None:
    async with make_transcriber(stt_extra='{"language": "en"}', tts_voice="tara").open(TRANSCRIPTION):
        call = await vendor.nth(0)
    assert dict(call.query) == {
        "model": "openai/whisper-large-v3",
        "input_audio_format": "pcm_s16le_16000",
        "turn_detection": "none",
        "language": "en",
    }


async def test_delta_replaces_the_one_before_it(vendor: FakeTogetherStt, make_transcriber: MakeTranscriber) -> None:
    """With the text in `delta` as the docs have it, or in `transcript` as pipecat reads it."""
    vendor.script.usual = None
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        call = await vendor.nth(0)
        stream.begin(1)
        push(stream, SECOND)
        await call.send(delta("Book"))
        assert await next_text(stream) == Interim(1, "Book")
        kind = "conversation.item.input_audio_transcription.delta"
        await call.send(json.dumps({"type": kind, "transcript": "Look at"}))
        assert await next_text(stream) == Interim(1, "Look at")
        await call.send(json.dumps({"type": "novelty"}))
        stream.flush(1)
        await vendor.script.nth(0)
        await call.send(completed("Look at this."))
        assert await next_text(stream) == Final(1, 1, "Look at this.")


async def test_audio_after_the_last_flush_belongs_to_no_utterance(
    vendor: FakeTogetherStt, make_transcriber: MakeTranscriber
) -> None:
    """No message clears the vendor's buffer: it is committed, and its text is dropped."""
    vendor.script.cue(SttCue(text="Yes."), SttCue(text="(cough)"), SttCue(text="No."))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND[:160])
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "No.")
    last = (await vendor.script.nth(2)).samples[-MIN_MS * 16 :]
    assert np.array_equal(last[:160], SECOND[:160])
    assert not last[160:].any()


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (failed("The audio is broken."), StageBroken, r"The audio is broken\."),
        (failed("Invalid API key provided", code="invalid_api_key"), StageRefused, "the key was refused"),
        ('{"type": "error", "error": {"message": "Overloaded."}}', StageBroken, r"Overloaded\."),
        ("[]", StageBroken, "expected a message of the vendor's API"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeTogetherStt, make_transcriber: MakeTranscriber, message: str, kind: type[Exception], words: str
) -> None:
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        await (await vendor.nth(0)).send(message)
        with pytest.raises(kind, match=words):
            await next_text(stream)


def test_wrong_option(make_transcriber: MakeTranscriber) -> None:
    with pytest.raises(ConfigError, match=r"providers\.together\.colour: unknown for kind together"):
        make_transcriber(colour="red")
