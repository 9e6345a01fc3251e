"""Responses on the wire: their settings, their status, and what is sent before, during and after them."""

from __future__ import annotations

import pytest

from tests.protocol.replies import AGENT, CALL, REPLY, SentEventsOf, open_reply, tone
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.turn.conversation import Message
from voicepipe.turn.notifications import OutputStarted, ResponseEnded, ResponseStarted
from voicepipe.turn.settings import ReplySettings

SILENT = ReplySettings(audible=False, voice="alba")
OUT_OF_BAND = ReplySettings(in_conversation=False, voice="alba")


def test_metadata_comes_back_with_the_turn(sent: SentEventsOf) -> None:
    reply = ReplySettings(metadata=(("client_event_id", "x"), ("voicepipe_turn", "forged")))
    sent.render(ResponseStarted("resp_1", reply, "turn_1"), ResponseEnded("resp_1", "completed"))
    for event in sent.events[1:]:
        assert event["response"]["metadata"] == {"client_event_id": "x", "voicepipe_turn": "turn_1"}


def test_text_only_reply(sent: SentEventsOf) -> None:
    """Part type `text`, `response.output_text.*`, no audio events."""
    open_reply(sent, SILENT)
    sent.take(sent.wire.text_delta("resp_1", "Hi "))
    sent.take(sent.wire.text_delta("resp_1", "you"))
    assert sent.wire.audio("resp_1", tone(480)) == []
    sent.render(ResponseEnded("resp_1", "completed"))
    assert sent.types()[6:] == [
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    response = sent.events[-1]["response"]
    assert response["output_modalities"] == ["text"]
    assert response["output"][0]["content"] == [{"type": "output_text", "text": "Hi you"}]


def test_out_of_band_reply_joins_no_conversation(sent: SentEventsOf) -> None:
    """No conversation.item.* events, conversation_id null, beside a response that runs."""
    open_reply(sent)
    out_of_band = Message("item_x", "assistant", (), "in_progress")
    sent.render(ResponseStarted("resp_2", OUT_OF_BAND, "turn_2"), OutputStarted("resp_2", out_of_band, None))
    sent.take(sent.wire.text_delta("resp_2", "out_of_band"))
    sent.take(sent.wire.text_delta("resp_1", "main"))
    sent.render(ResponseEnded("resp_2", "completed"), ResponseEnded("resp_1", "completed"))
    named = [event for event in sent.events if event["type"].startswith("conversation.")]
    assert {event["item"]["id"] for event in named} == {"item_u", "item_a"}
    done = {event["response"]["id"]: event["response"] for event in sent.events if event["type"] == "response.done"}
    assert done["resp_2"]["conversation_id"] is None
    assert done["resp_2"]["output"][0]["content"][0]["transcript"] == "out_of_band"
    assert done["resp_1"]["output"][0]["content"][0]["transcript"] == "main"


@pytest.mark.parametrize(
    ("ended", "details"),
    [
        (ResponseEnded("resp_1", "completed"), None),
        (
            ResponseEnded("resp_1", "cancelled", "turn_detected"),
            {"type": "cancelled", "reason": "turn_detected"},
        ),
        (
            ResponseEnded("resp_1", "cancelled", "client_cancelled"),
            {"type": "cancelled", "reason": "client_cancelled"},
        ),
        (
            ResponseEnded("resp_1", "incomplete", "max_output_tokens"),
            {"type": "incomplete", "reason": "max_output_tokens"},
        ),
        (
            ResponseEnded("resp_1", "failed", "llm_failed", "it broke"),
            {"type": "failed", "error": {"type": "server_error", "code": "llm_failed", "message": "it broke"}},
        ),
    ],
)
def test_status_details(sent: SentEventsOf, ended: ResponseEnded, details: object) -> None:
    """One response.done whatever happened, and everything that was open is closed."""
    open_reply(sent)
    sent.take(sent.wire.text_delta("resp_1", "Hal"))
    sent.render(ended)
    response = sent.events[-1]["response"]
    assert (response["status"], response["status_details"]) == (ended.status, details)
    expected = "completed" if ended.status == "completed" else "incomplete"
    assert [item["status"] for item in response["output"]] == [expected]
    assert sent.checker.unfinished == []


def test_response_may_end_before_it_has_output(sent: SentEventsOf) -> None:
    sent.render(ResponseStarted("resp_1", REPLY, "turn_1"), ResponseEnded("resp_1", "failed", "llm_failed", "no"))
    assert sent.events[-1]["response"]["output"] == []


def test_nothing_of_a_response_after_its_end(sent: SentEventsOf) -> None:
    """Late output is dropped and counted."""
    open_reply(sent)
    sent.render(ResponseEnded("resp_1", "cancelled", "turn_detected"))
    wire: EventRenderer = sent.wire
    assert wire.text_delta("resp_1", "late") == []
    assert wire.audio("resp_1", tone(480)) == []
    assert wire.call_delta("resp_1", CALL.id, "{}") == []
    assert wire.render(OutputStarted("resp_1", AGENT, None)) == []
    assert wire.render(ResponseEnded("resp_1", "completed")) == []
    assert wire.dropped == 5


def test_output_before_its_item_is_dropped(sent: SentEventsOf) -> None:
    sent.render(ResponseStarted("resp_1", REPLY, "turn_1"))
    assert sent.wire.text_delta("resp_1", "early") == []
    assert sent.wire.dropped == 1
