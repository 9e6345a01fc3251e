"""Replies that are started at the first short silence and held until the turn is over, on real sockets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import WIRE_HZ, calling
from voicepipe.testing.fakes.cues import LlmCue, Status, tokens
from voicepipe.testing.waiting import eventually

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1_300}}}}


@pytest.fixture
def speculates() -> bool:
    return True


async def test_a_reply_is_made_within_the_silence_and_held(house: Any, question: Samples) -> None:
    """The model is asked before the turn is over; nothing leaves until then, and the caller waits for the gate."""
    async with calling(house.base_url, session=VAD) as caller:
        await caller.say_in_real_time(question)
        done = await caller.until("response.done")
        assert done["response"]["status"] == "completed"
        assert caller.kinds().index("response.created") > caller.kinds().index("input_audio_buffer.committed")
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        record = await eventually(lambda: house.closed(turn_id))
    marks = record["marks"]
    assert marks["asked"] < marks["ended"] <= marks["gate_opened"]
    assert sum(part["duration_ms"] for part in record["contributions"]) == record["total_ms"]
    early = record["speculation"]
    assert (early["starts"], early["kept"], early["wasted_input_tokens"]) == (1, 1, 0)
    assert 0 < early["saved_ms"] <= marks["ended"] - marks["asked"] + 20
    assert len(house.vendor.llm.asked) == 1


async def test_a_guess_that_breaks_costs_nothing(house: Any, question: Samples) -> None:
    """The provider fails while the caller could still go on: the turn's end asks again."""
    house.vendor.llm.cue(LlmCue(fault=Status(500)))
    async with calling(house.base_url, session=VAD) as caller:
        await caller.say_in_real_time(question)
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
    assert len(house.vendor.llm.asked) == 2


async def test_a_caller_who_goes_on_hears_one_answer(house: Any, question: Samples) -> None:
    """The guess at the first pause is cancelled at the vendor; the model is asked about the whole of it."""
    house.vendor.llm.cue(LlmCue(tokens=tokens("I spoke too soon."), gap_ms=400))
    speech = question[: 2 * WIRE_HZ]  # and 0.6 s of quiet before the next word: a pause, not an end
    async with calling(house.base_url, session=VAD) as caller:
        await caller.say_in_real_time(np.concatenate((speech, question)))
        done = await caller.until("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == "It is noon. Anything else?"
        assert [e["type"] for e in caller.events].count("response.created") == 1
        record = await eventually(lambda: house.closed(done["response"]["metadata"]["voicepipe_turn"]))
    early = record["speculation"]
    assert (early["starts"], early["kept"], early["estimated"]) == (2, 1, True)
    assert early["wasted_input_tokens"] > 0
    assert record["session_speculation"] == early
    assert (await house.vendor.llm.nth(0)).gone.is_set()
