"""A spoken turn with several STT and TTS providers: the first one breaks in it, and the user is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
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
    folder: Path

    async def turn(self, speech: Samples) -> Record:
        """One answered turn, and its record."""
        return (await self.turns(speech, 1))[0]

    async def turns(self, speech: Samples, n_turns: int, *, cached_after: int = 0) -> list[Record]:
        """The answered turns of one session, and their records in order; `cached_after`: wait until audio is cached
        after that many turns.
        """
        async with calling(self.url, session=SESSION) as user:
            for n in range(n_turns):
                if n and n == cached_after:
                    await eventually(self._cached)
                await user.speak(speech, then_silence_ms=600)
                done = await user.until("response.done")
                assert done["response"]["status"] == "completed"

        async def over() -> list[Record] | None:
            found = await self._over()
            return found if len(found) == n_turns else None

        return await eventually(over)

    async def _cached(self) -> bool | None:
        return bool(list(self.folder.glob("data/audio-cache/*.sound"))) or None

    async def _over(self) -> list[Record]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/v1/turns") as answer:
            turns: list[Record] = (await answer.json())["data"]
            return sorted((each for each in turns if each["outcome"] is not None), key=lambda each: each["turn"])


@pytest.fixture
def opened(fake_server: Any) -> Any:
    @asynccontextmanager
    async def opened(more: dict[str, object] | None = None) -> AsyncIterator[App]:
        async with FakeDeepgram() as stt, FakeCartesia() as tts:
            settings = {
                "agents.default.stt": "deepgram/nova-3, fake/stt",
                "agents.default.tts": "cartesia/sonic-3, fake/tts",
                "providers.deepgram.base_url": stt.base_url,
                "providers.deepgram.api_key": deepgram_stt.KEY,
                "providers.cartesia.base_url": tts.base_url,
                "providers.cartesia.api_key": cartesia_tts.KEY,
                **(more or {}),
            }
            async with fake_server(settings) as server:
                stt.script.usual = SttCue(text=QUESTION)
                server.vendor.stt.usual = SttCue(text=QUESTION)
                server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon. Anything else?"))
                yield App(server.url, server.vendor, stt, tts, server.folder)

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
    [
        (TtsCue(fault=Cut(after=0)), "fallback"),
        (TtsCue(fault=Cut(after=9_600)), "continuation"),
        (TtsCue(raw=bytes(48_000)), "continuation"),
    ],
    ids=["breaks-before-it", "breaks-in-a-sentence", "sends-only-silence"],
)
async def test_an_answer_is_spoken_though_the_voice_breaks(
    opened: Any, speech: Samples, cue: TtsCue, action: str
) -> None:
    """To its last word, by the other voice, and the record says so."""
    async with opened() as server:
        server.tts.script.usual = cue
        record = await server.turn(speech)
        said = [received.question["input"] for received in server.vendor.tts.received]
    assert said[-1].endswith("Anything else?")
    assert record["agent_text"] == "It is noon. Anything else?"
    assert record["providers"]["tts"] == "fake/tts"
    assert set(record["actions"]) == {action}  # of each reply: a stalled microphone starts a second one
    assert "cartesia/sonic-3: " in record["route"]


async def test_a_stand_in_is_paid_for_what_it_synthesized_and_not_for_what_was_cached(
    opened: Any, speech: Samples
) -> None:
    """The first voice is dead. The other one speaks twice, and is played from disk the third time: it is named in each
    turn, and paid in two; the dead one never.
    """
    prices = {"providers.cartesia.tts_usd_per_million_chars": 9_000, "providers.fake.tts_usd_per_million_chars": 100}
    async with opened({"server.audio_cache_mb": 1, **prices}) as server:
        server.tts.script.usual = TtsCue(fault=Cut(after=0))
        server.vendor.llm.usual = LlmCue(tokens=("It is noon.",))
        records = await server.turns(speech, 3, cached_after=2)
        n_requests = len(server.vendor.tts.received)
    assert n_requests == 2
    assert [record["providers"]["tts"] for record in records] == ["fake/tts"] * 3
    paid = len("It is noon.") * 100 / 1e6
    assert [record["cost"]["tts_usd"] for record in records] == pytest.approx([paid, paid, 0.0])
    assert [record["cost"]["hedge_usd"] for record in records] == [0.0] * 3
