"""The events of a session that another process had before."""

from __future__ import annotations

import json

import pytest

from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.settings import ReplySettings


@pytest.fixture
def wire() -> EventRenderer:
    config = SessionConfig.start(session_id="sess_a1", model="m", voice="v", instructions="", expires_at=0)
    return EventRenderer(config)


def test_its_events_are_numbered_as_they_are_sent(wire: EventRenderer) -> None:
    """From the answer to the resumption on: the connection counts frames, and finds an event by its number."""
    wire.go_on(2)
    frames = [wire.resumed("s", input_received_ms=5, window_ms=9, moved=True)]
    frames += wire.ended_elsewhere("resp_1", ReplySettings(), "")
    frames += wire.updated(wire.config)
    numbers = [wire.number_of(json.loads(frame)["event_id"]) for frame in frames]
    assert numbers == list(range(1, len(frames) + 1))
    assert json.loads(frames[0])["moved"] is True


def test_events_of_the_former_process_are_all_before_its_own(wire: EventRenderer) -> None:
    """A client may resume again before any event came; an id of another session is none of ours."""
    before = json.loads(wire.updated(wire.config)[0])["event_id"]
    assert wire.number_of(before) == 1
    wire.updated(wire.config)
    wire.go_on(1)
    first = json.loads(wire.updated(wire.config)[0])["event_id"]
    assert (wire.number_of(before), wire.number_of("event_other_5"), wire.number_of(None)) == (1, None, 0)
    wire.go_on(2)
    assert wire.number_of(first) == 1


def test_the_response_that_was_open_ends_cancelled(wire: EventRenderer) -> None:
    wire.go_on(1)
    (frame,) = wire.ended_elsewhere("resp_1", ReplySettings(), "")
    response = json.loads(frame)["response"]
    assert (response["id"], response["status"], response["output"]) == ("resp_1", "cancelled", [])
