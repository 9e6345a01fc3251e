"""Frames that stop coming, bursts, and a client that does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import WIRE_HZ, calling
from voicepipe.testing.waiting import eventually

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}}}


@dataclass
class Still:
    """A probe: how long a list is, once it has not grown for ten looks."""

    watched: list[Any]
    length: int = -1
    looks: int = 0

    async def __call__(self) -> int | None:
        self.looks = self.looks + 1 if len(self.watched) == self.length else 0
        self.length = len(self.watched)
        return self.length if self.looks >= 10 else None


async def test_muting_in_mid_word_ends_the_turn(server: Any, question: Samples) -> None:
    """No more frames is silence by the clock: the turn ends as if the user had stopped."""
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question[: WIRE_HZ * 14 // 10])
        assert (await user.until("response.done"))["response"]["status"] == "completed"


async def test_two_sentences_in_one_append_are_one_turn_after_all(server: Any, question: Samples) -> None:
    """A burst is counted in samples: the pause in it is as long as it is, whatever the clock says."""
    speech = question[: 2 * WIRE_HZ]
    gap = np.zeros(WIRE_HZ, dtype=np.int16)
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(np.concatenate((speech, gap, speech)), then_silence_ms=1_000)
        await user.until("response.done", lambda event: event["response"]["status"] == "completed")
        started = [e for e in user.events if e["type"] == "input_audio_buffer.speech_started"]
        stopped = [e for e in user.events if e["type"] == "input_audio_buffer.speech_stopped"]
    assert (len(started), len(stopped)) == (2, 2)
    gap_ms = started[1]["audio_start_ms"] - stopped[0]["audio_end_ms"]
    assert 500 <= gap_ms <= 1_600, "the second one's padding may reach back into the gap"


@pytest.mark.slow
async def test_a_client_that_stops_reading_slows_the_voice_and_loses_only_its_line(server: Any) -> None:
    """The synthesizer waits while sound is not taken; when the client reads again all of it is there."""
    server.vendor.llm.usual = LlmCue(tokens=tuple(f"This is sentence number {n} of a long answer. " for n in range(60)))
    server.vendor.tts.usual = TtsCue()
    async with calling(server.base_url, session=VAD) as user:
        await user.send("response.create")
        await user.until("response.output_audio.delta")
        assert await eventually(Still(server.vendor.tts.received)) < 60, "the voice waits for the client"
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        assert len(server.vendor.tts.received) == 60


async def test_hanging_up_in_mid_answer_frees_the_vendor(server: Any, question: Samples) -> None:
    """A closed connection cancels its requests to vendors, and its turn has an outcome."""
    server.vendor.llm.usual = LlmCue(tokens=tuple(f"Sentence number {n}. " for n in range(200)), gap_ms=20)
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        await user.until("response.output_audio.delta")
    await soon((await server.vendor.llm.nth(0)).gone)
    record = await eventually(lambda: server.closed())
    assert (record["outcome"], record["reason"]) == ("abandoned", "the user left")
