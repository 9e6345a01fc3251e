"""The audio cache in a whole server: what is said again comes from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually


async def answered(server: Any, question: Path) -> int:
    """Ask once; returns how much sound the answer had, in characters of base64."""
    async with calling(server.url) as user:
        await user.speak(read_sound(question, 24_000), then_silence_ms=1_000)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        return sum(len(event["delta"]) for event in user.events if event["type"] == "response.output_audio.delta")


async def test_third_time_is_from_disk(fake_server: Any, question: Path) -> None:
    """The vendor gets two requests, the user gets the same audio three times, and the folder is below `data_dir`."""
    async with fake_server({"server.audio_cache_mb": 1}) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Of course!"))
        answers = [await answered(server, question) for _ in range(2)]
        folder = server.folder / "data" / "audio-cache"

        async def is_cached() -> bool | None:
            return bool(list(folder.glob("*.sound"))) or None

        await eventually(is_cached)
        answers.append(await answered(server, question))
        assert len(server.vendor.tts.received) == 2
        assert len(set(answers)) == 1


async def test_nothing_is_cached_unless_enabled(fake_server: Any, question: Path) -> None:
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Of course!"))
        for _ in range(3):
            await answered(server, question)
        assert len(server.vendor.tts.received) == 3
        assert not (server.folder / "data" / "audio-cache").exists()


def test_bounds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.audio_cache_mb"):
        load(overrides={"server.audio_cache_mb": -1}, environ={"HOME": str(tmp_path)}, folder=tmp_path)
