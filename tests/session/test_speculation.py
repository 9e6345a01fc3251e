"""Replies that are started at the first short silence and held until the turn is over, on real sockets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, Status, tokens
from voicepipe.testing.user import WIRE_HZ, calling
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1_300}}}}


@pytest.fixture
def speculates() -> bool:
    return True


async def test_a_reply_is_made_within_the_silence_and_held(server: Any, question: Samples) -> None:
    """The LLM request precedes the end of the turn; nothing leaves until then, and the user waits for the gate."""
    async with calling(server.base_url, session=VAD) as user:
        await user.speak_in_real_time(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        assert user.kinds().index("response.created") > user.kinds().index("input_audio_buffer.committed")
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        record = await eventually(lambda: server.closed(turn_id))
    marks = record["marks"]
    assert marks["llm_requested"] < marks["ended"] <= marks["gate_opened"]
    assert sum(part["duration_ms"] for part in record["contributions"]) == record["total_ms"]
    early = record["speculation"]
    assert (early["starts"], early["used"], early["wasted_input_tokens"]) == (1, 1, 0)
    assert 0 < early["saved_ms"] <= marks["ended"] - marks["llm_requested"] + 20
    assert len(server.vendor.llm.received) == 1


async def test_a_guess_that_breaks_costs_nothing(server: Any, question: Samples) -> None:
    """The provider fails while the user could still go on: the turn's end sends the request again."""
    server.vendor.llm.cue(LlmCue(fault=Status(500)))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak_in_real_time(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    assert len(server.vendor.llm.received) == 2


async def test_continued_speech_gets_one_answer(server: Any, question: Samples) -> None:
    """The speculative reply at the first pause is cancelled at the vendor; the model gets the whole utterance."""
    server.vendor.llm.cue(LlmCue(tokens=tokens("I spoke too soon."), gap_ms=2_000))
    speech = question[: 2 * WIRE_HZ]  # and 0.6 s of quiet before the next word: a pause, not an end
    async with calling(server.base_url, session=VAD) as user:
        await user.speak_in_real_time(np.concatenate((speech, question)))
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == "It is noon. Anything else?"
        assert [e["type"] for e in user.events].count("response.created") == 1
        record = await eventually(lambda: server.closed(done["response"]["metadata"]["voicepipe_turn"]))
    early = record["speculation"]
    assert (early["starts"], early["used"], early["estimated"]) == (2, 1, True)
    assert early["wasted_input_tokens"] > 0
    assert record["session_speculation"] == early
    assert (await server.vendor.llm.nth(0)).gone.is_set()
