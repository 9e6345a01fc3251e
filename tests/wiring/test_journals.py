"""A running server writes its sessions down, and what it wrote is replayed without a difference."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import soundfile

from voicepipe.audio.files import read_sound
from voicepipe.telemetry.journal.format import JournalFile, read_journal
from voicepipe.telemetry.journal.replay import replay
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.user import WIRE_HZ, calling
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


async def test_a_call_is_written_down_and_replayed(fake_server: Any, question: Path) -> None:
    """An answer, an interruption, a text and a tool: the core does all of it again, and the same turns come of it."""
    settings = {"journals.enabled": True, "journals.audio": True, "agents.default.speculate": True}
    async with fake_server(settings) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        speech = read_sound(question, WIRE_HZ)
        async with calling(server.url, session=VAD) as user:
            await user.speak(speech)
            await user.until("response.output_audio.delta")
            await user.speak(speech)
            done = await user.until("response.done")
            await user.send("response.create", response={"output_modalities": ["text"]})
        folder = server.folder / "data" / "journals"
        journal = await closed(folder)
        session = f"{server.url}/v1/sessions/{journal.opening.session}/audio"
        async with aiohttp.ClientSession() as http:
            async with http.get(session) as answer:
                listed = {each["side"]: each for each in (await answer.json())["data"]}
            async with http.get(f"{session}/user") as answer:
                assert (answer.status, answer.content_type) == (200, "audio/wav")
                received, rate_hz = soundfile.read(io.BytesIO(await answer.read()), dtype="int16")
            async with http.get(f"{server.url}/v1/sessions/sess_another/audio/user") as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (404, "audio_not_found")
    (path,) = folder.glob("*.user-24000hz.au")
    assert rate_hz == WIRE_HZ
    assert np.array_equal(received, soundfile.read(path, dtype="int16")[0])
    assert listed.keys() == {"agent", "user"}
    assert listed["user"]["duration_ms"] == len(received) * 1_000 // WIRE_HZ
    assert replay(journal).difference is None
    stored = replay(journal).records
    assert done["response"]["metadata"]["voicepipe_turn"] in stored
    sound = {path.name.split(".")[1]: soundfile.info(path) for path in folder.glob("*.au")}
    assert sound.keys() == {"user-24000hz", "agent-24000hz"}
    assert sound["user-24000hz"].frames >= 2 * len(speech) - WIRE_HZ // 2


async def test_a_server_that_others_can_reach_writes_no_words(fake_server: Any, question: Path) -> None:
    """With `journals.text` at "never" the journal holds pseudonymised words only."""
    async with fake_server({"journals.enabled": True, "journals.text": "never"}) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
        async with calling(server.url, session=VAD) as user:
            await user.speak(read_sound(question, WIRE_HZ))
            await user.until("response.done")
        folder = server.folder / "data" / "journals"
        journal = await closed(folder)
        (path,) = folder.iterdir()
    assert journal.texts == "pseudonymized"
    assert b"noon" not in path.read_bytes()
    assert replay(journal).difference is None
