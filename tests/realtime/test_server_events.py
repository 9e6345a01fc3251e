"""Section 4 of the contract: what the server says, and in which order.

Every event of every test is held to the published types besides; here each event is made to happen.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from voicepipe import clock
from voicepipe.ports.transcriber import Samples
from voicepipe.server import realtime
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, Status, SttCue, tokens
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S

Event = dict[str, Any]

VAD = {"type": "server_vad", "silence_duration_ms": 200}
SESSION = {"audio": {"input": {"turn_detection": VAD, "transcription": {"model": "whisper-1"}}}}
SILENT = {"output_modalities": ["text"]}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "listen")]

OF_A_VAD_TURN = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
"""The order, without deltas and transcription."""


@asynccontextmanager
async def spoken(server: Any, speech: Samples) -> AsyncIterator[User]:
    """A user who has put a spoken question; the whole answer was played."""
    async with calling(server.url, session=SESSION) as user:
        await user.speak(speech)
        await user.until("rate_limits.updated")
        yield user


def events_of(user: User, kind: str) -> list[Event]:
    """All events of a type."""
    return [event for event in user.events if event["type"] == kind]


def the(user: User, kind: str) -> Event:
    """The only event of a type."""
    (event,) = events_of(user, kind)
    return event


async def test_event_id(server: Any, speech: Samples) -> None:
    """Every event has one of its own."""
    async with spoken(server, speech) as user:
        ids = [event["event_id"] for event in user.events]
    assert all(isinstance(event_id, str) and event_id for event_id in ids)
    assert len(set(ids)) == len(ids)


async def test_session_created(server: Any) -> None:
    """The first frame, before the client has said anything."""
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/v1/realtime") as line:
        assert (await line.receive_json(timeout=WAIT_S))["type"] == "session.created"


async def test_session_updated(server: Any) -> None:
    """One for each update, also for one that changes nothing."""
    async with calling(server.url) as user:
        for update in ({}, {"type": "realtime"}, {"instructions": "Be brief."}):
            await user.send("session.update", session=update)
            await user.until("session.updated")
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
        assert len(events_of(user, "session.updated")) == 3


async def test_error(server: Any) -> None:
    """Type, code, message and what was wrong; the socket stays open."""
    async with calling(server.url) as user:
        await user.send("conversation.item.create", item={"type": "song"}, event_id="e")
        error = (await user.until("error"))["error"]
        assert error.pop("message")
        assert error == {
            "type": "invalid_request_error",
            "code": "invalid_value",
            "param": "item.type",
            "event_id": "e",
        }
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")


async def test_conversation_created(server: Any) -> None:
    """Right after the greeting for older clients; the others never see it."""
    async with calling(server.url, headers={"OpenAI-Beta": "realtime=v1"}) as older:
        assert (await older.next())["type"] == "conversation.created"
    async with calling(server.url) as user:
        await user.send("input_audio_buffer.clear")
        assert (await user.next())["type"] == "input_audio_buffer.cleared"


async def test_conversation_item_added_and_done(server: Any, speech: Samples) -> None:
    """Each item once, the assistant's too, chained to the one really before it."""
    async with spoken(server, speech) as user:
        user_message, agent = events_of(user, "conversation.item.added")
        done = events_of(user, "conversation.item.done")
    assert (user_message["item"]["role"], user_message["previous_item_id"]) == ("user", None)
    assert (agent["item"]["role"], agent["previous_item_id"]) == ("assistant", user_message["item"]["id"])
    assert (agent["item"]["status"], agent["item"]["content"]) == ("in_progress", [])
    assert [event["item"]["id"] for event in done] == [user_message["item"]["id"], agent["item"]["id"]]


async def test_conversation_item_created(server: Any, speech: Samples) -> None:
    """Instead of both, for older clients."""
    async with calling(server.url, headers={"OpenAI-Beta": "realtime=v1"}) as user:
        await user.send("session.update", session={"turn_detection": VAD})
        await user.speak(speech)
        await user.until("response.done")
        roles = [event["item"]["role"] for event in events_of(user, "conversation.item.created")]
        assert roles == ["user", "assistant"]
        assert not any(kind in user.kinds() for kind in ("conversation.item.added", "conversation.item.done"))
        assert "response.audio.delta" in user.kinds()


async def test_conversation_item_retrieved_truncated_and_deleted(server: Any) -> None:
    """Each answers the client's event with the item that it named."""
    async with calling(server.url) as user:
        await user.send("response.create")
        item_id = (await user.until("response.done"))["response"]["output"][0]["id"]
        await user.send("conversation.item.retrieve", item_id=item_id)
        assert (await user.until("conversation.item.retrieved"))["item"]["id"] == item_id
        await user.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
        cut = await user.until("conversation.item.truncated")
        assert (cut["item_id"], cut["content_index"], cut["audio_end_ms"]) == (item_id, 0, 100)
        await user.send("conversation.item.delete", item_id=item_id)
        assert (await user.until("conversation.item.deleted"))["item_id"] == item_id


