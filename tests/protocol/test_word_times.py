"""The times of words, for a client that may resume at another node."""

from __future__ import annotations

import json

import pytest

from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import Message, OutputAudio
from voicepipe.turn.settings import ReplySettings

OPT_IN = {"providerData": {"voicepipe": {"resume": True}}}


def wire(*, resumes: bool, is_shared: bool) -> EventRenderer:
    config = SessionConfig.start(session_id="sess_a1", model="m", voice="v", instructions="", expires_at=0)
    renderer = EventRenderer(config.merged(OPT_IN) if resumes else config)
    renderer.times_words = is_shared
    renderer.render(a.ResponseStarted("r", ReplySettings(), "t"))
    renderer.render(a.OutputStarted("r", Message("i", "assistant", (OutputAudio(""),)), None))
    return renderer


def test_words_are_named_with_their_item() -> None:
    (frame,) = wire(resumes=True, is_shared=True).words("r", (("One", 0), ("two", 200)))
    event = json.loads(frame)
    del event["event_id"]
    assert event == {
        "type": "voicepipe.output_audio.words",
        "response_id": "r",
        "item_id": "i",
        "words": ["One", "two"],
        "starts_ms": [0, 200],
    }


@pytest.mark.parametrize(("resumes", "is_shared"), [(False, True), (True, False)])
def test_a_session_that_cannot_move_gets_none(resumes: bool, is_shared: bool) -> None:
    assert wire(resumes=resumes, is_shared=is_shared).words("r", (("One", 0),)) == []


def test_a_response_that_is_over_has_none() -> None:
    assert wire(resumes=True, is_shared=True).words("other", (("One", 0),)) == []
