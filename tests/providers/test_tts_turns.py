"""Voices that stream, in many interrupted turns, and in one through a whole server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.errors import StageError
from voicepipe.providers.net import warm
from voicepipe.registry import ProviderSettings, Spec, factory
from voicepipe.stages.synthesizer import Synthesizer, Voice
from voicepipe.testing.caller import calling
from voicepipe.testing.conformance.promptness import PATIENT_MS, LeavesNothing
from voicepipe.testing.fakes import cartesia_voice, deepgram_voice, elevenlabs_voice, inworld_voice, rime_voice
from voicepipe.testing.fakes.cues import LlmCue, TtsCue, tokens
from voicepipe.testing.fakes.live_voice import FakeLiveVoice

VENDORS = {
    "deepgram": (deepgram_voice.FakeAura, deepgram_voice.KEY, "aura-2-thalia-en"),
    "inworld": (inworld_voice.FakeInworld, inworld_voice.KEY, "inworld-tts-2"),
    "cartesia": (cartesia_voice.FakeCartesia, cartesia_voice.KEY, "sonic-3"),
    "elevenlabs": (elevenlabs_voice.FakeElevenLabs, elevenlabs_voice.KEY, "eleven_flash_v2_5"),
    "rime": (rime_voice.FakeRime, rime_voice.KEY, "coda"),
}

TURNS = 100
SEED = 20_261_121


@pytest.fixture(params=VENDORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def vendor(kind: str) -> AsyncIterator[FakeLiveVoice]:
    async with VENDORS[kind][0]() as vendor:
        yield vendor


class TestStorm(LeavesNothing):
    """A hundred turns are cut at any point: nothing of them is left at the vendor, nor here."""

    @pytest.mark.parametrize("keep", [False, True], ids=["dialled", "warm"])
    async def test_storm(self, kind: str, vendor: FakeLiveVoice, keep: bool) -> None:
        vendor.desk.usual = TtsCue(ms_per_char=4, chunk_bytes=960)
        settings = ProviderSettings(
            kind=kind, base_url=vendor.base_url, api_key=VENDORS[kind][1], idle_timeout_ms=PATIENT_MS
        )
        voice = Voice(model=VENDORS[kind][2])
        dice = random.Random(SEED)
        async with warm.lifetime() if keep else nullcontext():
            synthesizer: Synthesizer = factory(kind, "tts", key="tts")(Spec(kind, voice.model), settings)
            for _ in range(TURNS):
                await self._interrupted(synthesizer, voice, dice)
            for call in vendor.calls:
                await call.until(lambda call=call: call.closed.is_set() or not call.talks)  # type: ignore[misc]
            assert vendor.open_contexts == 0
        for call in vendor.calls:
            await call.until(call.closed.is_set)

    async def _interrupted(self, synthesizer: Synthesizer, voice: Voice, dice: random.Random) -> None:
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(self._turn(synthesizer, voice, dice.randrange(4)))
            for _ in range(dice.randrange(300)):
                if turn.done():
                    break
                await asyncio.sleep(0)
            turn.cancel()

    async def _turn(self, synthesizer: Synthesizer, voice: Voice, n_clauses: int) -> None:
        async with synthesizer.open(voice) as speech:
            for n in range(n_clauses):
                speech.say(f"Clause number {n} of some length.")
            speech.finish()
            try:
                async for _ in speech:
                    await asyncio.sleep(0)
            except StageError:
                pytest.fail("a turn met what was left of another")


async def test_a_turn_through_the_server(kind: str, vendor: FakeLiveVoice, fake_house: Any, question: Path) -> None:
    """The caller speaks, and hears the vendor's sound to its end; what was marked for the eye is not said."""
    settings = {
        f"providers.{kind}.kind": kind,
        f"providers.{kind}.base_url": vendor.base_url,
        f"providers.{kind}.api_key": VENDORS[kind][1],
        "agents.default.tts": f"{kind}/{VENDORS[kind][2]}",
        "agents.default.language": "en",
    }
    async with fake_house(settings) as house, calling(house.url) as caller:
        house.vendor.llm.usual = LlmCue(tokens=tokens("It is **noon** now. That makes $5."))
        await caller.say(read_sound(question, 24_000), then_silence_ms=1_000)
        done = await caller.until("response.done")
    assert done["response"]["status"] == "completed"
    assert [asked.question["input"].strip() for asked in vendor.desk.asked] == [
        "It is noon now.",
        "That makes five dollars.",
    ]
    (item,) = done["response"]["output"]
    assert item["content"][0]["transcript"] == "It is **noon** now. That makes $5."
