"""Spoken turns through usual combinations of STT, LLM and TTS, each at its vendor's fake.

LLMs are reached as the catalog has them, at the fake's address; the fake checks the key and refuses what the vendor
refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes import (
    cartesia_tts,
    deepgram_stt,
    elevenlabs_stt,
    elevenlabs_tts,
    inworld_stt,
    inworld_tts,
    openai_realtime_stt,
)
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


class Side(NamedTuple):
    """A vendor's kind, its fake, the key that it takes, and a model."""

    kind: str
    fake: type[Any]
    key: str
    model: str


class Combination(NamedTuple):
    stt: Side
    tts: Side
    llm: str
    """Of the catalog's vendors."""


COMBINATIONS = {
    "deepgram-groq-cartesia": Combination(
        Side("deepgram", deepgram_stt.FakeDeepgram, deepgram_stt.KEY, "nova-3"),
        Side("cartesia", cartesia_tts.FakeCartesia, cartesia_tts.KEY, "sonic-3"),
        llm="groq",
    ),
    "elevenlabs-anthropic-elevenlabs": Combination(
        Side("elevenlabs", elevenlabs_stt.FakeScribe, elevenlabs_stt.KEY, "scribe_v2_realtime"),
        Side("elevenlabs", elevenlabs_tts.FakeElevenLabs, elevenlabs_tts.KEY, "eleven_flash_v2_5"),
        llm="anthropic",
    ),
    "inworld-inworld-inworld": Combination(
        Side("inworld", inworld_stt.FakeInworldStt, inworld_stt.KEY, "inworld-stt-1"),
        Side("inworld", inworld_tts.FakeInworld, inworld_tts.KEY, "inworld-tts-2"),
        llm="inworld",
    ),
}


@pytest.mark.parametrize("combination", COMBINATIONS.values(), ids=COMBINATIONS)
async def test_a_turn_through_all(fake_server: Any, tmp_path: Path, speech: Samples, combination: Combination) -> None:
    """The LLM gets the transcript, the TTS speaks the LLM's text, and no connection stays open at either."""
    async with combination.stt.fake() as stt_fake, FakeVendor() as llm_fake, combination.tts.fake() as tts_fake:
        llm_fake.rules = VENDOR_RULES[combination.llm]
        llm_fake.llm.usual = LlmCue(tokens=tokens("It is noon."))
        settings = {
            **_llm_settings(combination.llm, llm_fake, tmp_path),
            **_speech_settings(combination, stt_fake, tts_fake),
        }
        record = await _turn(fake_server, settings, speech, stt_fake)
        assert record["providers"] == {
            "stt": f"stt/{combination.stt.model}",
            "llm": f"{combination.llm}/{VENDOR_RULES[combination.llm].model}",
            "tts": f"tts/{combination.tts.model}",
        }
        assert user_text_of(llm_fake.llm.received[-1].question) == "No."
        assert tts_fake.script.received[-1].question["input"].strip() == "It is noon."
        for call in (*stt_fake.calls, *tts_fake.calls):
            await call.until(call.closed.is_set)


async def _turn(fake_server: Any, settings: dict[str, str], speech: Samples, stt_fake: FakeWsTranscriber) -> Any:
    stt_fake.script.usual = SttCue(text="No.")
    async with fake_server(settings) as server:
        async with calling(server.url, session=SESSION) as user:
            await user.speak(speech, then_silence_ms=400)
            done = await user.until("response.done")
        assert done["response"]["status"] == "completed", done
        return await eventually(lambda: _record(server.url))


async def _record(url: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
        turns = (await answer.json())["data"]
    return turns[0] if turns and turns[0]["outcome"] else None


def user_text_of(question: dict[str, Any]) -> str:
    """The user's words, in either dialect."""
    content = question["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _llm_settings(name: str, vendor: FakeVendor, folder: Path) -> dict[str, str]:
    """A vendor of the catalog that is at the fake's address."""
    mine = folder / "mine.toml"
    mine.write_text(f'[providers.{name}]\nbase_url = "{vendor.base_url}"\n')
    rules = VENDOR_RULES[name]
    return {
        "catalog.file": str(mine),
        "agents.default.llm": f"{name}/{rules.model}",
        f"providers.{name}.api_key": rules.key,
    }


def _speech_settings(
    combination: Combination, stt_fake: FakeWsTranscriber, tts_fake: FakeWsSynthesizer
) -> dict[str, str]:
    return {
        "agents.default.stt": f"stt/{combination.stt.model}",
        "agents.default.tts": f"tts/{combination.tts.model}",
        "agents.default.language": "en",
        **_provider("stt", combination.stt, stt_fake.base_url),
        **_provider("tts", combination.tts, tts_fake.base_url),
    }


def _provider(name: str, side: Side, base_url: str) -> dict[str, str]:
    section = f"providers.{name}"
    return {f"{section}.kind": side.kind, f"{section}.base_url": base_url, f"{section}.api_key": side.key}


async def test_openai_all_three(fake_server: Any, tmp_path: Path, speech: Samples) -> None:
    """Its realtime transcription, chat completions and speech, the last two under one name."""
    async with openai_realtime_stt.FakeRealtimeStt() as stt_fake, FakeVendor() as vendor:
        vendor.rules = VENDOR_RULES["openai"]
        vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        settings = {
            **_llm_settings("openai", vendor, tmp_path),
            "agents.default.stt": "openai-realtime/gpt-live-transcribe",
            "agents.default.tts": "openai/tts-1",
            "providers.openai-realtime.base_url": stt_fake.base_url,
            "providers.openai-realtime.api_key": openai_realtime_stt.KEY,
        }
        await _turn(fake_server, settings, speech, stt_fake)
        assert user_text_of(vendor.llm.received[-1].question) == "No."
        assert vendor.tts.received[-1].question["input"] == "It is noon."
        for call in stt_fake.calls:
            await call.until(call.closed.is_set)