async def test_input_audio_transcription_delta_and_completed(server: Any, speech: Samples) -> None:
    """Deltas only ever append and join to the text; the end reports the duration of the speech."""
    async with spoken(server, speech) as user:
        completed = the(user, "conversation.item.input_audio_transcription.completed")
        deltas = events_of(user, "conversation.item.input_audio_transcription.delta")
        item_id = the(user, "input_audio_buffer.committed")["item_id"]
    assert (completed["item_id"], completed["content_index"]) == (item_id, 0)
    assert completed["transcript"] == "what time is it" == "".join(event["delta"] for event in deltas)
    assert completed["usage"]["type"] == "duration"
    assert 0 < completed["usage"]["seconds"] < 5


async def test_input_audio_transcription_failed(server: Any, speech: Samples) -> None:
    """Instead of the text, with a type and a message for people."""
    server.vendor.stt.usual = SttCue(fault=Status(400, "no such model"))
    async with calling(server.url, session=SESSION) as user:
        await user.speak(speech)
        failed = await user.until("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["type"]
        assert failed["error"]["message"]
        assert None not in failed["error"].values()


async def test_speech_started_and_stopped(server: Any, speech: Samples) -> None:
    """Positions in the user's audio, and the id that the item will have."""
    async with spoken(server, speech) as user:
        started = the(user, "input_audio_buffer.speech_started")
        stopped = the(user, "input_audio_buffer.speech_stopped")
        assert started["item_id"] == stopped["item_id"] == events_of(user, "conversation.item.added")[0]["item"]["id"]
    assert 0 <= started["audio_start_ms"] < stopped["audio_end_ms"] <= len(speech) // 24


async def test_input_audio_buffer_committed_and_cleared(server: Any, speech: Samples) -> None:
    """The first names the item and the one before it."""
    async with spoken(server, speech) as user:
        committed = the(user, "input_audio_buffer.committed")
        assert committed["item_id"] == the(user, "input_audio_buffer.speech_started")["item_id"]
        assert committed["previous_item_id"] is None
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")


async def test_response_created_and_done(server: Any, speech: Samples) -> None:
    """Exactly one done for each created, with the whole output."""
    async with spoken(server, speech) as user:
        created, done = the(user, "response.created")["response"], the(user, "response.done")["response"]
        item = the(user, "response.output_item.done")["item"]
    assert (created["id"], created["status"], created["output"]) == (done["id"], "in_progress", [])
    assert (done["status"], done["output"]) == ("completed", [item])


async def test_output_item_and_content_part(server: Any, speech: Samples, answer: str) -> None:
    """Begun before the first delta and closed after the last; the part is called `audio`."""
    async with spoken(server, speech) as user:
        added, done = the(user, "response.output_item.added"), the(user, "response.output_item.done")
        begun, ended = the(user, "response.content_part.added"), the(user, "response.content_part.done")
    assert (added["item"]["status"], done["item"]["status"]) == ("in_progress", "completed")
    assert done["item"]["content"] == [{"type": "output_audio", "transcript": answer}]
    assert (begun["part"]["type"], ended["part"]) == ("audio", {"type": "audio", "transcript": answer})


async def test_output_audio(server: Any, speech: Samples) -> None:
    """Each delta names all four, carries at most 200 ms, and the transcript goes before the sound."""
    async with spoken(server, speech) as user:
        kinds = user.kinds()
        ids = the(user, "response.output_audio.done")
        deltas = events_of(user, "response.output_audio.delta")
    assert kinds.index("response.output_audio_transcript.delta") < kinds.index("response.output_audio.delta")
    assert len(deltas) > 2
    for delta in deltas:
        for name in ("item_id", "response_id", "output_index", "content_index"):
            assert delta[name] == ids[name]
        assert 0 < len(base64.b64decode(delta["delta"])) <= 200 * 48


async def test_output_audio_transcript(server: Any, speech: Samples, answer: str) -> None:
    """The deltas join to the text that the end gives."""
    async with spoken(server, speech) as user:
        pieces = [event["delta"] for event in events_of(user, "response.output_audio_transcript.delta")]
        assert "".join(pieces) == the(user, "response.output_audio_transcript.done")["transcript"] == answer


async def test_output_text(server: Any, answer: str) -> None:
    """An answer in writing."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        await user.until("response.done")
        pieces = [event["delta"] for event in events_of(user, "response.output_text.delta")]
        assert "".join(pieces) == the(user, "response.output_text.done")["text"] == answer


async def test_function_call_arguments(server: Any) -> None:
    """Streamed as deltas, and done with the name; nothing of it is `completed` before it is."""
    server.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look", ('{"at":', ' "it"}')),), finish="tool_calls"))
    async with calling(server.url, session={"tools": TOOLS}) as user:
        await user.send("response.create")
        await user.until("response.done")
        added = the(user, "response.output_item.added")["item"]
        done = the(user, "response.function_call_arguments.done")
        deltas = events_of(user, "response.function_call_arguments.delta")
        item = the(user, "response.output_item.done")["item"]
    assert (added["type"], added["arguments"], added["status"]) == ("function_call", "", "in_progress")
    assert "".join(event["delta"] for event in deltas) == done["arguments"] == '{"at": "it"}'
    assert (done["name"], done["call_id"], item["status"]) == ("look", added["call_id"], "completed")


async def test_rate_limits_updated(server: Any, speech: Samples) -> None:
    """After each response; nothing limits a user here, so it names no limit."""
    async with spoken(server, speech) as user:
        assert user.events[-2]["type"] == "response.done"
        assert user.events[-1]["rate_limits"] == []


async def test_order_of_a_vad_turn(server: Any, speech: Samples) -> None:
    """As clients know it; transcription may come any time after its item."""
    async with spoken(server, speech) as user:
        order = [event["type"] for event in user.events[2:]]
    assert [k for k in order if not k.endswith(".delta") and "transcription" not in k] == OF_A_VAD_TURN
    transcribed = order.index("conversation.item.input_audio_transcription.completed")
    assert transcribed > order.index("conversation.item.added")


async def test_nothing_unpublished(server: Any, speech: Samples) -> None:
    """No type and no field beyond the published ones, but for the turn's name in the metadata."""
    async with spoken(server, speech) as user:
        metadata = the(user, "response.done")["response"]["metadata"]
    assert set(metadata) == {"voicepipe_turn"}  # the rest is what every user checks


# --- items ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": "a"},
        {"type": "input_audio", "audio": "AAAA"},
        {"type": "input_audio", "audio": "AAAA", "transcript": "b"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
    ],
    ids=["text", "audio", "audio with transcript", "image"],
)
async def test_items_of_the_user(server: Any, part: dict[str, str]) -> None:
    """They come back as they were, without bytes of sound, and with a transcript's key even when it is unknown."""
    async with calling(server.url) as user:
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": [part]})
        (displayed,) = (await user.until("conversation.item.done"))["item"]["content"]
    expected = {key: value for key, value in part.items() if key != "audio"}
    assert displayed == ({"transcript": None} | expected if part["type"] == "input_audio" else expected)


