"""The real STT engine on real recordings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import jiwer
import numpy as np
import pytest

from voicepipe.errors import StageRefused
from voicepipe.ports.transcriber import Final, Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.local.connection import Exchange, link
from voicepipe.providers.local.engine.moonshine import MAX_AUDIO_S
from voicepipe.providers.local.stt import open_transcriber
from voicepipe.providers.local.wire import Transcribe
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.waiting import WAIT_S

Clips = dict[str, tuple[Samples, str]]
SPEC = Spec("local", "moonshine-tiny")


@pytest.fixture
def transcriber(settings: ProviderSettings) -> Transcriber:
    """The adapter at the real engine."""
    return open_transcriber(SPEC, settings)


async def transcript_of(transcriber: Transcriber, samples: Samples) -> str:
    """The text of one utterance."""
    async with transcriber.open(TranscriptionOptions(model="moonshine-tiny")) as stream, asyncio.timeout(WAIT_S):
        stream.begin(1)
        stream.push(samples)
        stream.flush(1)
        async for text in stream:
            assert isinstance(text, Final)
            return text.text
    raise AssertionError("the stream ended without a text")


def plain(text: str) -> str:
    """Lower case words and nothing else, for comparing."""
    return " ".join("".join(c for c in text.lower() if c.isalnum() or c in " '").split())


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return the word error rate of (reference, transcript) texts together."""
    references, texts = zip(*((plain(reference), plain(text)) for reference, text in pairs), strict=True)
    return float(jiwer.wer(list(references), list(texts)))


async def test_recordings_are_understood(transcriber: Transcriber, clips: Clips) -> None:
    """Easy clips almost word for word, in the engine's own casing."""
    names = ("LJ001-0004", "vctk_p287_001", "vctk_p287_002", "ls_1688-142285-0004", "jfk")
    pairs = [(clips[name][1], await transcript_of(transcriber, clips[name][0])) for name in names]
    assert word_error_rate(pairs) < 0.1
    assert "Americans" in pairs[-1][1]


async def test_long_speech_is_cut_and_joined(transcriber: Transcriber, clips: Clips) -> None:
    """A minute without a pause in the asking: as good as its parts, not the model's endless repetition."""
    parts = [clips[name] for name in ("LJ001-0004", "ls_1688-142285-0004", "jfk", "LJ001-0004", "jfk")]
    samples = np.concatenate([samples[4_000:-32_000] for samples, _ in parts])
    assert samples.size > 34 * 16_000
    text = await transcript_of(transcriber, samples)
    assert word_error_rate([(" ".join(said for _, said in parts), text)]) < 0.15


@pytest.mark.parametrize("amplitude", [0, 20])
async def test_silence_has_no_words(transcriber: Transcriber, amplitude: int) -> None:
    """The model would say "You"; room tone is not given to it."""
    noise = np.random.default_rng(1).normal(0, 1, 48_000) * amplitude
    assert await transcript_of(transcriber, noise.astype(np.int16)) == ""


@pytest.mark.parametrize("n_samples", [1, 7, 321, 1_600])
async def test_scraps_of_sound_are_answered(transcriber: Transcriber, n_samples: int) -> None:
    """However short the audio, a flush gets its final, and the next utterance is transcribed."""
    loud = (np.sin(np.arange(n_samples) + 1) * 9_000).astype(np.int16)
    assert isinstance(await transcript_of(transcriber, loud), str)


async def test_other_models_and_long_jobs_are_refused(transcriber: Transcriber, settings: ProviderSettings) -> None:
    """The engine enforces its own bounds for every client."""
    with pytest.raises(StageRefused, match="expected the model 'moonshine-tiny', got 'whisper-1'"):
        async with transcriber.open(TranscriptionOptions(model="whisper-1")):
            pass
    exchange = Exchange(link("stt", SPEC, settings, model="moonshine-tiny"))
    await exchange.send(Transcribe("a", bytes(2 * 16_000 * MAX_AUDIO_S + 2)))
    with pytest.raises(StageRefused, match="expected 30 s of audio at most"):
        await exchange.next()
