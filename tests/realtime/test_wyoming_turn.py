"""A spoken turn whose STT and TTS are in the local network and speak Wyoming."""

from __future__ import annotations

from typing import Any

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.wyoming import FakeWyoming
from voicepipe.testing.user import calling

SESSION = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


async def test_a_turn_through_both(fake_server: Any, speech: Samples) -> None:
    """The LLM gets the transcript, and the TTS audio is played to the user."""
    async with FakeWyoming() as vendor:
        vendor.stt.usual = SttCue(text="No.")
        settings = {
            "agents.default.stt": "home/default",
            "agents.default.tts": "home/default",
            "providers.home.kind": "wyoming",
            "providers.home.base_url": vendor.base_url,
        }
        async with fake_server(settings) as server:
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            async with calling(server.url, session=SESSION) as user:
                await user.speak(speech, then_silence_ms=400)
                done = await user.until("response.done")
    assert done["response"]["status"] == "completed"
    assert server.vendor.llm.received[-1].question["messages"][-1] == {"role": "user", "content": "No."}
    assert vendor.tts.received[-1].question["text"] == "It is noon."
