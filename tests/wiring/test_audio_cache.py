"""The audio cache in a whole server: what is said again comes from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.testing.caller import calling
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.waiting import eventually


async def answered(house: Any, question: Path) -> int:
    """Ask once; returns how much sound the answer had, in characters of base64."""
    async with calling(house.url) as caller:
        await caller.say(read_sound(question, 24_000), then_silence_ms=1_000)
        done = await caller.until("response.done")
        assert done["response"]["status"] == "completed"
        return sum(len(event["delta"]) for event in caller.events if event["type"] == "response.output_audio.delta")


async def test_third_time_is_from_disk(fake_house: Any, question: Path) -> None:
    """The vendor is asked twice, the caller hears the same three times, and the folder is below `data_dir`."""
    async with fake_house({"server.audio_cache_mb": 1}) as house:
        house.vendor.llm.usual = LlmCue(tokens=tokens("Of course!"))
        heard = [await answered(house, question) for _ in range(2)]
        folder = house.folder / "data" / "audio-cache"

        async def is_kept() -> bool | None:
            return bool(list(folder.glob("*.sound"))) or None

        await eventually(is_kept)
        heard.append(await answered(house, question))
        assert len(house.vendor.tts.asked) == 2
        assert len(set(heard)) == 1


async def test_nothing_is_kept_unless_asked(fake_house: Any, question: Path) -> None:
    async with fake_house() as house:
        house.vendor.llm.usual = LlmCue(tokens=tokens("Of course!"))
        for _ in range(3):
            await answered(house, question)
        assert len(house.vendor.tts.asked) == 3
        assert not (house.folder / "data" / "audio-cache").exists()


def test_bounds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.audio_cache_mb"):
        load(overrides={"server.audio_cache_mb": -1}, environ={"HOME": str(tmp_path)}, folder=tmp_path)
