"""A spoken turn through each streaming ear, at its vendor's fake; mind and mouth are others'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import aiohttp
import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import calling
from voicepipe.testing.fakes import assemblyai, cartesia_stt, deepgram, elevenlabs_stt, inworld_stt, openai_realtime_stt
from voicepipe.testing.fakes.assemblyai import FakeAssemblyAi
from voicepipe.testing.fakes.cartesia_stt import FakeInk, FakeInkTurns, turn
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram import FakeDeepgram
from voicepipe.testing.fakes.elevenlabs_stt import FakeScribe
from voicepipe.testing.fakes.flux import FakeFlux
from voicepipe.testing.fakes.inworld_stt import FakeInworldStt
from voicepipe.testing.fakes.live_call import Call
from voicepipe.testing.fakes.live_ear import FakeLiveEar
from voicepipe.testing.fakes.openai_realtime_stt import FakeRealtimeStt
from voicepipe.testing.waiting import eventually

QUESTION = "No."
"""What the recording says: one word, in its middle."""
SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


class OneTurn(FakeInkTurns):
    """Hears the question as soon as it hears anything."""

    def on_audio(self, call: Call) -> Iterable[str]:
        if not call.speaking:
            call.speaking = True
            yield turn("start")
            yield turn("update", QUESTION)


class Ear(NamedTuple):
    spec: str
    fake: type[FakeLiveEar]
    key: str


EARS = [
    Ear("deepgram/nova-3", FakeDeepgram, deepgram.KEY),
    Ear("deepgram/flux-general-en", FakeFlux, deepgram.KEY),
    Ear("assemblyai/universal-streaming", FakeAssemblyAi, assemblyai.KEY),
    Ear("cartesia/ink-whisper", FakeInk, cartesia_stt.KEY),
    Ear("cartesia/ink-2", OneTurn, cartesia_stt.KEY),
    Ear("elevenlabs/scribe_v2_realtime", FakeScribe, elevenlabs_stt.KEY),
    Ear("openai-realtime/gpt-live-transcribe", FakeRealtimeStt, openai_realtime_stt.KEY),
    Ear("inworld/inworld-stt-1", FakeInworldStt, inworld_stt.KEY),
]


@pytest.mark.parametrize("ear", EARS, ids=lambda ear: ear.spec)
async def test_a_turn_through_it(fake_house: Any, speech: Samples, ear: Ear) -> None:
    """The model is asked in the words of the vendor, the reply is spoken, and nothing stays open at the vendor."""
    name = ear.spec.partition("/")[0]
    async with ear.fake() as vendor:
        vendor.desk.usual = SttCue(text=QUESTION)
        settings = {
            "agents.default.stt": ear.spec,
            f"providers.{name}.base_url": vendor.base_url,
            f"providers.{name}.api_key": ear.key,
            f"providers.{name}.hearing_usd_per_minute": 0.6,
        }
        async with fake_house(settings) as house:
            house.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            async with calling(house.url, session=SESSION) as caller:
                await caller.say(speech, then_silence_ms=400)
                done = await caller.until("response.done")
                assert done["response"]["status"] == "completed"
            record = await eventually(lambda: over(house.url))
        for call in vendor.calls:
            await call.until(call.closed.is_set)
    assert house.vendor.llm.asked[-1].question["messages"][-1] == {"role": "user", "content": QUESTION}
    assert (record["caller_text"], record["agent_text"]) == (QUESTION, "It is noon.")
    assert record["ear_connect_hidden_ms"] is not None
    assert 0 < record["cost"]["hearing_usd"] < 0.05, "of some seconds of sound, at a cent a second"
    assert record["providers"]["stt"] == ear.spec


async def over(url: str) -> dict[str, Any] | None:
    """The latest turn that has ended."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
        turns: list[dict[str, Any]] = (await answer.json())["data"]
        return next((each for each in turns if each["outcome"] is not None), None)
