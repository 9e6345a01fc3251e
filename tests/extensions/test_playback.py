"""Playback reports on a real socket: opted into, refused, and what they do to a turn's record and its history."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.protocol.client_events import Unreadable, read
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Caller, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.events import PlaybackReported

QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
REPORTING = {**QUICK, "providerData": {"voicepipe": {"playback_reports": True}}}
PLAIN = SessionConfig.start(session_id="sess_p", model="default", voice="v", instructions="", expires_at=0)
OPTED_IN = PLAIN.merged(REPORTING)
REPORT = b'{"type":"voicepipe.playback","item_id":"i","played_ms":10.4,"buffered_ms":5,"input_ms":77}'


def test_a_report_is_read_as_it_stands() -> None:
    assert read(REPORT, OPTED_IN) == PlaybackReported("i", 10, 5, 77)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [(REPORT.replace(b"77", b'"x"'), "input_ms"), (REPORT.replace(b'"item_id":"i",', b""), "item_id")],
)
def test_a_wrong_report_names_its_field(wrong: bytes, field: str) -> None:
    refused = read(wrong, OPTED_IN)
    assert isinstance(refused, Unreadable)
    assert refused.field == field


def test_a_session_that_did_not_ask_does_not_know_the_event() -> None:
    refused = read(REPORT, PLAIN)
    assert isinstance(refused, Unreadable)
    assert (refused.field, refused.code) == ("type", "invalid_value")


async def report(caller: Caller, item_id: str, played_ms: int, input_ms: int) -> None:
    await caller.send("voicepipe.playback", item_id=item_id, played_ms=played_ms, buffered_ms=0, input_ms=input_ms)


async def test_the_record_tells_what_the_client_says(house: Any, question: Samples) -> None:
    """What was heard 700 ms after t0 on the client's clock is a heard latency of 700 ms, unless that can't be."""
    async with calling(house.base_url, session=REPORTING) as caller:
        await caller.say(question)
        stopped = await caller.until("input_audio_buffer.speech_stopped")
        done = await caller.until("response.done")
        (item,) = done["response"]["output"]
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        await report(caller, item["id"], 100_000, stopped["audio_end_ms"] + 100_700)
        record = await eventually(lambda: house.closed(turn_id))
    marks = record["marks"]
    assert (record["heard_by"], record["outcome"]) == ("reported", "completed")
    assert marks["first_sent"] <= marks["heard"]
    assert record["total_ms"] == marks["heard"] - marks["voiced_last"]
    assert record["unattributed_ms"] == 0


async def test_an_interrupted_answer_is_kept_to_the_word_that_was_heard(house: Any, question: Samples) -> None:
    async with calling(house.base_url, session=REPORTING) as caller:
        await caller.say(question)
        done = await caller.until("response.done")
        (item,) = done["response"]["output"]
        assert item["content"][0]["transcript"] == "It is noon. Anything else?"
        await report(caller, item["id"], 1, 0)
        await caller.say(question)
        await caller.until("input_audio_buffer.speech_started")
        await report(caller, item["id"], 1, 0)
        await caller.send("conversation.item.retrieve", item_id=item["id"])
        shown = await caller.until("conversation.item.retrieved")
        assert shown["item"]["content"][0]["transcript"] == "It"
        assert shown["item"]["status"] == "incomplete"
