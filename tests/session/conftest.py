"""A whole server on a real port, its providers a fake vendor on another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.testing.user import WIRE_HZ
from voicepipe.wiring import running

CLIPS = Path(__file__).parents[1] / "data" / "clean"
VAD = {"type": "server_vad", "silence_duration_ms": 200}


@dataclass
class RunningServer:
    """A running server, and the vendor behind it."""

    base_url: str
    vendor: FakeVendor

    async def turns(self) -> list[dict[str, Any]]:
        """The records of turns, newest first."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.base_url}/v1/turns") as answer:
            found: list[dict[str, Any]] = (await answer.json())["data"]
            return found

    async def newest(self) -> dict[str, Any] | None:
        """The newest record, if one is stored by now."""
        return next(iter(await self.turns()), None)

    async def closed(self, turn_id: str | None = None) -> dict[str, Any] | None:
        """The record of that turn, or of the newest, if it has an outcome."""
        turns = (turn for turn in await self.turns() if turn_id in (None, turn["id"]))
        record = next(turns, None)
        return record if record is not None and record["outcome"] else None


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    """Every session of the server, written down as a journal, is replayed without a difference."""
    sessions = JournalCheck()
    with sessions.watching():
        yield
    assert sessions.problems() == []


@pytest.fixture
def speculates() -> bool:
    """Whether the agent starts its reply before the turn is over; a test module may say otherwise."""
    return False


@pytest.fixture
def phrases() -> dict[str, str]:
    """What the agent says of its own accord; a test module may say otherwise."""
    return {"filler": "", "apology": ""}


@pytest.fixture
def is_impatient() -> bool:
    """Whether time-outs and deadlines are short, for a test that waits for one. A busy machine alone exceeds them."""
    return False


@pytest.fixture
def more_settings() -> dict[str, object]:
    """Settings by their dotted keys; a test module may have some."""
    return {}


@pytest.fixture
async def server(
    tmp_path: Path, speculates: bool, phrases: dict[str, str], is_impatient: bool, more_settings: dict[str, object]
) -> AsyncIterator[RunningServer]:
    """A server whose every stage is the fake vendor."""
    idle_ms, transcript_ms, output_ms = (1_500, 2_000, 2_500) if is_impatient else (10_000, 10_000, 10_000)
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=tokens("It is noon. Anything else?"))
        overrides: dict[str, object] = {
            "server.port": 0,
            "server.data_dir": str(tmp_path / "data"),
            "server.drain_ms": 0,
            "providers.fake.base_url": vendor.base_url,
            "providers.fake.idle_timeout_ms": idle_ms,
            "agents.default.stt": "fake/stt",
            "agents.default.llm": "fake/llm",
            "agents.default.tts": "fake/tts",
            "agents.default.speculate": speculates,
            **{f"agents.default.{name}": words for name, words in phrases.items()},
            "deadlines.transcript_ms": transcript_ms,
            "deadlines.first_output_ms": output_ms,
            "deadlines.progress_ms": output_ms,
            **more_settings,
        }
        settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
        async with running(settings) as server:
            yield RunningServer(server.base_url, vendor)


@pytest.fixture(scope="session")
def question() -> Samples:
    """A short spoken question, with the silence after it: int16 at 24 kHz."""
    return read_sound(CLIPS / "vctk_p287_001.flac", WIRE_HZ)
