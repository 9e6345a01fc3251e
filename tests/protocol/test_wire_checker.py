"""The checker itself: a sound session has no problem, and each fault that clients break on is one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.wire_checker import WireChecker
from voicepipe.turn.conversation import FunctionCall, InputAudio, Message
from voicepipe.turn.notifications import (
    AudioCommitted,
    InputSpeechStarted,
    InputSpeechStopped,
    ItemAdded,
    OutputStarted,
    ResponseEnded,
    ResponseStarted,
    TranscriptDelta,
    TranscriptDone,
)
from voicepipe.turn.settings import ReplySettings

Events = list[dict[str, Any]]


def session() -> Events:
    """A user's turn and a reply of speech and a call."""
    wire = EventRenderer(SessionConfig.start(session_id="s", model="m", voice="v", instructions="", expires_at=1))
    frames = wire.hello()
    for what in (
        InputSpeechStarted("u", 0),
        InputSpeechStopped("u", 9),
        AudioCommitted("u", None),
        ItemAdded(Message("u", "user", (InputAudio(),)), None),
        TranscriptDelta("u", "he"),
        TranscriptDone("u", "hello", 9),
        ResponseStarted("r", ReplySettings(), "t"),
        OutputStarted("r", Message("a", "assistant", ()), "u"),
    ):
        frames += wire.render(what)
    frames += wire.text_delta("r", "one ") + wire.audio("r", np.ones(480, dtype=np.int16)) + wire.text_delta("r", "two")
    frames += wire.render(OutputStarted("r", FunctionCall("a_call0", "c", "f", ""), "a"))
    frames += wire.call_delta("r", "a_call0", '{"a":') + wire.call_delta("r", "a_call0", "1}")
    frames += wire.render(ResponseEnded("r", "completed"))
    return [json.loads(frame) for frame in frames]


def checked(events: Events) -> WireChecker:
    checker = WireChecker()
    for event in events:
        checker.see(event)
    return checker


def test_sound_session_has_no_problem() -> None:
    checker = checked(session())
    assert checker.problems == []
    assert checker.unfinished == []
    assert checker.order == ("u", "a", "a_call0")


def without(kind: str) -> Callable[[Events], Events]:
    return lambda events: [event for event in events if event["type"] != kind]


def twice(kind: str) -> Callable[[Events], Events]:
    def mutate(events: Events) -> Events:
        return [
            e for event in events for e in ((event, {**event, "event_id": "x"}) if event["type"] == kind else (event,))
        ]

    return mutate


def changed(kind: str, **fields: object) -> Callable[[Events], Events]:
    return lambda events: [{**event, **fields} if event["type"] == kind else event for event in events]


def within(kind: str, owner: str, **fields: object) -> Callable[[Events], Events]:
    def mutate(events: Events) -> Events:
        for event in events:
            if event["type"] == kind:
                event[owner].update(fields)
        return events

    return mutate


def moved(kind: str, *, before: str) -> Callable[[Events], Events]:
    def mutate(events: Events) -> Events:
        others = [event for event in events if event["type"] != kind]
        place = next(i for i, event in enumerate(others) if event["type"] == before)
        return [*others[:place], *(event for event in events if event["type"] == kind), *others[place:]]

    return mutate


