"""The Inworld transcriber: the port's promises, what it sends, and how it reads the vendor's messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.inworld import stt
from voicepipe.providers.inworld.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.cancellation import TranscriberCancellation
from voicepipe.testing.conformance.streaming_transcriber import LiveTranscriberConformance
from voicepipe.testing.conformance.transcriber import SttScript, final, next_text, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.inworld_stt import KEY, FakeInworldStt, error, transcription, usage
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.values import replace

SPEC = Spec("inworld", "inworld-stt-1")
TRANSCRIPTION = TranscriptionOptions(model="inworld-stt-1", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]


class TestInworldTranscriber(LiveTranscriberConformance, TranscriberCancellation):
    @pytest.fixture
    async def vendor(self) -> AsyncIterator[FakeInworldStt]:
        async with FakeInworldStt() as vendor:
            yield vendor

    @pytest.fixture
    def script(self, vendor: FakeInworldStt) -> SttScript:
        return vendor.script

    @pytest.fixture
    def transcriber(self, vendor: FakeInworldStt, timeout_ms: int) -> Transcriber:
        settings = ProviderSettings(kind="inworld", base_url=vendor.base_url, api_key=KEY, idle_timeout_ms=timeout_ms)
        return open_transcriber(SPEC, settings)


@pytest.fixture
async def vendor() -> AsyncIterator[FakeInworldStt]:
    """A vendor that says only what the test says."""
    async with FakeInworldStt() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeInworldStt) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""

    def make(*, api_key: str = KEY, spec: Spec = SPEC, **options: str) -> Transcriber:
        settings = ProviderSettings(
            kind="inworld",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=LONG_TIMEOUT_MS,
            options=tuple(options.items()),
        )
        return open_transcriber(spec, settings)

    return make


@asynccontextmanager
async def calling(
    vendor: FakeInworldStt, transcriber: Transcriber, transcription: TranscriptionOptions = TRANSCRIPTION
) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """Open a configured stream, and the vendor's end of it."""
    async with transcriber.open(transcription) as stream:
        call = await vendor.nth(0)
        await call.until(lambda: bool(call.texts))
        yield stream, call


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The built-in name leads here, for the one model whose turns can be ended."""
    assert factory("inworld", "stt", key="agents.default.stt") is open_transcriber
    settings = ProviderSettings(kind="inworld", base_url="ws://127.0.0.1:1")
    capabilities = open_transcriber(SPEC, settings).capabilities
    assert (capabilities.rate_hz, capabilities.streams, capabilities.partials, capabilities.finalize) == (
        16_000,
        False,
        True,
        True,
    )
    with pytest.raises(ConfigError, match=r"inworld/soniox/stt-rt-v4: expected inworld/inworld-stt-1"):
        open_transcriber(Spec("inworld", "soniox/stt-rt-v4"), settings)


async def test_how_to_listen(vendor: FakeInworldStt, make_transcriber: MakeTranscriber) -> None:
    """Turn detection is off; terms that the vendor refuses are left out."""
    transcription = TranscriptionOptions(model="inworld-stt-1", language="de-CH", prompt="Voicepipe, A/B, Zürich HB")
    transcriber = make_transcriber(stt_extra='{"voiceProfileConfig": {"enableVoiceProfile": true}}')
    async with calling(vendor, transcriber, transcription) as (_, call):
        pass
    assert call.headers["Authorization"] == f"Basic {KEY}"
    assert json.loads(call.texts[0]) == {
        "transcribeConfig": {
            "modelId": "inworld/inworld-stt-1",
            "audioEncoding": "LINEAR16",
            "sampleRateHertz": 16_000,
            "numberOfChannels": 1,
            "language": "de-CH",
            "inworldSttV1Config": {"vadThreshold": 0},
            "prompts": ["Voicepipe", "Zürich HB"],
            "voiceProfileConfig": {"enableVoiceProfile": True},
        }
    }


def test_wrong_option(make_transcriber: MakeTranscriber) -> None:
    with pytest.raises(ConfigError, match=r"providers\.inworld\.tier: unknown for kind inworld"):
        make_transcriber(tier="x")


async def test_wrong_key(vendor: FakeInworldStt, make_transcriber: MakeTranscriber) -> None:
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.why) == (401, "HTTP 401: the key was refused")


async def test_short_word_is_filled_up(vendor: FakeInworldStt, make_transcriber: MakeTranscriber) -> None:
    vendor.script.cue(SttCue(text="No."))
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        stream.push(SECOND[:320])
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "No.")
        assert np.array_equal(call.samples[:320], SECOND[:320])
        assert not call.samples[320:].any()


async def test_rest_of_an_utterance_is_no_part_of_the_next(
    vendor: FakeInworldStt, make_transcriber: MakeTranscriber
) -> None:
    """The vendor can't drop audio: the turn is ended, and its text, empty or not, is ignored."""
    vendor.script.cue(SttCue(text="Yes."), SttCue(text=""), SttCue(text="No."))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        stream.push(SECOND[:1_600])
        stream.begin(2)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "No.")


async def test_keep_alive_and_orderly_close(
    vendor: FakeInworldStt, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence between utterances; leaving says so, and closes."""
    monkeypatch.setattr(stt, "LINE", replace(stt.LINE, keep_alive_ms=10))
    async with calling(vendor, make_transcriber()) as (_, call):
        await call.until(lambda: call.received_ms >= 40)
    async with promptly():
        await call.closed.wait()
    assert not call.samples.any()
    assert (call.controls[-1], call.close_code) == ("closeStream", 1000)


# --- what is transcribed --------------------------------------------------------------------------


async def test_utterance_as_it_goes(vendor: FakeInworldStt, make_transcriber: MakeTranscriber) -> None:
    """Partial texts, a turn that got too long for the vendor, and the flush answered by the rest."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(transcription("book a"))
        assert await next_text(stream) == Interim(1, "book a")
        await call.send(transcription("Book a table", final=True))
        assert await next_text(stream) == Interim(1, "Book a table")
        stream.flush(1)
        await vendor.script.nth(0)
        await call.send(transcription("for two.", final=True))
        assert await next_text(stream) == Final(1, 1, "Book a table for two.")


@pytest.mark.parametrize(
    "message",
    [
        usage(),
        '{"result": {"speechStarted": {"startTimeMs": 1250, "confidence": 0.95}}}',
        '{"result": {"speechStopped": {"silenceDurationMs": 750}}}',
        '{"result": {"voiceProfile": {}}}',
        "{}",
    ],
)
async def test_message_that_says_nothing_to_us(
    vendor: FakeInworldStt, make_transcriber: MakeTranscriber, message: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(message)
        await call.send(transcription("Yes."))
        assert await next_text(stream) == Interim(1, "Yes.")


@pytest.mark.parametrize(
    ("code", "status", "retryable"),
    [(3, 400, False), (5, 404, False), (7, 403, False), (8, 429, True), (14, 503, True), (16, 401, False)],
)
async def test_refusals_in_the_stream(
    vendor: FakeInworldStt, make_transcriber: MakeTranscriber, code: int, status: int, retryable: bool
) -> None:
    """Codes of gRPC as the HTTP status that says the same."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(error("no", code))
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (status, retryable)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (error("It broke.", 13), r"\(It broke\.\)"),
        ('{"result": {"transcription": {"transcript": 5}}}', "expected a message of the vendor's API"),
        ("[1]", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeInworldStt, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why) as raised:
            await next_text(stream)
    assert raised.value.retryable