async def test_items_content_is_always_an_array(server: Any) -> None:
    """An empty message has an empty one."""
    async with calling(server.url) as user:
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": []})
        assert (await user.until("conversation.item.done"))["item"]["content"] == []


async def test_items_ids(server: Any, speech: Samples) -> None:
    """Unique in the session, at most 64 characters."""
    async with spoken(server, speech) as user:
        ids = [event["item"]["id"] for event in events_of(user, "conversation.item.added")]
        assert len(set(ids)) == len(ids) == 2
        assert all(0 < len(item_id) <= 64 for item_id in ids)
        await user.send("conversation.item.create", item={"id": "x" * 65, **HELLO})
        assert (await user.until("error"))["error"]["param"] == "item.id"


async def test_items_previous_item_id(server: Any, speech: Samples) -> None:
    """The item really before it, over turns; null only for the first."""
    async with spoken(server, speech) as user:
        await user.speak(speech)
        await user.until("rate_limits.updated")
        added = events_of(user, "conversation.item.added")
    ids = [event["item"]["id"] for event in added]
    assert [event["previous_item_id"] for event in added] == [None, *ids[:-1]]


async def test_items_function_call_is_whole(server: Any) -> None:
    """Arguments that are no JSON object never count as a completed call."""
    server.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look", ('{"at":',)),), finish="tool_calls"))
    async with calling(server.url, session={"tools": TOOLS}) as user:
        await user.send("response.create")
        (item,) = (await user.until("response.done"))["response"]["output"]
        assert item["status"] == "incomplete"
        assert events_of(user, "response.function_call_arguments.done") == []


async def test_items_retrieved_without_audio(server: Any, speech: Samples) -> None:
    """Speech comes back as its words."""
    async with spoken(server, speech) as user:
        await user.send("conversation.item.retrieve", item_id=the(user, "input_audio_buffer.committed")["item_id"])
        displayed = (await user.until("conversation.item.retrieved"))["item"]
    assert displayed["content"] == [{"type": "input_audio", "transcript": "what time is it"}]


# --- the response -----------------------------------------------------------------------------


