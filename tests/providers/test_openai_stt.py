"""What the OpenAI-compatible transcriber sends, and how it reads the ways in which servers answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.transcriber import Final, Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.built_in import factory
from voicepipe.providers.openai import stt
from voicepipe.providers.openai.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.vendor import FakeVendor

SPEC = Spec("groq", "whisper")
TRANSCRIPTION = TranscriptionOptions(model="whisper")
SPEECH = tone("some words", rate_hz=16_000)
Settings = Callable[..., ProviderSettings]


@pytest.fixture
def transcriber(settings: Settings) -> Transcriber:
    return open_transcriber(SPEC, settings())


async def transcribe(
    transcriber: Transcriber, samples: Samples, transcription: TranscriptionOptions = TRANSCRIPTION
) -> Final:
    async with transcriber.open(transcription) as stream:
        stream.begin(1)
        push(stream, samples)
        stream.flush(1)
        return await final(stream)


def test_registry_finds_it() -> None:
    """The built-in name leads here, and its capabilities are those of a request-style transcriber."""
    assert factory("openai", "stt", key="agents.default.stt") is open_transcriber
    capabilities = open_transcriber(
        SPEC, ProviderSettings(kind="openai", base_url="http://127.0.0.1:1/v1")
    ).capabilities
    assert (capabilities.rate_hz, capabilities.streams, capabilities.partials) == (16_000, False, False)


async def test_request(vendor: FakeVendor, settings: Settings) -> None:
    """A form with a WAV file; the language as vendors know it; hints and extra fields where there are any."""
    await transcribe(open_transcriber(SPEC, settings()), SPEECH)
    full = TranscriptionOptions(model="whisper", language="pt-BR", prompt="Voicepipe")
    await transcribe(open_transcriber(SPEC, settings(stt_extra='{"temperature": "0"}')), SPEECH, full)
    plain, rich = [received.question for received in vendor.stt.received]
    assert plain == {"model": "whisper", "response_format": "json"}
    assert rich == plain | {"language": "pt", "prompt": "Voicepipe", "temperature": "0"}
    assert vendor.stt.received[0].headers["Authorization"] == "Bearer sk-test-0123456789"
    assert np.array_equal(vendor.stt.received[0].samples, SPEECH)


async def test_short_sound_is_filled_up(vendor: FakeVendor, transcriber: Transcriber) -> None:
    """Vendors refuse less than 0.1 s: silence follows it."""
    await transcribe(transcriber, SPEECH[:100])
    sent = vendor.stt.received[0].samples
    assert len(sent) == 1_600
    assert np.array_equal(sent[:100], SPEECH[:100])
    assert not sent[100:].any()


async def test_no_audio_sends_no_request(vendor: FakeVendor, transcriber: Transcriber) -> None:
    """An utterance without samples has an empty text, and costs nothing."""
    assert await transcribe(transcriber, SPEECH[:0]) == Final(1, 1, "")
    assert not vendor.stt.received


async def test_long_utterance(vendor: FakeVendor, transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound the oldest sound is dropped and counted; the newest is all there."""
    monkeypatch.setattr(stt, "BUFFER_SAMPLES", 1_600)
    sound = np.arange(5_000, dtype=np.int16)
    async with transcriber.open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, sound, piece_samples=500)
        stream.flush(1)
        await final(stream)
        dropped = stream.dropped_samples  # type: ignore[attr-defined]
    assert np.array_equal(vendor.stt.received[0].samples, sound[dropped:])
    assert 1_600 <= 5_000 - dropped < 2_100


async def test_minutes_of_sound_are_sent(vendor: FakeVendor, transcriber: Transcriber) -> None:
    """A body of megabytes arrives whole."""
    sound = np.tile(SPEECH, 200)
    await transcribe(transcriber, sound)
    assert len(vendor.stt.received[0].samples) == len(sound) > 1_000_000


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"text": " What time is it?\\n"}', "What time is it?"),
        (b'{"text": "hi", "x_groq": {"id": "1"}, "segments": []}', "hi"),
        ('{"text": "Grüße 🌳"}'.encode(), "Grüße 🌳"),
    ],
)
async def test_text(vendor: FakeVendor, transcriber: Transcriber, body: bytes, text: str) -> None:
    """Space around the text is the vendor's habit, not the user's words."""
    vendor.stt.cue(SttCue(raw=body))
    assert await transcribe(transcriber, SPEECH) == Final(1, 1, text)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', StageRefused),
        (b'{"error": "busy"}', StageBroken),
        (b'{"detail": "busy"}', StageBroken),
        (b'{"text": null}', StageBroken),
        (b'"text"', StageBroken),
        (b"just the words", StageBroken),
        (b"", StageBroken),
    ],
)
async def test_error_under_200(
    vendor: FakeVendor, transcriber: Transcriber, body: bytes, kind: type[Exception]
) -> None:
    """What holds no text is an error, whatever the status was."""
    vendor.stt.cue(SttCue(raw=body))
    with pytest.raises(kind):
        await transcribe(transcriber, SPEECH)