FAULTS: dict[str, Callable[[Events], Events]] = {
    "session.created is not first": lambda events: events[1:],
    "an event id comes twice": lambda events: [*events, events[-1] | {"type": "session.updated"}],
    "an event has no id": changed("response.output_audio.delta", event_id=None),
    "an index is null": changed("response.output_audio.delta", content_index=None),
    "no speech_started": without("input_audio_buffer.speech_started"),
    "committed names another item": changed("input_audio_buffer.committed", item_id="z"),
    "committed and added disagree": changed("input_audio_buffer.committed", previous_item_id="a"),
    "no item.added": without("conversation.item.added"),
    "an item is added twice": twice("conversation.item.added"),
    "previous_item_id is null": changed("conversation.item.added", previous_item_id=None),
    "previous_item_id is unknown": changed("conversation.item.added", previous_item_id="z"),
    "no item.done": without("conversation.item.done"),
    "an item is done twice": twice("conversation.item.done"),
    "a transcript before its item": moved(
        "conversation.item.input_audio_transcription.delta", before="conversation.item.added"
    ),
    "a transcript that was rewritten": changed("conversation.item.input_audio_transcription.delta", delta="hey"),
    "a transcript that ends twice": twice("conversation.item.input_audio_transcription.completed"),
    "no response.created": without("response.created"),
    "a response is created twice": twice("response.created"),
    "no output_item.added": without("response.output_item.added"),
    "an output item begins completed": within("response.output_item.added", "item", status="completed"),
    "output_index does not rise": changed("response.output_item.added", output_index=0),
    "the conversation hears first": moved("response.output_item.added", before="conversation.item.added"),
    "no part is added": without("response.content_part.added"),
    "a part of another type": within("response.content_part.added", "part", type="output_audio"),
    "a delta of another item": changed("response.output_audio.delta", item_id="z"),
    "a delta before its part": moved("response.output_audio.delta", before="response.content_part.added"),
    "a delta after its end": moved("response.output_audio.delta", before="response.content_part.done"),
    "deltas that don't join": changed("response.output_audio_transcript.done", transcript="one"),
    "a part that differs": within("response.content_part.done", "part", transcript="one"),
    "no audio.done": without("response.output_audio.done"),
    "no part.done": without("response.content_part.done"),
    "arguments that don't join": changed("response.function_call_arguments.done", arguments="{}"),
    "arguments that are no JSON": changed("response.function_call_arguments.delta", delta="{"),
    "arguments of another call": changed("response.function_call_arguments.delta", call_id="z"),
    "a call done under another name": changed("response.function_call_arguments.done", name="g"),
    "no arguments.done": without("response.function_call_arguments.done"),
    "no output_item.done": without("response.output_item.done"),
    "output_item.done twice": twice("response.output_item.done"),
    "response.done twice": twice("response.done"),
    "an event of a response after its done": lambda events: [
        *events,
        next(e for e in events if e["type"] == "response.output_audio.delta") | {"event_id": "x"},
    ],
    "a done response in progress": within("response.done", "response", status="in_progress"),
    "a done response without its output": within("response.done", "response", output=[]),
    "a failure without details": within("response.done", "response", status="failed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_a_problem(fault: str) -> None:
    assert checked(FAULTS[fault](copy.deepcopy(session()))).problems != []


def test_unfinished_items_are_reported() -> None:
    events = session()
    place = next(i for i, event in enumerate(events) if event["type"] == "response.output_audio.done")
    assert checked(events[:place]).unfinished == ["response r", "item a", "item a_call0"]


def test_an_item_that_is_gone_is_not_done() -> None:
    """Neither in the conversation, nor may its response wait for that."""
    events = session()
    place = next(i for i, event in enumerate(events) if event["type"] == "response.output_audio.done")
    gone = {"type": "conversation.item.deleted", "event_id": "gone", "item_id": "a"}
    events = [*events[:place], gone, *events[place:]]
    (problem,) = checked(events).problems
    assert "conversation.item.done: item 'a' was not added" in problem
    done = next(e for e in events if e["type"] == "conversation.item.done" and e["item"]["id"] == "a")
    assert checked([event for event in events if event is not done]).problems == []


def test_front_insertion_is_sound_when_the_client_requested_it() -> None:
    first = [{"type": "session.created", "event_id": "1"}, added("2", "b", None)]
    checker = checked(first)
    checker.sent({"type": "conversation.item.create", "previous_item_id": "root"})
    checker.see(added("3", "a", None))
    assert checker.problems == []
    assert checker.order == ("a", "b")


def added(event_id: str, item_id: str, previous: str | None) -> dict[str, Any]:
    item = {"id": item_id, "type": "message", "role": "user", "status": "completed", "content": []}
    return {
        "type": "conversation.item.added",
        "event_id": event_id,
        "previous_item_id": previous,
        "item": item,
    }