async def test_response_object(server: Any) -> None:
    """Every member is there."""
    async with calling(server.url) as user:
        await user.send("response.create")
        response = (await user.until("response.done"))["response"]
    expected = "id object status status_details output conversation_id output_modalities max_output_tokens audio usage"
    assert set(response) == {*expected.split(), "metadata"}
    assert response["object"] == "realtime.response"
    assert response["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}


async def test_response_status_completed(server: Any) -> None:
    """Without details."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        response = (await user.until("response.done"))["response"]
    assert (response["status"], response["status_details"]) == ("completed", None)


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_response_status_incomplete(server: Any, finish: str, reason: str) -> None:
    """The model was stopped short; so is its item."""
    server.vendor.llm.cue(LlmCue(tokens=("It", " is"), finish=finish))
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create", response={"max_output_tokens": 2})
        response = (await user.until("response.done"))["response"]
    assert (response["status"], response["status_details"]) == ("incomplete", {"type": "incomplete", "reason": reason})
    assert response["output"][0]["status"] == "incomplete"
    assert (await server.vendor.llm.nth(0)).question["max_tokens"] == 2


async def test_response_status_failed(server: Any) -> None:
    """A provider's failure is reported in the response, not as an error event, which some clients take for the end."""
    server.vendor.llm.usual = LlmCue(fault=Status(400, "no such model"))
    async with calling(server.url) as user:
        await user.send("response.create")
        response = (await user.until("response.done"))["response"]
        assert events_of(user, "error") == []
    assert response["status"] == "failed"
    assert set(response["status_details"]) == {"type", "error"}
    assert set(response["status_details"]["error"]) == {"type", "code", "message"}


async def test_response_metadata(server: Any) -> None:
    """Comes back as it was sent, in created and in done."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create", response={"metadata": {"client_event_id": "c1"}})
        await user.until("response.done")
        for kind in ("response.created", "response.done"):
            assert the(user, kind)["response"]["metadata"]["client_event_id"] == "c1"


async def test_response_usage(server: Any) -> None:
    """As the provider counted, cached tokens too."""
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon."), input_tokens=40, cached_tokens=32))
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        usage = (await user.until("response.done"))["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (40, 3, 43)
    assert usage["input_token_details"]["cached_tokens"] == 32
    assert usage["input_token_details"]["cached_tokens_details"]["text_tokens"] == 32
    assert usage["output_token_details"] == {"text_tokens": 3, "audio_tokens": 0}


# --- error codes that clients act on ----------------------------------------------------------


async def test_code_conversation_already_has_active_response(server: Any) -> None:
    """A second response of the conversation while one runs."""
    hold = Hold(after=2)
    server.vendor.llm.cue(LlmCue(tokens=("One", " two", " three"), hold=hold))
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        await soon(hold.reached)
        await user.send("response.create", event_id="again")
        error = (await user.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "again")
        hold.release.set()
        assert (await user.until("response.done"))["response"]["status"] == "completed"


CODES = {
    "response_cancel_not_active": ("response.cancel", {}),
    "item_retrieve_invalid_item_id": ("conversation.item.retrieve", {"item_id": "nobody"}),
    "item_delete_invalid_item_id": ("conversation.item.delete", {"item_id": "nobody"}),
    "input_audio_buffer_commit_empty": ("input_audio_buffer.commit", {}),
}


@pytest.mark.parametrize("code", CODES)
async def test_code(server: Any, code: str) -> None:
    """Clients know what failed by these."""
    kind, fields = CODES[code]
    async with calling(server.url) as user:
        await user.send(kind, **fields)
        assert (await user.until("error"))["error"]["code"] == code


async def test_code_item_create_duplicate_item_id(server: Any) -> None:
    """An id that is taken."""
    async with calling(server.url) as user:
        for _ in range(2):
            await user.send("conversation.item.create", item={"id": "x", **HELLO})
        assert (await user.until("error"))["error"]["code"] == "item_create_duplicate_item_id"


@pytest.mark.parametrize("late_s", [0, 1])
async def test_code_session_expired(fake_server: Any, monkeypatch: pytest.MonkeyPatch, late_s: int) -> None:
    """With the published words, then the line is closed with 1001 and the same; also if the session began late."""
    monkeypatch.setattr(realtime, "unix_s", lambda: clock.unix_s() - late_s)
    async with (
        fake_server({"server.max_session_s": 1 + late_s}) as server,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{server.url}/v1/realtime") as line,
    ):
        await line.receive_json(timeout=WAIT_S)
        error = (await line.receive_json(timeout=WAIT_S))["error"]
        closed = await asyncio.wait_for(line.receive(), WAIT_S)
    assert error["code"] == "session_expired"
    assert error["message"] == closed.extra == f"Your session hit the maximum duration of {1 + late_s} seconds."
    assert closed.data == 1001
