"""A spoken turn whose ear and voice are several: the first one breaks in it, and the caller is heard and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import calling
from voicepipe.testing.fakes import cartesia_voice, deepgram
from voicepipe.testing.fakes.cartesia_voice import FakeCartesia
from voicepipe.testing.fakes.cues import Cut, Fault, HangUp, LlmCue, Status, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.deepgram import FakeDeepgram
from voicepipe.testing.waiting import eventually

Record = dict[str, Any]

SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
QUESTION = "No."


@dataclass(frozen=True, slots=True)
class House:
    """A server whose first ear and first voice are vendors of their own; the other is the fake vendor."""

    url: str
    vendor: Any
    ear: FakeDeepgram
    voice: FakeCartesia

    async def turn(self, speech: Samples) -> Record:
        """One answered turn, and its record."""
        async with calling(self.url, session=SESSION) as caller:
            await caller.say(speech, then_silence_ms=600)
            done = await caller.until("response.done")
            assert done["response"]["status"] == "completed"
        return await eventually(self._over)

    async def _over(self) -> Record | None:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/v1/turns") as answer:
            turns: list[Record] = (await answer.json())["data"]
            return next((each for each in turns if each["outcome"] is not None), None)


@pytest.fixture
def opened(fake_house: Any) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        async with FakeDeepgram() as ear, FakeCartesia() as voice:
            settings = {
                "agents.default.stt": "deepgram/nova-3, fake/ear",
                "agents.default.tts": "cartesia/sonic-3, fake/mouth",
                "providers.deepgram.base_url": ear.base_url,
                "providers.deepgram.api_key": deepgram.KEY,
                "providers.cartesia.base_url": voice.base_url,
                "providers.cartesia.api_key": cartesia_voice.KEY,
            }
            async with fake_house(settings) as house:
                ear.desk.usual = SttCue(text=QUESTION)
                house.vendor.stt.usual = SttCue(text=QUESTION)
                house.vendor.llm.usual = LlmCue(tokens=tokens("It is noon. Anything else?"))
                yield House(house.url, house.vendor, ear, voice)

    return opened


async def test_the_first_choice_serves_when_it_is_well(opened: Any, speech: Samples) -> None:
    """Nobody else is asked, and the record tells of no choice."""
    async with opened() as house:
        record = await house.turn(speech)
    assert (record["providers"]["stt"], record["providers"]["tts"]) == ("deepgram/nova-3", "cartesia/sonic-3")
    assert record["actions"] == []


@pytest.mark.parametrize("fault", [Status(503), HangUp()], ids=["refuses", "hangs-up"])
async def test_an_utterance_is_heard_though_the_ear_breaks(opened: Any, speech: Samples, fault: Fault) -> None:
    """Its sound goes to the next ear from the first sample on; the caller notices nothing, and the record says so."""
    async with opened() as house:
        house.ear.desk.usual = SttCue(fault=fault)
        record = await house.turn(speech)
        asked = await house.vendor.stt.nth(0)
    assert record["caller_text"] == QUESTION
    assert record["providers"]["stt"] == "fake/ear"
    assert record["actions"] == ["continuation"]
    assert record["route"].startswith("fake/ear hears: deepgram/nova-3: ")
    assert len(asked.samples)


@pytest.mark.parametrize(
    ("cue", "action"),
    [(TtsCue(fault=Cut(after=0)), "fallback"), (TtsCue(fault=Cut(after=9_600)), "continuation")],
    ids=["breaks-before-it", "breaks-in-a-sentence"],
)
async def test_an_answer_is_spoken_though_the_voice_breaks(
    opened: Any, speech: Samples, cue: TtsCue, action: str
) -> None:
    """To its last word, by the other voice, and the record says so."""
    async with opened() as house:
        house.voice.desk.usual = cue
        record = await house.turn(speech)
        said = [asked.question["input"] for asked in house.vendor.tts.asked]
    assert said[-1] == "Anything else?"
    assert record["agent_text"] == "It is noon. Anything else?"
    assert record["providers"]["tts"] == "fake/mouth"
    assert record["actions"] == [action]
    assert "cartesia/sonic-3: " in record["route"]
