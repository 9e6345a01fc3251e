"""A whole server on a real port, its providers a fake vendor on another, its deadlines short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import WIRE_HZ
from voicepipe.wiring import running

CLIPS = Path(__file__).parents[1] / "data" / "clean"


@dataclass
class RunningServer:
    """A running server, and the vendor behind it."""

    base_url: str
    vendor: FakeVendor

    async def closed(self, turn_id: str) -> dict[str, Any] | None:
        """The record of that turn, if it has an outcome."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.base_url}/v1/turns/{turn_id}") as answer:
            record: dict[str, Any] = await answer.json()
            return record if answer.status == 200 and record["outcome"] else None


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    """A server whose every stage is the fake vendor."""
    async with FakeVendor() as vendor:
        # Each clause comes whole: a busy machine might else shorten it at a word, and the sound be another one.
        vendor.llm.usual = LlmCue(tokens=("It is noon. ", "Anything else?"))
        overrides: dict[str, object] = {
            "server.port": 0,
            "server.data_dir": str(tmp_path / "data"),
            "server.drain_ms": 0,
            "providers.fake.base_url": vendor.base_url,
            "agents.default.stt": "fake/stt",
            "agents.default.llm": "fake/llm",
            "agents.default.tts": "fake/tts",
        }
        settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
        async with running(settings) as server:
            yield RunningServer(server.base_url, vendor)


@pytest.fixture(scope="session")
def question() -> Samples:
    """A short spoken question, with the silence after it: int16 at 24 kHz."""
    return read_sound(CLIPS / "vctk_p287_001.flac", WIRE_HZ)
