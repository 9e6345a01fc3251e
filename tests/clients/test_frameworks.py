"""Frameworks for voice agents hold a spoken turn with a running server, unmodified: they only have its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from voicepipe.testing.fakes.cues import LlmCue, TtsCue

pytestmark = pytest.mark.slow

TRANSCRIPT = "what time is it"

Model = Callable[[dict[str, Any]], LlmCue]


@pytest.mark.parametrize("flags", [(), ("--tool",), ("--go-on", "0.3")], ids=" ".join)
async def test_livekit(
    fake_server: Any, drive: Any, livekit_py: list[str], model: Model, answer: str, flags: tuple[str, ...]
) -> None:
    """The Realtime model of its plugin: an answer, a function and its answer, speech over an answer."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        server.vendor.tts.usual = TtsCue(gap_ms=80)  # the answer is not complete when the user speaks over it
        result = await drive(livekit_py, server.url, *flags)
    assert result["transcript"] == (f"{TRANSCRIPT} {TRANSCRIPT}" if "--go-on" in flags else TRANSCRIPT)
    assert result["calls"] == ([["get_weather", '{"place": "Paris"}']] if "--tool" in flags else [])
    assert result["history"][0] == ["user", TRANSCRIPT]
    assert result["history"][-1] == ["assistant", answer]
    if "--go-on" in flags:
        assert (result["interrupted"], result["late_ms"]) == (1, 0)
        assert result["statuses"] == ["cancelled", "completed"]
