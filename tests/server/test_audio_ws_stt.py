"""Transcriptions by an STT provider that receives a whole call over one socket."""

from __future__ import annotations

from typing import Any

import numpy as np
import openai
import pytest

from voicepipe.audio.files import wav_bytes
from voicepipe.audio.samples import silence
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram
from voicepipe.testing.fakes.tone import tone

pytestmark = pytest.mark.slow

RATE_HZ = 16_000
SPOKEN, PAUSE = tone("x" * 500, rate_hz=RATE_HZ), silence(RATE_HZ // 2)  # 20 s, 0.5 s
LONG = wav_bytes(np.concatenate([SPOKEN, PAUSE, SPOKEN]), RATE_HZ)


async def test_a_recording_is_transcribed_faster_than_real_time(fake_server: Any) -> None:
    """In pieces, each an utterance of the same call; nothing is dropped though it comes in bursts."""
    async with FakeDeepgram() as vendor:
        vendor.script.cue(SttCue(text="One two."), SttCue(text="Three four."))
        settings = {
            "providers.dg.kind": "deepgram",
            "providers.dg.base_url": vendor.base_url,
            "providers.dg.api_key": KEY,
            "agents.default.stt": "dg/nova-3",
        }
        async with (
            fake_server(settings) as server,
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
        ):
            answer = await client.audio.transcriptions.create(
                model="default", file=("a.wav", LONG), response_format="verbose_json"
            )
        call = await vendor.nth(0)
    assert answer.segments is not None
    assert [segment.text for segment in answer.segments] == ["One two.", "Three four."]
    assert call.received_ms >= 40_500
