"""Spoken turns through the ears, minds and voices that people put together, each at its vendor's fake.

Minds are reached as the catalog has them, at the fake's address; the fake checks the key and refuses what the vendor
refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
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
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.fakes.vendor_laws import LAWS
from voicepipe.testing.waiting import eventually

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
    mind: str
    """Of the catalog's vendors."""


PAIRS = {
    "deepgram-groq-cartesia": Pair(
        Side("deepgram", deepgram.FakeDeepgram, deepgram.KEY, "nova-3"),
        Side("cartesia", cartesia_voice.FakeCartesia, cartesia_voice.KEY, "sonic-3"),
        mind="groq",
    ),
    "elevenlabs-anthropic-elevenlabs": Pair(
        Side("elevenlabs", elevenlabs_stt.FakeScribe, elevenlabs_stt.KEY, "scribe_v2_realtime"),
        Side("elevenlabs", elevenlabs_voice.FakeElevenLabs, elevenlabs_voice.KEY, "eleven_flash_v2_5"),
        mind="anthropic",
    ),
    "inworld-inworld-inworld": Pair(
        Side("inworld", inworld_stt.FakeInworldStt, inworld_stt.KEY, "inworld-stt-1"),
        Side("inworld", inworld_voice.FakeInworld, inworld_voice.KEY, "inworld-tts-2"),
        mind="inworld",
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
async def test_a_turn_through_all(fake_house: Any, tmp_path: Path, speech: Samples, pair: Pair) -> None:
    """The model is asked in the ear's words, the voice says the model's, and nothing stays open at either."""
    async with pair.ear.fake() as ears, FakeVendor() as minds, pair.voice.fake() as voices:
        minds.law = LAWS[pair.mind]
        minds.llm.usual = LlmCue(tokens=tokens("It is noon."))
        settings = {**_mind(pair.mind, minds, tmp_path), **_ear_and_voice(pair, ears, voices)}
        record = await _turn(fake_house, settings, speech, ears)
        assert record["providers"] == {
            "stt": f"ear/{pair.ear.model}",
            "llm": f"{pair.mind}/{LAWS[pair.mind].model}",
            "tts": f"voice/{pair.voice.model}",
        }
        assert asked_for(minds.llm.asked[-1].question) == "No."
        assert voices.desk.asked[-1].question["input"].strip() == "It is noon."
        for call in (*ears.calls, *voices.calls):
            await call.until(call.closed.is_set)


async def _turn(fake_house: Any, settings: dict[str, str], speech: Samples, ears: FakeLiveEar) -> Any:
    ears.desk.usual = SttCue(text="No.")
    async with fake_house(settings) as house:
        async with calling(house.url, session=SESSION) as caller:
            await caller.say(speech, then_silence_ms=400)
            done = await caller.until("response.done")
        assert done["response"]["status"] == "completed", done
        return await eventually(lambda: _record(house.url))


async def _record(url: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
        turns = (await answer.json())["data"]
    return turns[0] if turns and turns[0]["outcome"] else None


def asked_for(question: dict[str, Any]) -> str:
    """The caller's words, in either dialect."""
    content = question["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _mind(name: str, vendor: FakeVendor, folder: Path) -> dict[str, str]:
    """A vendor of the catalog that is at the fake's address."""
    mine = folder / "mine.toml"
    mine.write_text(f'[providers.{name}]\nbase_url = "{vendor.base_url}"\n')
    law = LAWS[name]
    return {
        "catalog.file": str(mine),
        "agents.default.llm": f"{name}/{law.model}",
        f"providers.{name}.api_key": law.key,
    }


def _ear_and_voice(pair: Pair, ears: FakeLiveEar, voices: FakeLiveVoice) -> dict[str, str]:
    return {
        "agents.default.stt": f"ear/{pair.ear.model}",
        "agents.default.tts": f"voice/{pair.voice.model}",
        "agents.default.language": "en",
        **_provider("ear", pair.ear, ears.base_url),
        **_provider("voice", pair.voice, voices.base_url),
    }


def _provider(name: str, side: Side, base_url: str) -> dict[str, str]:
    section = f"providers.{name}"
    return {f"{section}.kind": side.kind, f"{section}.base_url": base_url, f"{section}.api_key": side.key}


async def test_openai_all_three(fake_house: Any, tmp_path: Path, speech: Samples) -> None:
    """Its realtime transcription, chat completions and speech, the last two under one name."""
    async with openai_realtime_stt.FakeRealtimeStt() as ears, FakeVendor() as vendor:
        vendor.law = LAWS["openai"]
        vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        settings = {
            **_mind("openai", vendor, tmp_path),
            "agents.default.stt": "openai-realtime/gpt-live-transcribe",
            "agents.default.tts": "openai/tts-1",
            "providers.openai-realtime.base_url": ears.base_url,
            "providers.openai-realtime.api_key": openai_realtime_stt.KEY,
        }
        await _turn(fake_house, settings, speech, ears)
        assert asked_for(vendor.llm.asked[-1].question) == "No."
        assert vendor.tts.asked[-1].question["input"] == "It is noon."
        for call in ears.calls:
            await call.until(call.closed.is_set)
