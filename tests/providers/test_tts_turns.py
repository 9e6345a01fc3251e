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
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.built_in import factory
from voicepipe.providers.net import connection_pool
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, LeavesNothing
from voicepipe.testing.fakes import cartesia_tts, deepgram_tts, elevenlabs_tts, inworld_tts, rime_tts
from voicepipe.testing.fakes.cues import LlmCue, TtsCue, tokens
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer
from voicepipe.testing.user import calling

VENDORS = {
    "deepgram": (deepgram_tts.FakeAura, deepgram_tts.KEY, "aura-2-thalia-en"),
    "inworld": (inworld_tts.FakeInworld, inworld_tts.KEY, "inworld-tts-2"),
    "cartesia": (cartesia_tts.FakeCartesia, cartesia_tts.KEY, "sonic-3"),
    "elevenlabs": (elevenlabs_tts.FakeElevenLabs, elevenlabs_tts.KEY, "eleven_flash_v2_5"),
    "rime": (rime_tts.FakeRime, rime_tts.KEY, "coda"),
}

TURNS = 100
SEED = 20_261_121


@pytest.fixture(params=VENDORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def vendor(kind: str) -> AsyncIterator[FakeWsSynthesizer]:
    async with VENDORS[kind][0]() as vendor:
        yield vendor


class TestCancellation(LeavesNothing):
    """A hundred turns are cut at any point: nothing of them is left at the vendor, nor here."""

    @pytest.mark.parametrize("keep", [False, True], ids=["dialled", "warm"])
    async def test_cancellation(self, kind: str, vendor: FakeWsSynthesizer, keep: bool) -> None:
        vendor.script.usual = TtsCue(ms_per_char=4, chunk_bytes=960)
        settings = ProviderSettings(
            kind=kind, base_url=vendor.base_url, api_key=VENDORS[kind][1], idle_timeout_ms=LONG_TIMEOUT_MS
        )
        voice = Voice(model=VENDORS[kind][2])
        dice = random.Random(SEED)
        async with connection_pool.lifetime() if keep else nullcontext():
            synthesizer: Synthesizer = factory(kind, "tts", key="tts")(Spec(kind, voice.model), settings)
            for _ in range(TURNS):
                await self._interrupted(synthesizer, voice, dice)
            for call in vendor.calls:
                await call.until(lambda call=call: call.closed.is_set() or not call.tts_contexts)  # type: ignore[misc]
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
                speech.push(f"Clause number {n} of some length.")
            speech.finish()
            try:
                async for _ in audio_of(speech):
                    await asyncio.sleep(0)
            except StageError:
                pytest.fail("a turn met what was left of another")


async def test_a_turn_through_the_server(
    kind: str, vendor: FakeWsSynthesizer, fake_server: Any, question: Path
) -> None:
    """The user speaks, and the vendor's audio is played to its end; markup for the eye is not spoken."""
    settings = {
        f"providers.{kind}.kind": kind,
        f"providers.{kind}.base_url": vendor.base_url,
        f"providers.{kind}.api_key": VENDORS[kind][1],
        "agents.default.tts": f"{kind}/{VENDORS[kind][2]}",
        "agents.default.language": "en",
    }
    async with fake_server(settings) as server, calling(server.url) as user:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is **noon** now. That makes $5."))
        await user.speak(read_sound(question, 24_000), then_silence_ms=1_000)
        done = await user.until("response.done")
    assert done["response"]["status"] == "completed"
    assert [received.question["input"].strip() for received in vendor.script.received] == [
        "It is noon now.",
        "That makes five dollars.",
    ]
    (item,) = done["response"]["output"]
    assert item["content"][0]["transcript"] == "It is **noon** now. That makes $5."
