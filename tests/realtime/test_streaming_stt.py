"""A spoken turn through each streaming STT, at its vendor's fake; LLM and TTS are other vendors'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import aiohttp
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes import (
    assemblyai_stt,
    cartesia_stt,
    deepgram_stt,
    elevenlabs_stt,
    inworld_stt,
    openai_realtime_stt,
)
from voicepipe.testing.fakes.assemblyai_stt import FakeAssemblyAi
from voicepipe.testing.fakes.cartesia_stt import FakeInk, FakeInkTurns, turn
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram_flux import FakeFlux
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram
from voicepipe.testing.fakes.elevenlabs_stt import FakeScribe
from voicepipe.testing.fakes.inworld_stt import FakeInworldStt
from voicepipe.testing.fakes.openai_realtime_stt import FakeRealtimeStt
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

QUESTION = "No."
"""What the recording says: one word, in its middle."""
SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


class OneTurn(FakeInkTurns):
    """Answer with the question's text as soon as any audio comes."""

    def on_audio(self, call: SttConnection) -> Iterable[str]:
        if not call.speaking:
            call.speaking = True
            yield turn("start")
            yield turn("update", QUESTION)


class SttVendor(NamedTuple):
    spec: str
    fake: type[FakeWsTranscriber]
    key: str


STT_VENDORS = [
    SttVendor("deepgram/nova-3", FakeDeepgram, deepgram_stt.KEY),
    SttVendor("deepgram/flux-general-en", FakeFlux, deepgram_stt.KEY),
    SttVendor("assemblyai/universal-streaming", FakeAssemblyAi, assemblyai_stt.KEY),
    SttVendor("cartesia/ink-whisper", FakeInk, cartesia_stt.KEY),
    SttVendor("cartesia/ink-2", OneTurn, cartesia_stt.KEY),
    SttVendor("elevenlabs/scribe_v2_realtime", FakeScribe, elevenlabs_stt.KEY),
    SttVendor("openai-realtime/gpt-live-transcribe", FakeRealtimeStt, openai_realtime_stt.KEY),
    SttVendor("inworld/inworld-stt-1", FakeInworldStt, inworld_stt.KEY),
]


@pytest.mark.parametrize("stt", STT_VENDORS, ids=lambda stt: stt.spec)
async def test_a_turn_through_it(fake_server: Any, speech: Samples, stt: SttVendor) -> None:
    """The LLM gets the vendor's transcript, the reply is spoken, and nothing stays open at the vendor."""
    name = stt.spec.partition("/")[0]
    async with stt.fake() as vendor:
        vendor.script.usual = SttCue(text=QUESTION)
        settings = {
            "agents.default.stt": stt.spec,
            f"providers.{name}.base_url": vendor.base_url,
            f"providers.{name}.api_key": stt.key,
            f"providers.{name}.stt_usd_per_minute": 0.6,
        }
        async with fake_server(settings) as server:
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            async with calling(server.url, session=SESSION) as user:
                await user.speak(speech, then_silence_ms=400)
                done = await user.until("response.done")
                assert done["response"]["status"] == "completed"
            record = await eventually(lambda: over(server.url))
        for call in vendor.calls:
            await call.until(call.closed.is_set)
    assert server.vendor.llm.received[-1].question["messages"][-1] == {"role": "user", "content": QUESTION}
    assert (record["user_text"], record["agent_text"]) == (QUESTION, "It is noon.")
    assert record["stt_connect_hidden_ms"] is not None
    assert 0 < record["cost"]["stt_usd"] < 0.05, "of some seconds of sound, at a cent a second"
    assert record["providers"]["stt"] == stt.spec


async def over(url: str) -> dict[str, Any] | None:
    """The latest turn that has ended."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
        turns: list[dict[str, Any]] = (await answer.json())["data"]
        return next((each for each in turns if each["outcome"] is not None), None)
