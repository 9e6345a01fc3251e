"""With the local models: the STT transcribes what the page plays, and the page shows what a person says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jiwer
import pytest
import soxr

from voicepipe.audio.samples import Samples
from voicepipe.config import load
from voicepipe.ports.transcriber import Final, TranscriptionOptions
from voicepipe.providers.local.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.waiting import WAIT_S
from voicepipe.wiring import running

pytestmark = pytest.mark.slow

ANSWER = "The capital of France is Paris, and it lies on the river Seine."
MEASURED = "document.querySelector('.agent .latency[data-outcome=completed]')?.dataset.turn"


async def test_played_audio_is_the_answer(talking: Any, tmp_path: Path) -> None:
    """A recorded voice puts a question, the local TTS answers, and its audio in the page is transcribed back."""
    async with talking(says=("vctk_p287_002", 30_000)) as talk:
        talk.server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        overrides = {
            "server.port": 0,
            "server.drain_ms": 0,
            "server.data_dir": str(tmp_path / "local"),
            "providers.fake.base_url": talk.server.vendor.base_url,
            "agents.default.llm": "fake/llm",
            # A browser that a busy machine stops for half a second makes no two utterances of the question.
            "agents.default.end_of_turn": "silence",
            "agents.default.silence_ms": 1_500,
        }
        settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
        async with running(settings) as server:
            async with asyncio.timeout(100):
                await server.ready.wait()
            async with talk.page(f"{server.base_url}/talk") as page:
                await page.start()
                await page.until(MEASURED)
                await page.until("document.querySelector('#scene').dataset.scene === 'listening'")
                played = await understood(await page.played_back(), tmp_path / "local" / "engine.sock")
                said = await page.text(".entry.user .words")
    assert error_rate(ANSWER, played) < 0.2
    assert error_rate("Ask her to bring these things with her from the store.", said) < 0.3


async def understood(sound: Samples, engine: Path) -> str:
    """Return the local STT's transcript of int16 (n_samples,) at 24 kHz."""
    settings = ProviderSettings(kind="local", options=(("socket", str(engine)),))
    transcriber = open_transcriber(Spec("local", "moonshine-tiny"), settings)
    async with transcriber.open(TranscriptionOptions(model="moonshine-tiny")) as stream, asyncio.timeout(WAIT_S):
        stream.push(soxr.resample(sound, 24_000, 16_000))
        stream.flush(1)
        played = await anext(aiter(stream))
    assert isinstance(played, Final)
    return played.text


def error_rate(expected: str, played: str) -> float:
    """Words that differ, as a part of those that were said."""
    # Looks through all of Unicode for punctuation: not where each process of a run would, which import this module.
    plain = jiwer.Compose([jiwer.ToLowerCase(), jiwer.RemovePunctuation(), jiwer.ReduceToListOfListOfWords()])
    return float(jiwer.wer(expected, played, reference_transform=plain, hypothesis_transform=plain))
