"""A spoken turn with several STT and TTS providers: the first one breaks in it, and the user is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes import cartesia_tts, deepgram_stt
from voicepipe.testing.fakes.cartesia_tts import FakeCartesia
from voicepipe.testing.fakes.cues import Cut, Fault, HangUp, LlmCue, Status, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

Record = dict[str, Any]

SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
QUESTION = "No."


@dataclass(frozen=True, slots=True)
class App:
    """A server whose first STT and first TTS are vendors of their own; the other is the fake vendor."""

    url: str
    vendor: Any
    stt: FakeDeepgram
    tts: FakeCartesia

    async def turn(self, speech: Samples) -> Record:
        """One answered turn, and its record."""
        async with calling(self.url, session=SESSION) as user:
            await user.say(speech, then_silence_ms=600)
            done = await user.until("response.done")
            assert done["response"]["status"] == "completed"
        return await eventually(self._over)

    async def _over(self) -> Record | None:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/v1/turns") as answer:
            turns: list[Record] = (await answer.json())["data"]
            return next((each for each in turns if each["outcome"] is not None), None)


@pytest.fixture
def opened(fake_server: Any) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[App]:
        async with FakeDeepgram() as stt, FakeCartesia() as tts:
            settings = {
                "agents.default.stt": "deepgram/nova-3, fake/stt",
                "agents.default.tts": "cartesia/sonic-3, fake/tts",
                "providers.deepgram.base_url": stt.base_url,
                "providers.deepgram.api_key": deepgram_stt.KEY,
                "providers.cartesia.base_url": tts.base_url,
                "providers.cartesia.api_key": cartesia_tts.KEY,
            }
            async with fake_server(settings) as server:
                stt.script.usual = SttCue(text=QUESTION)
                server.vendor.stt.usual = SttCue(text=QUESTION)
                server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon. Anything else?"))
                yield App(server.url, server.vendor, stt, tts)

    return opened


async def test_the_first_choice_serves_when_it_is_well(opened: Any, speech: Samples) -> None:
    """No other provider gets a request, and the record holds no choice."""
    async with opened() as server:
        record = await server.turn(speech)
    assert (record["providers"]["stt"], record["providers"]["tts"]) == ("deepgram/nova-3", "cartesia/sonic-3")
    assert record["actions"] == []


@pytest.mark.parametrize("fault", [Status(503), HangUp()], ids=["refuses", "hangs-up"])
async def test_an_utterance_is_transcribed_though_the_transcriber_breaks(
    opened: Any, speech: Samples, fault: Fault
) -> None:
    """Its audio goes to the next STT from the first sample on; the user notices nothing, and the record says so."""
    async with opened() as server:
        server.stt.script.usual = SttCue(fault=fault)
        record = await server.turn(speech)
        received = await server.vendor.stt.nth(0)
    assert record["user_text"] == QUESTION
    assert record["providers"]["stt"] == "fake/stt"
    assert record["actions"] == ["continuation"]
    assert record["route"].startswith("fake/stt transcribes: deepgram/nova-3: ")
    assert len(received.samples)


@pytest.mark.parametrize(
    ("cue", "action"),
    [(TtsCue(fault=Cut(after=0)), "fallback"), (TtsCue(fault=Cut(after=9_600)), "continuation")],
    ids=["breaks-before-it", "breaks-in-a-sentence"],
)
async def test_an_answer_is_spoken_though_the_voice_breaks(
    opened: Any, speech: Samples, cue: TtsCue, action: str
) -> None:
    """To its last word, by the other voice, and the record says so."""
    async with opened() as server:
        server.tts.script.usual = cue
        record = await server.turn(speech)
        said = [received.question["input"] for received in server.vendor.tts.received]
    assert said[-1] == "Anything else?"
    assert record["agent_text"] == "It is noon. Anything else?"
    assert record["providers"]["tts"] == "fake/tts"
    assert record["actions"] == [action]
    assert "cartesia/sonic-3: " in record["route"]
