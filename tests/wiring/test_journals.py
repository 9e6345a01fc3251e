"""A running server writes its sessions down, and what it wrote is replayed without a difference."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import soundfile

from voicepipe.audio.files import read_sound
from voicepipe.telemetry.journal_lines import JournalFile, read_journal
from voicepipe.telemetry.journal_replay import replay
from voicepipe.testing.caller import WIRE_HZ, calling
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.waiting import eventually

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
ANSWER = "It is noon. Anything else?"


async def closed(folder: Path) -> JournalFile:
    """The one journal in there, once its session has ended."""

    async def whole() -> JournalFile | None:
        return await asyncio.to_thread(_only, folder)

    return await eventually(whole)


def _only(folder: Path) -> JournalFile | None:
    (journal,) = [read_journal(path.read_bytes()) for path in folder.glob("*.jsonl")]
    return None if journal.lacks else journal


async def test_a_call_is_written_down_and_replayed(fake_house: Any, question: Path) -> None:
    """An answer, an interruption, a text and a tool: the core does all of it again, and the same turns come of it."""
    settings = {"journals.enabled": True, "journals.audio": True, "agents.default.speculate": True}
    async with fake_house(settings) as house:
        house.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        speech = read_sound(question, WIRE_HZ)
        async with calling(house.url, session=VAD) as caller:
            await caller.say(speech)
            await caller.until("response.output_audio.delta")
            await caller.say(speech)
            done = await caller.until("response.done")
            await caller.send("response.create", response={"output_modalities": ["text"]})
        folder = house.folder / "data" / "journals"
        journal = await closed(folder)
    assert replay(journal).difference is None
    kept = replay(journal).records
    assert done["response"]["metadata"]["voicepipe_turn"] in kept
    sound = {path.name.split(".")[1]: soundfile.info(path) for path in folder.glob("*.au")}
    assert sound.keys() == {"caller-24000hz", "agent-24000hz"}
    assert sound["caller-24000hz"].frames >= 2 * len(speech) - WIRE_HZ // 2


async def test_a_server_that_others_can_reach_writes_no_words(fake_house: Any, question: Path) -> None:
    """Unless it is told to."""
    async with fake_house({"journals.enabled": True, "journals.text": "never"}) as house:
        house.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        async with calling(house.url, session=VAD) as caller:
            await caller.say(read_sound(question, WIRE_HZ))
            await caller.until("response.done")
        folder = house.folder / "data" / "journals"
        journal = await closed(folder)
        (path,) = folder.iterdir()
    assert journal.texts == "disguised"
    assert b"noon" not in path.read_bytes()
    assert replay(journal).difference is None
