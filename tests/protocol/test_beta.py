"""The older dialect: the same turn in its names and shapes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from voicepipe.protocol.beta import BETA
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import SemanticVad, Transcription
from voicepipe.testing.strict_events import problems as shape_problems
from voicepipe.turn.conversation import (
    ApprovalAnswer,
    FunctionCall,
    InputAudio,
    InputImage,
    InputText,
    Message,
    OutputText,
    ToolList,
)
from voicepipe.turn.notifications import (
    AudioCommitted,
    InputSpeechStarted,
    InputSpeechStopped,
    ItemAdded,
    OutputStarted,
    Refused,
    ResponseEnded,
    ResponseStarted,
    ToolApproved,
    ToolEnded,
    TranscriptDone,
)
from voicepipe.turn.settings import ReplySettings, Tool
from voicepipe.values import replace

CONFIG = SessionConfig.start(
    session_id="sess_b",
    model="gpt-4o-realtime-preview",
    voice="alloy",
    instructions="",
    expires_at=1,
    transcription=Transcription(model="whisper-1"),
    tools=(Tool("f", "d", '{"type":"object"}'),),
)


def decoded(frames: Frames) -> list[dict[str, Any]]:
    """The events, each found to be of the older published shape."""
    events = [json.loads(frame) for frame in frames]
    assert [problem for event in events for problem in shape_problems(event, dialect="beta")] == []
    return events


def test_beta_greets_with_a_flat_session_and_the_conversation() -> None:
    created, conversation = decoded(EventRenderer(CONFIG, dialect=BETA).hello())
    assert created["session"]["modalities"] == ["text", "audio"]
    assert created["session"]["input_audio_format"] == "pcm16"
    assert created["session"]["turn_detection"]["silence_duration_ms"] == 500
    assert conversation["type"] == "conversation.created"


def test_beta_session_shows_what_an_update_set() -> None:
    wire = EventRenderer(CONFIG, dialect=BETA)
    config = CONFIG.merged({"modalities": ["text"], "output_audio_format": "g711_ulaw", "turn_detection": None})
    (event,) = decoded(wire.updated(config))
    rendered = event["session"]
    assert (rendered["modalities"], rendered["output_audio_format"]) == (["text"], "g711_ulaw")
    assert rendered["turn_detection"] is None
    (event,) = decoded(wire.updated(CONFIG.merged({"turn_detection": {"type": "semantic_vad"}})))
    assert event["session"]["turn_detection"]["eagerness"] == SemanticVad().eagerness


def test_beta_turn() -> None:
    wire = EventRenderer(CONFIG, dialect=BETA)
    frames: Frames = []
    for what in (
        InputSpeechStarted("u", 0),
        InputSpeechStopped("u", 9),
        AudioCommitted("u", None),
        ItemAdded(Message("u", "user", (InputAudio(),)), None),
        TranscriptDone("u", "hi", 9),
        ResponseStarted("r", ReplySettings(voice="alloy", metadata=(("a", "b"),)), "t"),
        OutputStarted("r", Message("a", "assistant", ()), "u"),
    ):
        frames += wire.render(what)
    frames += wire.text_delta("r", "hello") + wire.audio("r", np.ones(480, dtype=np.int16))
    frames += wire.render(OutputStarted("r", FunctionCall("a_call0", "c", "f", ""), "a"))
    frames += wire.call_delta("r", "a_call0", "{}") + wire.render(ResponseEnded("r", "completed"))
    events = decoded(frames)
    assert [event["type"] for event in events[3:]] == [
        "conversation.item.created",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        "response.audio_transcript.delta",
        "response.audio.delta",
        "response.output_item.added",
        "conversation.item.created",
        "response.function_call_arguments.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.done",
    ]
    response = events[-1]["response"]
    assert response["output"][0]["content"] == [{"type": "audio", "transcript": "hello"}]
    assert response["metadata"] == {"a": "b", "voicepipe_turn": "t"}


def test_beta_text_only_and_errors() -> None:
    wire = EventRenderer(CONFIG, dialect=BETA)
    frames = wire.render(ResponseStarted("r", ReplySettings(audible=False), "t"))
    frames += wire.render(OutputStarted("r", Message("a", "assistant", ()), None)) + wire.text_delta("r", "x")
    frames += wire.render(ResponseEnded("r", "failed", "llm_failed", "no")) + wire.render(Refused("e", "c", "m"))
    events = decoded(frames)
    assert "response.text.done" in [event["type"] for event in events]
    assert events[-2]["response"]["output"][0]["content"] == [{"type": "text", "text": "x"}]
    assert events[-1]["error"]["event_id"] == "e"


def test_beta_has_the_servers_calls_as_items_alone() -> None:
    """The older dialect has no event for them, in or beside the conversation: an item that is complete, no output."""
    call = FunctionCall("c", "call_1", "look_up", "{}", "in_progress", server_label="agent")
    for in_conversation, items in ((True, [("conversation.item.created", "function_call", "completed")]), (False, [])):
        wire = EventRenderer(CONFIG, dialect=BETA)
        frames = wire.render(ResponseStarted("r", ReplySettings(audible=False, in_conversation=in_conversation), "t"))
        frames += wire.render(OutputStarted("r", call, None)) + wire.call_delta("r", "c", "{}")
        frames += wire.render(ResponseEnded("r", "completed"))
        events = decoded(frames)
        created = [
            (event["type"], event["item"]["type"], event["item"]["status"]) for event in events if "item" in event
        ]
        assert created == items
        assert events[-1]["response"]["output"] == []
        assert decoded(wire.render(ToolEnded(replace(call, status="completed", output="sunny")))) == []


def test_beta_leaves_pictures_out() -> None:
    item = Message("i", "user", (InputText("look"), InputImage("data:,")))
    (event,) = decoded(EventRenderer(CONFIG, dialect=BETA).render(ItemAdded(item, None)))
    assert [part["type"] for part in event["item"]["content"]] == ["input_text"]
    assert BETA.item(Message("i", "assistant", (OutputText("t"),)))["content"] == [{"type": "text", "text": "t"}]


def test_beta_shows_the_tools_of_an_mcp_server_as_an_empty_message() -> None:
    """The older dialect has no item for a list of tools: its place in the conversation is kept."""
    (event,) = decoded(
        EventRenderer(CONFIG, dialect=BETA).render(ItemAdded(ToolList("item_t", "calendar", "[]"), None))
    )
    assert (event["item"]["id"], event["item"]["type"], event["item"]["content"]) == ("item_t", "message", [])


def test_approval_of_a_call_has_no_older_shape() -> None:
    """The items are there, so that their ids are known, without anything that an older client might run or answer."""
    request = FunctionCall("c", "call_1", "look_up", "{}", server_label="clinic", approval="awaited")
    empty = {"object": "realtime.item", "type": "message", "status": "completed", "role": "system", "content": []}
    assert BETA.item(request) == {"id": "c", **empty}
    assert BETA.item(ApprovalAnswer("d", "c", approve=True)) == {"id": "d", **empty}


def test_a_call_that_its_client_approved_runs_without_an_event_of_its_own() -> None:
    """The item is there; what the call does has no event in the older dialect."""
    request = FunctionCall("c", "call_1", "look_up", "{}", server_label="clinic")
    events = decoded(EventRenderer(CONFIG, dialect=BETA).render(ToolApproved(request, None)))
    assert [event["type"] for event in events] == ["conversation.item.created"]
