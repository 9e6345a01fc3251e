"""Playback reports on a real socket: opted into, refused, and what they do to a turn's record and its history."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.protocol.inbound import Unreadable, read
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.events import PlaybackReported

QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
REPORTING = {**QUICK, "providerData": {"voicepipe": {"playback_reports": True}}}
PLAIN = SessionConfig.start(session_id="sess_p", model="default", voice="v", instructions="", expires_at=0)
OPTED_IN = PLAIN.merged(REPORTING)
REPORT = b'{"type":"voicepipe.playback","item_id":"i","played_ms":10.4,"buffered_ms":5,"input_ms":77}'


def test_a_report_is_read_as_it_stands() -> None:
    assert read(REPORT, OPTED_IN) == PlaybackReported("i", 10, 5, 77)


def test_a_report_of_a_phone_carrier_has_the_way_to_it() -> None:
    of_carrier = REPORT.replace(b'"input_ms"', b'"carrier_estimated_ms":79.6,"input_ms"')
    assert read(of_carrier, OPTED_IN) == PlaybackReported("i", 10, 5, 77, carrier_estimated_ms=80)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [(REPORT.replace(b"77", b'"x"'), "input_ms"), (REPORT.replace(b'"item_id":"i",', b""), "item_id")],
)
def test_a_wrong_report_names_its_field(wrong: bytes, field: str) -> None:
    refused = read(wrong, OPTED_IN)
    assert isinstance(refused, Unreadable)
    assert refused.field == field


def test_event_is_unknown_without_the_extension() -> None:
    refused = read(REPORT, PLAIN)
    assert isinstance(refused, Unreadable)
    assert (refused.field, refused.code) == ("type", "invalid_value")


async def report(user: User, item_id: str, played_ms: int, input_ms: int) -> None:
    await user.send("voicepipe.playback", item_id=item_id, played_ms=played_ms, buffered_ms=0, input_ms=input_ms)


async def test_record_uses_playback_reports(server: Any, question: Samples) -> None:
    """Playback that began 700 ms after t0 on the client's clock is a turn latency of 700 ms, unless that is
    impossible.
    """
    async with calling(server.base_url, session=REPORTING) as user:
        await user.speak(question)
        stopped = await user.until("input_audio_buffer.speech_stopped")
        done = await user.until("response.done")
        (item,) = done["response"]["output"]
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        await report(user, item["id"], 100_000, stopped["audio_end_ms"] + 100_700)
        record = await eventually(lambda: server.closed(turn_id))
    marks = record["marks"]
    assert (record["latency_source"], record["outcome"]) == ("reported", "completed")
    assert marks["first_sent"] <= marks["first_audible"]
    assert record["total_ms"] == marks["first_audible"] - marks["voiced_last"]
    assert record["unattributed_ms"] == 0


async def test_interrupted_answer_is_truncated_to_the_played_word(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session=REPORTING) as user:
        await user.speak(question)
        done = await user.until("response.done")
        (item,) = done["response"]["output"]
        assert item["content"][0]["transcript"] == "It is noon. Anything else?"
        await report(user, item["id"], 1, 0)
        await user.speak(question)
        await user.until("input_audio_buffer.speech_started")
        await report(user, item["id"], 1, 0)
        await user.send("conversation.item.retrieve", item_id=item["id"])
        retrieved = await user.until("conversation.item.retrieved")
        assert retrieved["item"]["content"][0]["transcript"] == "It"
        assert retrieved["item"]["status"] == "incomplete"
