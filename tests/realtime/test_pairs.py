"""Spoken turns through the ears and voices that people put together, each at its vendor's fake."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import calling
from voicepipe.testing.fakes import (
    cartesia_voice,
    deepgram,
    elevenlabs_stt,
    elevenlabs_voice,
    inworld_stt,
    inworld_voice,
    openai_realtime_stt,
)
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.live_ear import FakeLiveEar
from voicepipe.testing.fakes.live_voice import FakeLiveVoice

SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


class Side(NamedTuple):
    """A vendor's kind, its fake, the key that it takes, and a model."""

    kind: str
    fake: type[Any]
    key: str
    model: str


class Pair(NamedTuple):
    ear: Side
    voice: Side


PAIRS = {
    "deepgram-cartesia": Pair(
        Side("deepgram", deepgram.FakeDeepgram, deepgram.KEY, "nova-3"),
        Side("cartesia", cartesia_voice.FakeCartesia, cartesia_voice.KEY, "sonic-3"),
    ),
    "elevenlabs-elevenlabs": Pair(
        Side("elevenlabs", elevenlabs_stt.FakeScribe, elevenlabs_stt.KEY, "scribe_v2_realtime"),
        Side("elevenlabs", elevenlabs_voice.FakeElevenLabs, elevenlabs_voice.KEY, "eleven_flash_v2_5"),
    ),
    "inworld-inworld": Pair(
        Side("inworld", inworld_stt.FakeInworldStt, inworld_stt.KEY, "inworld-stt-1"),
        Side("inworld", inworld_voice.FakeInworld, inworld_voice.KEY, "inworld-tts-2"),
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
async def test_a_turn_through_both(fake_house: Any, speech: Samples, pair: Pair) -> None:
    """The model is asked in the ear's words, the voice says the model's, and nothing stays open at either."""
    async with pair.ear.fake() as ears, pair.voice.fake() as voices:
        await _turn(fake_house, speech, pair, ears, voices)
        for call in (*ears.calls, *voices.calls):
            await call.until(call.closed.is_set)


async def _turn(fake_house: Any, speech: Samples, pair: Pair, ears: FakeLiveEar, voices: FakeLiveVoice) -> None:
    ears.desk.usual = SttCue(text="No.")
    settings = {
        "agents.default.stt": f"ear/{pair.ear.model}",
        "agents.default.tts": f"voice/{pair.voice.model}",
        "agents.default.language": "en",
        **_provider("ear", pair.ear, ears.base_url),
        **_provider("voice", pair.voice, voices.base_url),
    }
    async with fake_house(settings) as house:
        house.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with calling(house.url, session=SESSION) as caller:
            await caller.say(speech, then_silence_ms=400)
            done = await caller.until("response.done")
        assert done["response"]["status"] == "completed"
        assert house.vendor.llm.asked[-1].question["messages"][-1] == {"role": "user", "content": "No."}
        assert voices.desk.asked[-1].question["input"].strip() == "It is noon."


def _provider(name: str, side: Side, base_url: str) -> dict[str, str]:
    section = f"providers.{name}"
    return {f"{section}.kind": side.kind, f"{section}.base_url": base_url, f"{section}.api_key": side.key}


async def test_openai_all_three(fake_house: Any, speech: Samples) -> None:
    """Its realtime transcription, chat completions and speech."""
    async with openai_realtime_stt.FakeRealtimeStt() as ears:
        ears.desk.usual = SttCue(text="No.")
        settings = {
            "agents.default.stt": "openai-realtime/gpt-live-transcribe",
            "providers.openai-realtime.base_url": ears.base_url,
            "providers.openai-realtime.api_key": openai_realtime_stt.KEY,
        }
        async with fake_house(settings) as house:
            house.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            async with calling(house.url, session=SESSION) as caller:
                await caller.say(speech, then_silence_ms=400)
                done = await caller.until("response.done")
            assert done["response"]["status"] == "completed"
            assert house.vendor.llm.asked[-1].question["messages"][-1] == {"role": "user", "content": "No."}
            assert house.vendor.tts.asked[-1].question["input"] == "It is noon."
        for call in ears.calls:
            await call.until(call.closed.is_set)
