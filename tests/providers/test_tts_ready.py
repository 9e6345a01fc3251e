"""A voice's socket is there when a session's first turn wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from voicepipe.audio.files import read_sound
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.fakes.elevenlabs_tts import KEY, FakeElevenLabs
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

VOICE_ID = "EXAVITQu4vr4xnSDxMaL"


async def of_the_turn(url: str) -> dict[str, Any] | None:
    """The record of the latest turn, when there is one."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
        turns: list[dict[str, Any]] = (await answer.json())["data"]
    return next((turn for turn in turns if turn["tts_connect_hidden_ms"] is not None), None)


async def test_it_is_dialled_when_the_session_begins(fake_server: Any, question: Path) -> None:
    """And again when the session chooses another voice, whose socket is another one."""
    async with FakeElevenLabs() as vendor:
        settings = {
            "providers.elevenlabs.base_url": vendor.base_url,
            "providers.elevenlabs.api_key": KEY,
            "agents.default.tts": "elevenlabs/eleven_flash_v2_5",
        }
        async with fake_server(settings) as server, calling(server.url) as user:
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon now."))
            await vendor.nth(0)
            assert not server.vendor.llm.received
            update = {"type": "realtime", "audio": {"output": {"voice": VOICE_ID}}}
            await user.send("session.update", session=update)
            await vendor.nth(1)
            await user.speak(read_sound(question, 24_000), then_silence_ms=1_000)
            done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        spoke = [call for call in vendor.calls if call.peak_contexts]
        assert spoke == [vendor.calls[1]]
        assert VOICE_ID in spoke[0].path


async def test_its_record_has_the_hidden_connection_time(fake_server: Any, question: Path) -> None:
    """All of it, in a turn that found its socket."""
    async with FakeElevenLabs() as vendor:
        settings = {
            "providers.elevenlabs.base_url": vendor.base_url,
            "providers.elevenlabs.api_key": KEY,
            "agents.default.tts": "elevenlabs/eleven_flash_v2_5",
        }
        async with fake_server(settings) as server, calling(server.url) as user:
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon now."))
            await vendor.nth(0)
            await user.speak(read_sound(question, 24_000), then_silence_ms=1_000)
            await user.until("response.done")
            record = await eventually(lambda: of_the_turn(server.url))
    assert record["tts_connect_hidden_ms"] >= 0
    assert record["providers"]["tts"] == "elevenlabs/eleven_flash_v2_5"
