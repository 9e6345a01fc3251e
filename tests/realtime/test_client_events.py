"""Section 3 of the contract: what each event of a client does."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import Hold, LlmCue, Status, SttCue, tokens
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import User, calling

MANUAL = {"audio": {"input": {"turn_detection": None}}}
SILENT = {"output_modalities": ["text"]}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}


async def refused(user: User, kind: str, **fields: object) -> dict[str, Any]:
    """The error of an event, which must name that event."""
    await user.send(kind, event_id="evt_of_mine", **fields)
    error: dict[str, Any] = (await user.until("error"))["error"]
    assert error["event_id"] == "evt_of_mine"
    return error


async def test_session_update(server: Any) -> None:
    """A partial update is merged deeply and answered with the whole session; one without `type` is taken."""
    async with calling(server.url) as user:
        before = user.events[0]["session"]
        await user.send("session.update", session={"audio": {"output": {"speed": 1.25}}})
        after = (await user.until("session.updated"))["session"]
    assert after["audio"]["output"] == before["audio"]["output"] | {"speed": 1.25}
    assert after | {"audio": before["audio"]} == before
    assert after["audio"]["input"] == before["audio"]["input"]


@pytest.mark.parametrize("chunk_bytes", [959, 960, 48_001, 10_000_000])
async def test_input_audio_buffer_append(server: Any, speech: Samples, chunk_bytes: int) -> None:
    """No answer; any size of piece, cut in the middle of a sample too, is the same speech; also before any update."""
    pcm = speech.tobytes()
    async with calling(server.url) as user:
        for first in range(0, len(pcm), chunk_bytes):
            audio = base64.b64encode(pcm[first : first + chunk_bytes]).decode()
            await user.send("input_audio_buffer.append", audio=audio)
        await user.until("response.done")
        assert user.kinds()[:3] == [
            "session.created",
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
        ]
    played_text = (await server.vendor.stt.nth(0)).samples.astype(float)
    assert np.abs(np.diff(played_text)).mean() < np.abs(played_text).mean(), (
        "speech, not the noise of bytes that slipped"
    )


async def test_input_audio_buffer_commit(server: Any, speech: Samples) -> None:
    """The audio becomes an item, and no response starts; a commit of less than 100 ms is an error."""
    async with calling(server.url, session=MANUAL) as user:
        assert (await refused(user, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
        await user.speak(speech[: 24 * 90])
        assert (await refused(user, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
        await user.speak(speech)
        await user.send("input_audio_buffer.commit")
        committed = await user.until("input_audio_buffer.committed")
        added = await user.until("conversation.item.added")
        done = await user.until("conversation.item.done")
        assert committed["item_id"] == added["item"]["id"] == done["item"]["id"]
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
        assert "response.created" not in user.kinds()
    assert server.vendor.llm.received == []


async def test_input_audio_buffer_clear(server: Any, speech: Samples) -> None:
    """What was not committed is forgotten."""
    async with calling(server.url, session=MANUAL) as user:
        await user.speak(speech)
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
        assert (await refused(user, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


ITEMS = {
    "system": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be kind."}]},
    "user": HELLO,
    "assistant": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    "assistant as pipecat has it": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "input_text", "text": "Hi."}],
    },
    "function_call": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    "function_call_output": {"type": "function_call_output", "call_id": "c", "output": "o"},
}


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
async def test_conversation_item_create(server: Any, item: dict[str, Any]) -> None:
    """Every kind of item is acknowledged under the id that its client gave it."""
    async with calling(server.url) as user:
        if item["type"] == "function_call_output":
            await user.send("conversation.item.create", item=ITEMS["function_call"])
            await user.until("conversation.item.done")
        await user.send("conversation.item.create", item={"id": "mine-7", **item})
        added = await user.until("conversation.item.added")
        done = await user.until("conversation.item.done")
        assert added["item"] == done["item"]
        assert (added["item"]["id"], added["item"]["type"]) == ("mine-7", item["type"])
        assert added["item"]["status"] == "completed"
        again = await refused(user, "conversation.item.create", item={"id": "mine-7", **item})
        assert again["code"] == "item_create_duplicate_item_id"


def recorded(speech: Samples, **more: object) -> dict[str, Any]:
    """An item of a whole recording."""
    part = {"type": "input_audio", "audio": base64.b64encode(speech.tobytes()).decode(), **more}
    return {"id": "mine", "type": "message", "role": "user", "content": [part]}


TRANSCRIBED = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}} | SILENT


async def test_a_recording_is_transcribed_and_answered(fake_server: Any, speech: Samples, answer: str) -> None:
    """Its events are those of a commit; a reply that is requested at once waits for its words, and pays for them."""
    prices = {"providers.fake.stt_usd_per_minute": 60.0}
    async with fake_server(prices) as server, calling(server.url, session=TRANSCRIBED) as user:
        hold = Hold()
        server.vendor.llm.usual = LlmCue(tokens=tokens(answer))
        server.vendor.stt.cue(SttCue(text="What time is it?", hold=hold))
        await user.send("conversation.item.create", item=recorded(speech))
        added = await user.until("conversation.item.added")
        assert added["item"]["content"] == [{"type": "input_audio", "transcript": None}]
        await user.send("response.create")
        await user.until("response.created")
        assert server.vendor.llm.received == []
        hold.release.set()
        done = await user.until("conversation.item.input_audio_transcription.completed")
        assert (done["item_id"], done["transcript"]) == ("mine", "What time is it?")
        assert done["usage"]["seconds"] == pytest.approx(len(speech) / 24_000, abs=0.01)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
        await user.send("conversation.item.retrieve", item_id="mine")
        displayed = (await user.until("conversation.item.retrieved"))["item"]
    assert displayed["content"] == [{"type": "input_audio", "transcript": "What time is it?"}]
    assert (await server.vendor.llm.nth(0)).question["messages"][-1] == {"role": "user", "content": "What time is it?"}
    samples = (await server.vendor.stt.nth(0)).samples
    assert len(samples) / 16_000 == pytest.approx(len(speech) / 24_000, abs=0.2)


async def test_a_recordings_transcript_that_is_lost_says_so(server: Any, speech: Samples) -> None:
    """As after a commit; the session goes on."""
    async with calling(server.url, session=TRANSCRIBED) as user:
        server.vendor.stt.cue(*[SttCue(fault=Status(400))] * 3)
        await user.send("conversation.item.create", item=recorded(speech))
        failed = await user.until("conversation.item.input_audio_transcription.failed")
        assert failed["item_id"] == "mine"
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"


async def test_a_recording_with_text_keeps_it(server: Any, speech: Samples) -> None:
    """The words stand where the audio was; audio with a transcript is not heard again."""
    async with calling(server.url, session=TRANSCRIBED) as user:
        server.vendor.stt.cue(SttCue(text="noon"))
        item = recorded(speech)
        item["content"] += [{"type": "input_text", "text": "Is it?"}, recorded(speech, transcript="no")["content"][0]]
        await user.send("conversation.item.create", item=item)
        await user.until("conversation.item.input_audio_transcription.completed")
        await user.send("conversation.item.retrieve", item_id="mine")
        parts = (await user.until("conversation.item.retrieved"))["item"]["content"]
        assert [part.get("transcript", part.get("text")) for part in parts] == ["noon", "Is it?", "no"]
        assert len(server.vendor.stt.received) == 1


async def test_a_recording_that_is_no_base64_is_refused(server: Any) -> None:
    """By the path of its part; nothing is added."""
    async with calling(server.url) as user:
        part = {"type": "input_audio", "audio": "no base64"}
        error = await refused(user, "conversation.item.create", item=HELLO | {"content": [part]})
        assert (error["code"], error["param"]) == ("invalid_value", "item.content[0].audio")


async def test_more_recordings_than_are_transcribed_at_once_are_refused(server: Any, speech: Samples) -> None:
    """So that no client keeps a transcriber busy."""
    async with calling(server.url, session=TRANSCRIBED) as user:
        hold = Hold()
        server.vendor.stt.cue(*[SttCue(text="noon", hold=hold)] * 4)
        for n in range(4):
            await user.send("conversation.item.create", item=recorded(speech) | {"id": f"mine-{n}"})
        error = await refused(user, "conversation.item.create", item=recorded(speech))
        assert (error["code"], error["param"]) == ("too_many_recordings", "item")
        hold.release.set()
        for _ in range(4):
            await user.until("conversation.item.input_audio_transcription.completed")


async def test_a_result_without_its_call_is_refused(server: Any) -> None:
    """The published code, so that a client finds its mistake; nothing is added."""
    async with calling(server.url) as user:
        error = await refused(user, "conversation.item.create", item=ITEMS["function_call_output"])
        assert (error["code"], error["param"]) == ("invalid_tool_call_id", "item.call_id")
        assert user.checker.order == ()


async def test_conversation_item_create_in_its_place(server: Any) -> None:
    """`root` is the front, absent and null the end, an id the place after that item."""
    async with calling(server.url) as user:
        places: dict[str, dict[str, str | None]] = {
            "b": {},
            "d": {"previous_item_id": None},
            "a": {"previous_item_id": "root"},
            "c": {"previous_item_id": "b"},
        }
        for item_id, place in places.items():
            await user.send("conversation.item.create", item={"id": item_id, **HELLO}, **place)
            await user.until("conversation.item.done")
        assert user.checker.order == ("a", "b", "c", "d")
        previous = [e["previous_item_id"] for e in user.events if e["type"] == "conversation.item.added"]
        assert previous == [None, "b", None, "b"]
        nowhere = await refused(user, "conversation.item.create", item=HELLO, previous_item_id="nobody")
        assert nowhere["param"] == "previous_item_id"


async def test_conversation_item_truncate(server: Any, answer: str) -> None:
    """The history is cut to what was played; a position beyond the audio counts as its end."""
    async with calling(server.url) as user:
        await user.send("response.create")
        item_id = (await user.until("response.done"))["response"]["output"][0]["id"]
        for end_ms, played_text in ((60_000, answer), (200, "It is"), (0, "")):
            await user.send(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms, event_id="x"
            )
            cut = await user.until("conversation.item.truncated")
            assert (cut["item_id"], cut["content_index"], cut["audio_end_ms"]) == (item_id, 0, end_ms)
            await user.send("conversation.item.retrieve", item_id=item_id)
            displayed = (await user.until("conversation.item.retrieved"))["item"]
            assert displayed["content"][0]["transcript"] == played_text


async def test_conversation_item_retrieve(server: Any) -> None:
    """An item as it stands, the assistant's in the middle of being made too; an unknown one is an error."""
    hold = Hold(after=4)
    server.vendor.llm.cue(LlmCue(tokens=("It", " is", " noon", ". ", "Else?"), hold=hold))
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        item_id = (await user.until("response.output_item.added"))["item"]["id"]
        await soon(hold.reached)
        await user.send("conversation.item.retrieve", item_id=item_id)
        displayed = (await user.until("conversation.item.retrieved"))["item"]
        assert displayed["status"] == "in_progress"
        assert "It is noon. ".startswith(displayed["content"][0]["text"])
        hold.release.set()
        await user.until("response.done")
        error = await refused(user, "conversation.item.retrieve", item_id="nobody")
        assert error["code"] == "item_retrieve_invalid_item_id"


