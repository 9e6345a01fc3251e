"""Reading what a server sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.client import CallFailed
from voicepipe.client import events as e

RESPONSE = {"id": "resp_1", "status": "in_progress", "metadata": {"voicepipe_turn": "turn_1"}}


@pytest.mark.parametrize(
    ("event", "read"),
    [
        ({"type": "session.created", "session": {"id": "s", "model": "m"}}, e.SessionReady("s", "m")),
        ({"type": "session.updated", "session": {"id": "s"}}, e.SessionReady("s", "")),
        ({"type": "input_audio_buffer.speech_started", "audio_start_ms": 12}, e.SpeechStarted(12)),
        ({"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 34}, e.SpeechStopped(34)),
        (
            {"type": "conversation.item.input_audio_transcription.completed", "transcript": "hi"},
            e.TranscriptionCompleted("hi"),
        ),
        (
            {"type": "conversation.item.input_audio_transcription.failed", "error": {"message": "why"}},
            e.TranscriptionFailed("why"),
        ),
        ({"type": "response.created", "response": RESPONSE}, e.ReplyStarted("resp_1", "turn_1")),
        ({"type": "response.created", "response": {"id": "r", "metadata": None}}, e.ReplyStarted("r", "")),
        (
            {"type": "response.created", "response": {"id": "r", "metadata": {"voicepipe_apology_for": "turn_1"}}},
            e.ReplyStarted("r", "", apologises=True),
        ),
        ({"type": "response.output_audio.delta", "response_id": "r", "delta": "AQI="}, e.ReplyAudio("r", b"\1\2")),
        ({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": "x"}, e.ReplyText("r", "x")),
        (
            {"type": "response.output_text.delta", "response_id": "r", "item_id": "i", "delta": "x"},
            e.ReplyText("r", "x", "i"),
        ),
        (
            {
                "type": "response.function_call_arguments.done",
                "response_id": "r",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
            },
            e.FunctionCalled("r", "c", "f", "{}"),
        ),
        ({"type": "voicepipe.agent.ducked", "turn_id": "t", "item_id": "i"}, e.AgentDucked("i")),
        (
            {"type": "voicepipe.agent.unducked", "item_id": "i", "reason": "echo", "after_ms": 90},
            e.AgentUnducked("i", "echo", 90),
        ),
        (
            {"type": "voicepipe.agent.interrupted", "item_id": "i", "reason": "words", "after_ms": 80},
            e.AgentInterrupted("i", "words", 80),
        ),
        ({"type": "response.done", "response": {"id": "r", "status": "completed"}}, e.ReplyEnded("r", "completed", "")),
        (
            {
                "type": "response.done",
                "response": {
                    "id": "r",
                    "status": "cancelled",
                    "status_details": {"type": "cancelled", "reason": "turn_detected"},
                },
            },
            e.ReplyEnded("r", "cancelled", "turn_detected"),
        ),
        (
            {
                "type": "response.done",
                "response": {"id": "r", "status": "failed", "status_details": {"error": {"message": "broke"}}},
            },
            e.ReplyEnded("r", "failed", "broke"),
        ),
        ({"type": "error", "error": {"message": "no", "code": "x"}}, e.ServerError("x", "no")),
        ({"type": "rate_limits.updated", "rate_limits": []}, e.OtherEvent("rate_limits.updated")),
    ],
)
def test_events_that_matter_are_typed(event: dict[str, Any], read: e.ServerEvent) -> None:
    assert e.read(json.dumps(event)) == read


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[]",
        "{}",
        '{"type": 7}',
        '{"type": "session.created"}',
        '{"type": "session.created", "session": 1}',
        '{"type": "response.output_audio.delta", "response_id": "r", "delta": "?"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_event_fails_the_call(raw: str | bytes) -> None:
    with pytest.raises(CallFailed, match="expected a Realtime event"):
        e.read(raw)


@pytest.mark.slow
@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x)))
def test_any_json_is_an_event_or_a_failure(value: object) -> None:
    for event in (value, {"type": "session.created", "session": value}, {"type": "response.done", "response": value}):
        try:
            e.read(json.dumps(event))
        except CallFailed:
            continue
        assert isinstance(event, dict)


SAYS = {"type": "message", "id": "item_1", "content": [{"type": "output_audio", "transcript": "Goodbye."}]}
FILLS = SAYS | {"id": f"{e.FILLER}1"}


@pytest.mark.parametrize(
    ("names", "says", "status", "goes_on"),
    [
        (["book"], [], "completed", True),
        (["book"], [SAYS], "completed", True),
        (["end_call"], [], "completed", True),
        (["end_call"], [FILLS], "completed", True),
        (["end_call"], [SAYS], "completed", False),
        (["book"], [], "cancelled", False),
        ([], [SAYS], "completed", False),
    ],
)
def test_a_turn_goes_on_after_calls_that_the_server_runs(
    names: list[str], says: list[Any], status: str, goes_on: bool
) -> None:
    """But not after a goodbye: the server ends the call then."""
    output = [*says, *({"type": "mcp_call", "id": "c", "name": name} for name in names)]
    read = e.read(json.dumps({"type": "response.done", "response": {"id": "r", "status": status, "output": output}}))
    assert isinstance(read, e.ReplyEnded)
    assert read.goes_on is goes_on
