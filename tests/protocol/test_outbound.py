"""What a session sends its client: each notification's events, their order, and what is never sent."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.protocol.replies import AGENT, CALL, REPLY, USER, SentEventsOf, open_reply, tone
from voicepipe.audio.g711 import decode_alaw, decode_mulaw
from voicepipe.protocol.beta import BETA
from voicepipe.protocol.ga import GA, session_object
from voicepipe.protocol.inbound import Unreadable
from voicepipe.protocol.session_types import AudioFormat, Transcription
from voicepipe.turn.conversation import (
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputText,
    Item,
    Message,
    OutputAudio,
    OutputText,
)
from voicepipe.turn.notifications import (
    AudioCleared,
    AudioCommitted,
    InputSpeechStarted,
    InputSpeechStopped,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputStarted,
    Refused,
    ResponseEnded,
    ResponseStarted,
    SilenceTimedOut,
    TranscriptDelta,
    TranscriptDone,
    TranscriptFailed,
)
from voicepipe.turn.settings import ReplySettings


def sound(events: list[dict[str, Any]]) -> bytes:
    """All audio bytes of the deltas among `events`."""
    deltas = (event["delta"] for event in events if event["type"] == "response.output_audio.delta")
    return b"".join(base64.b64decode(delta) for delta in deltas)


# --- a turn from end to end -------------------------------------------------------------------


def test_order_of_a_vad_turn(new_sent: Callable[..., SentEventsOf]) -> None:
    """Section 4's order, event by event."""
    sent = new_sent(transcription=Transcription())
    sent.render(
        InputSpeechStarted("item_u", 420),
        InputSpeechStopped("item_u", 1_900),
        AudioCommitted("item_u", None),
        ItemAdded(USER, None),
        TranscriptDelta("item_u", "What is"),
        ResponseStarted("resp_1", REPLY, "turn_1"),
        TranscriptDelta("item_u", " up?"),
        TranscriptDone("item_u", "What is up?", 1_480),
        OutputStarted("resp_1", AGENT, "item_u"),
    )
    sent.take(sent.wire.text_delta("resp_1", "Not "))
    sent.take(sent.wire.audio("resp_1", tone(2_400)))
    sent.take(sent.wire.text_delta("resp_1", "much."))
    sent.take(sent.wire.audio("resp_1", tone(2_400)))
    sent.render(ResponseEnded("resp_1", "completed", input_tokens=12, output_tokens=3, cached_tokens=8))
    assert sent.types() == [
        "session.created",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "response.created",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert sent.checker.unfinished == []
    assert sent.checker.order == ("item_u", "item_a")


def test_golden_transcript_of_a_spoken_reply(sent: SentEventsOf) -> None:
    """Every field of every event of a reply, as it goes out."""
    open_reply(sent, ReplySettings(voice="alba", metadata=(("client_event_id", "c9"),), max_output_tokens=50))
    sent.take(sent.wire.text_delta("resp_1", "Hi."))
    sent.take(sent.wire.audio("resp_1", np.array([1, -2], dtype=np.int16)))
    sent.render(ResponseEnded("resp_1", "completed", input_tokens=12, output_tokens=3, cached_tokens=8))
    ids = {"response_id": "resp_1", "item_id": "item_a", "output_index": 0, "content_index": 0}
    begun = {
        "id": "item_a",
        "object": "realtime.item",
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    done = begun | {"status": "completed", "content": [{"type": "output_audio", "transcript": "Hi."}]}
    response = {
        "id": "resp_1",
        "object": "realtime.response",
        "status": "in_progress",
        "status_details": None,
        "output": [],
        "conversation_id": "conv_7",
        "output_modalities": ["audio"],
        "max_output_tokens": 50,
        "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "alba"}},
        "usage": None,
        "metadata": {"client_event_id": "c9", "voicepipe_turn": "turn_1"},
    }
    usage = {
        "total_tokens": 15,
        "input_tokens": 12,
        "output_tokens": 3,
        "input_token_details": {
            "text_tokens": 12,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": 8,
            "cached_tokens_details": {"text_tokens": 8, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": 3, "audio_tokens": 0},
    }
    plain = [{key: value for key, value in event.items() if key != "event_id"} for event in sent.events[3:]]
    assert plain == [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "response_id": "resp_1", "output_index": 0, "item": begun},
        {"type": "conversation.item.added", "previous_item_id": "item_u", "item": begun},
        {"type": "response.content_part.added", **ids, "part": {"type": "audio", "transcript": ""}},
        {"type": "response.output_audio_transcript.delta", **ids, "delta": "Hi."},
        {"type": "response.output_audio.delta", **ids, "delta": base64.b64encode(b"\x01\x00\xfe\xff").decode()},
        {"type": "response.output_audio.done", **ids},
        {"type": "response.output_audio_transcript.done", **ids, "transcript": "Hi."},
        {"type": "response.content_part.done", **ids, "part": {"type": "audio", "transcript": "Hi."}},
        {"type": "conversation.item.done", "previous_item_id": "item_u", "item": done},
        {"type": "response.output_item.done", "response_id": "resp_1", "output_index": 0, "item": done},
        {"type": "response.done", "response": response | {"status": "completed", "output": [done], "usage": usage}},
    ]


# --- the rows of section 4 --------------------------------------------------------------------


def test_session_created_is_the_first_frame(sent: SentEventsOf) -> None:
    assert sent.types() == ["session.created"]
    assert sent.events[0]["session"]["id"] == "sess_7"


def test_session_updated_carries_the_whole_session(sent: SentEventsOf) -> None:
    changed = sent.wire.config.merged({"type": "realtime", "instructions": "Be long."})
    (event,) = sent.take(sent.wire.updated(changed))
    assert event["type"] == "session.updated"
    assert event["session"] == session_object(changed)


def test_every_event_id_is_unique(sent: SentEventsOf) -> None:
    open_reply(sent)
    for _ in range(40):
        sent.take(sent.wire.audio("resp_1", tone(480)))
    sent.render(ResponseEnded("resp_1", "completed"))
    ids = [event["event_id"] for event in sent.events]
    assert len(set(ids)) == len(ids)


def test_error_names_field_and_event(sent: SentEventsOf) -> None:
    why = "Cancellation failed: no active response"
    (event,) = sent.render(Refused("evt_1", "response_cancel_not_active", why))
    assert event["error"] == {
        "type": "invalid_request_error",
        "code": "response_cancel_not_active",
        "message": why,
        "param": None,
        "event_id": "evt_1",
    }
    (event,) = sent.take(sent.wire.error(Unreadable(None, "invalid_value", "x: expected y, got z", "x")))
    assert (event["error"]["param"], event["error"]["event_id"]) == ("x", None)
    (event,) = sent.take(sent.wire.error(Refused(None, "overloaded", "try later"), kind="server_error"))
    assert event["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    "item",
    [
        Message("i", "system", (InputText("s"),)),
        Message("i", "user", (InputText("u"),)),
        Message("i", "assistant", (OutputText("a"),), "incomplete"),
        FunctionCall("i", "c", "f", "{}"),
        FunctionOutput("i", "c", "done"),
    ],
)
def test_conversation_item_added_then_done(sent: SentEventsOf, item: Item) -> None:
    added, done = sent.render(ItemAdded(item, None))
    assert (added["type"], done["type"]) == ("conversation.item.added", "conversation.item.done")
    assert added["item"] == done["item"]
    assert added["item"]["id"] == "i"


def test_previous_item_id_is_null_only_for_the_first(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(USER, None), ItemAdded(Message("item_2", "user", ()), "item_u"))
    added = [event for event in sent.events if event["type"] == "conversation.item.added"]
    assert [event["previous_item_id"] for event in added] == [None, "item_u"]


def test_conversation_item_retrieved(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(USER, None))
    (event,) = sent.render(ItemRetrieved(Message("item_u", "user", (InputAudio("said"),))))
    assert event["type"] == "conversation.item.retrieved"
    assert event["item"]["content"] == [{"type": "input_audio", "transcript": "said"}]


def test_conversation_item_retrieved_while_in_progress(sent: SentEventsOf) -> None:
    """openai-agents requests the answer that is still being made."""
    open_reply(sent)
    (event,) = sent.render(ItemRetrieved(Message("item_a", "assistant", (OutputAudio("so far"),), "in_progress")))
    assert event["item"]["status"] == "in_progress"


def test_conversation_item_truncated(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(Message("item_a", "assistant", (OutputAudio("a"),)), None))
    (event,) = sent.render(ItemTruncated("item_a", 0, 1_234))
    assert (event["type"], event["content_index"], event["audio_end_ms"]) == ("conversation.item.truncated", 0, 1_234)


def test_conversation_item_deleted(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(USER, None))
    (event,) = sent.render(ItemDeleted("item_u"))
    assert (event["type"], event["item_id"]) == ("conversation.item.deleted", "item_u")


@pytest.mark.parametrize("output", [AGENT, CALL])
def test_a_deleted_output_item_is_done_in_its_response_only(sent: SentEventsOf, output: Message | FunctionCall) -> None:
    """The conversation has no such item any more; its response still has it as an output."""
    open_reply(sent, item=output)
    sent.render(ItemDeleted(output.id))
    sent.take(sent.wire.text_delta("resp_1", "More of it."))
    sent.take(sent.wire.call_delta("resp_1", CALL.id, "{}"))
    sent.render(ResponseEnded("resp_1", "completed"))
    after = sent.types()[sent.types().index("conversation.item.deleted") + 1 :]
    assert "conversation.item.done" not in after
    assert after[-2:] == ["response.output_item.done", "response.done"]
    assert [item["id"] for item in sent.events[-1]["response"]["output"]] == [output.id]


def test_a_client_may_use_the_id_of_a_deleted_output_item_again(sent: SentEventsOf) -> None:
    """Its own item is added and done; the response's is done in the response alone."""
    open_reply(sent)
    sent.render(ItemDeleted("item_a"), ItemAdded(Message("item_a", "user", (InputText("mine"),)), "item_u"))
    sent.render(ResponseEnded("resp_1", "completed"))
    done = [event["item"] for event in sent.events if event["type"] == "conversation.item.done"]
    assert [(item["id"], item["role"]) for item in done] == [("item_u", "user"), ("item_a", "user")]


def test_transcription_completed_has_usage(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(USER, None))
    (event,) = sent.render(TranscriptDone("item_u", "hello", 1_500))
    assert event["usage"] == {"type": "duration", "seconds": 1.5}
    assert (event["transcript"], event["content_index"]) == ("hello", 0)


def test_transcription_failed_instead_of_completed(sent: SentEventsOf) -> None:
    sent.render(ItemAdded(USER, None))
    (event,) = sent.render(TranscriptFailed("item_u", "the line broke"))
    assert event["type"] == "conversation.item.input_audio_transcription.failed"
    assert set(event["error"]) == {"type", "code", "message"}
    assert event["error"]["message"] == "the line broke"


def test_speech_started_stopped_committed_share_the_item(sent: SentEventsOf) -> None:
    started, stopped, committed = sent.render(
        InputSpeechStarted("item_u", 10), InputSpeechStopped("item_u", 900), AudioCommitted("item_u", None)
    )
    assert (started["audio_start_ms"], stopped["audio_end_ms"]) == (10, 900)
    assert {event["item_id"] for event in (started, stopped, committed)} == {"item_u"}
    assert committed["previous_item_id"] is None


def test_a_silence_that_was_committed_names_its_span(sent: SentEventsOf) -> None:
    (event,) = sent.render(SilenceTimedOut("item_u", audio_start_ms=1_000, audio_end_ms=6_000))
    assert event["type"] == "input_audio_buffer.timeout_triggered"
    assert (event["item_id"], event["audio_start_ms"], event["audio_end_ms"]) == ("item_u", 1_000, 6_000)


def test_input_audio_buffer_cleared(sent: SentEventsOf) -> None:
    assert [event["type"] for event in sent.render(AudioCleared())] == ["input_audio_buffer.cleared"]


def test_audio_delta_has_all_four_ids(sent: SentEventsOf) -> None:
    open_reply(sent)
    (event,) = sent.take(sent.wire.audio("resp_1", tone(480)))
    assert {key: event[key] for key in ("response_id", "item_id", "output_index", "content_index")} == {
        "response_id": "resp_1",
        "item_id": "item_a",
        "output_index": 0,
        "content_index": 0,
    }
    assert base64.b64decode(event["delta"]) == tone(480).tobytes()


def test_long_sound_is_split_below_the_frame_limit(sent: SentEventsOf) -> None:
    """Pieces of at most 200 ms, and nothing lost."""
    open_reply(sent)
    frames = sent.wire.audio("resp_1", tone(24_000 * 30))
    assert max(map(len, frames)) < 20_000
    assert sound(sent.take(frames)) == tone(24_000 * 30).tobytes()


@pytest.mark.parametrize(("kind", "decode"), [("audio/pcmu", decode_mulaw), ("audio/pcma", decode_alaw)])
def test_g711_output(new_sent: Callable[..., SentEventsOf], kind: Any, decode: Any) -> None:
    """One byte a sample at 8 kHz, all of it by the end, and the tone is still that tone."""
    sent = new_sent(output_format=AudioFormat(kind))
    open_reply(sent)
    for start in range(0, 24_000, 1_000):
        sent.take(sent.wire.audio("resp_1", tone(24_000)[start : start + 1_000]))
    sent.render(ResponseEnded("resp_1", "completed"))
    decoded_audio = decode(sound(sent.events))
    assert len(decoded_audio) == 8_000
    loudest = np.argmax(np.abs(np.fft.rfft(decoded_audio.astype(np.float64))))
    assert loudest == 300


def test_g711_keeps_the_tail_of_a_cut_reply_to_itself(new_sent: Callable[..., SentEventsOf]) -> None:
    """No audio of a response after it was cut."""
    sent = new_sent(output_format=AudioFormat("audio/pcmu"))
    open_reply(sent)
    sent.take(sent.wire.audio("resp_1", tone(2_400)))
    ended = sent.render(ResponseEnded("resp_1", "cancelled", "turn_detected"))
    assert sound(ended) == b""


def test_format_of_a_running_response_stays(sent: SentEventsOf) -> None:
    """An update in its midst does not change the bytes of the response that runs."""
    open_reply(sent)
    sent.take(sent.wire.updated(sent.wire.config.merged({"audio": {"output": {"format": {"type": "audio/pcmu"}}}})))
    assert sound(sent.take(sent.wire.audio("resp_1", tone(480)))) == tone(480).tobytes()
    sent.render(ResponseEnded("resp_1", "completed"))
    assert sent.events[-1]["response"]["audio"]["output"]["format"]["type"] == "audio/pcm"


@pytest.mark.parametrize("item", [AGENT, CALL])
def test_response_continues_in_the_dialect_of_the_client(sent: SentEventsOf, item: Message | FunctionCall) -> None:
    """Also when only a function call is open, which has no audio."""
    open_reply(sent, item=item)
    sent.wire.speak(BETA)
    sent.wire.speak(GA)
    sent.take(sent.wire.audio("resp_1", tone(480)))
    assert sound(sent.events) == (tone(480).tobytes() if item is AGENT else b"")


# --- text that can't be encoded ---------------------------------------------------------------


def test_half_a_surrogate_pair_is_replaced(sent: SentEventsOf) -> None:
    """Vendors cut emoji between deltas; what is said stays joinable."""
    open_reply(sent)
    sent.take(sent.wire.text_delta("resp_1", "ok \ud83d"))
    sent.take(sent.wire.text_delta("resp_1", "\ude00 \ud83d\ude00"))
    sent.render(ResponseEnded("resp_1", "failed", "llm_failed", "broke at \ud83d"))
    response = sent.events[-1]["response"]
    assert response["output"][0]["content"][0]["transcript"] == "ok \ufffd\ufffd \U0001f600"
    assert response["status_details"]["error"]["message"] == "broke at \ufffd"


def test_session_id_of_the_clients_own_making_is_safe(new_sent: Callable[..., SentEventsOf]) -> None:
    """Event ids are written into a template, so nothing of the session's id may break out of it."""
    sent = new_sent(session_id='"},\\x {"')
    open_reply(sent)
    (event,) = sent.take(sent.wire.audio("resp_1", tone(480)))
    assert event["event_id"].startswith("event_")
