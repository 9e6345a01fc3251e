"""Speech and transcriptions of an agent that has several TTS and STT providers."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from voicepipe.audio.files import wav_bytes
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.tone import tone

pytestmark = pytest.mark.slow

SOUND = ("a.wav", wav_bytes(tone("x" * 25, rate_hz=16_000), 16_000))
SEVERAL = {"agents.default.tts": ["fake/first", "fake/second"], "agents.default.stt": ["fake/stt", "fake/other"]}


async def test_where_the_first_fails_the_next_answers_and_the_answer_says_so(
    fake_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "voicepipe")
    async with (
        fake_server(SEVERAL) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
    ):
        server.vendor.tts.cue(TtsCue(fault=Status(500)))
        server.vendor.stt.cue(SttCue(fault=Status(500)))
        spoken = await client.audio.speech.create(model="default", voice="anna", input="Hello.", response_format="pcm")
        transcription = await client.audio.transcriptions.create(model="default", file=SOUND)
        by_name = await client.audio.speech.create(model="fake/second", voice="anna", input="Hello.")
    assert spoken.content == tone("Hello.").astype("<i2").tobytes()
    assert spoken.response.headers["X-Voicepipe-Route"] == "fake/second"
    assert transcription.text == "what time is it"
    assert transcription.model_dump()["voicepipe"]["route"] == "fake/other"
    assert by_name.content
    routes = [each.__dict__["fields"]["route"] for each in caplog.records if each.message.endswith("_closed")]
    assert routes == ["fake/second", "fake/other", "fake/second"]