async def test_conversation_item_delete(server: Any) -> None:
    """The item is gone, for the model too; an unknown one is an error."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("conversation.item.create", item={"id": "x", **HELLO})
        await user.send("conversation.item.delete", item_id="x")
        assert (await user.until("conversation.item.deleted"))["item_id"] == "x"
        error = await refused(user, "conversation.item.delete", item_id="x")
        assert error["code"] == "item_delete_invalid_item_id"
        await user.send("response.create")
        await user.until("response.done")
    messages = (await server.vendor.llm.nth(0)).question["messages"]
    assert [message["role"] for message in messages if message["role"] != "system"] == []


async def test_response_create(server: Any) -> None:
    """A response, without anything that was said."""
    async with calling(server.url) as user:
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"


@pytest.mark.parametrize("by_id", [False, True])
async def test_response_cancel(server: Any, by_id: bool) -> None:
    """The running response ends as cancelled; when none runs that is a harmless error with the words clients know."""
    hold = Hold(after=3)
    server.vendor.llm.cue(LlmCue(tokens=("One", " two", " three", " four"), hold=hold))
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        response_id = (await user.until("response.created"))["response"]["id"]
        await soon(hold.reached)
        await user.send("response.cancel", **({"response_id": response_id} if by_id else {}))
        done = (await user.until("response.done"))["response"]
        assert done["status"] == "cancelled"
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        error = await refused(user, "response.cancel")
        assert error["code"] == "response_cancel_not_active"
        assert error["message"].startswith("Cancellation failed")


async def test_output_audio_buffer_clear(server: Any) -> None:
    """Means something over WebRTC only: taken, and nothing happens."""
    async with calling(server.url) as user:
        await user.send("output_audio_buffer.clear")
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
        assert user.kinds() == ["session.created", "input_audio_buffer.cleared"]


BAD: dict[str, dict[str, Any]] = {
    "session.update": {"session": {"type": "realtime", "audio": {"output": {"speed": 9}}}},
    "input_audio_buffer.append": {"audio": "***"},
    "input_audio_buffer.commit": {},
    "conversation.item.create": {"item": {"type": "song"}},
    "conversation.item.truncate": {"item_id": "nobody", "content_index": 0, "audio_end_ms": 1},
    "conversation.item.retrieve": {"item_id": "nobody"},
    "conversation.item.delete": {"item_id": "nobody"},
    "response.create": {"response": {"tools": 7}},
    "response.cancel": {},
    "what.is.this": {},
}


@pytest.mark.parametrize("kind", BAD)
async def test_event_id(server: Any, kind: str) -> None:
    """An error names the event that caused it, and the session lives on."""
    async with calling(server.url) as user:
        error = await refused(user, kind, **BAD[kind])
        assert error["type"] == "invalid_request_error"
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
