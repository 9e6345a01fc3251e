"""Section 3 of the contract: what each event of a client does."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Caller, calling
from voicepipe.testing.fakes.cues import Hold, LlmCue
from voicepipe.testing.fakes.desk import soon

MANUAL = {"audio": {"input": {"turn_detection": None}}}
SILENT = {"output_modalities": ["text"]}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}


async def refused(caller: Caller, kind: str, **fields: object) -> dict[str, Any]:
    """The error of an event, which must name that event."""
    await caller.send(kind, event_id="evt_of_mine", **fields)
    error: dict[str, Any] = (await caller.until("error"))["error"]
    assert error["event_id"] == "evt_of_mine"
    return error


async def test_session_update(house: Any) -> None:
    """A partial update is merged deeply and answered with the whole session; one without `type` is taken."""
    async with calling(house.url) as caller:
        before = caller.events[0]["session"]
        await caller.send("session.update", session={"audio": {"output": {"speed": 1.25}}})
        after = (await caller.until("session.updated"))["session"]
    assert after["audio"]["output"] == before["audio"]["output"] | {"speed": 1.25}
    assert after | {"audio": before["audio"]} == before
    assert after["audio"]["input"] == before["audio"]["input"]


@pytest.mark.parametrize("chunk_bytes", [959, 960, 48_001, 10_000_000])
async def test_input_audio_buffer_append(house: Any, speech: Samples, chunk_bytes: int) -> None:
    """No answer; any size of piece, cut in the middle of a sample too, is the same speech; also before any update."""
    pcm = speech.tobytes()
    async with calling(house.url) as caller:
        for first in range(0, len(pcm), chunk_bytes):
            audio = base64.b64encode(pcm[first : first + chunk_bytes]).decode()
            await caller.send("input_audio_buffer.append", audio=audio)
        await caller.until("response.done")
        assert caller.kinds()[:3] == [
            "session.created",
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
        ]
    heard = (await house.vendor.stt.nth(0)).samples.astype(float)
    assert np.abs(np.diff(heard)).mean() < np.abs(heard).mean(), "speech, not the noise of bytes that slipped"


async def test_input_audio_buffer_commit(house: Any, speech: Samples) -> None:
    """The audio becomes an item, and no response starts; a commit of less than 100 ms is an error."""
    async with calling(house.url, session=MANUAL) as caller:
        assert (await refused(caller, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
        await caller.say(speech[: 24 * 90])
        assert (await refused(caller, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"
        await caller.say(speech)
        await caller.send("input_audio_buffer.commit")
        committed = await caller.until("input_audio_buffer.committed")
        added = await caller.until("conversation.item.added")
        done = await caller.until("conversation.item.done")
        assert committed["item_id"] == added["item"]["id"] == done["item"]["id"]
        await caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
        assert "response.created" not in caller.kinds()
    assert house.vendor.llm.asked == []


async def test_input_audio_buffer_clear(house: Any, speech: Samples) -> None:
    """What was not committed is forgotten."""
    async with calling(house.url, session=MANUAL) as caller:
        await caller.say(speech)
        await caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
        assert (await refused(caller, "input_audio_buffer.commit"))["code"] == "input_audio_buffer_commit_empty"


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
async def test_conversation_item_create(house: Any, item: dict[str, Any]) -> None:
    """Every kind of item is acknowledged under the id that its client gave it."""
    async with calling(house.url) as caller:
        await caller.send("conversation.item.create", item={"id": "mine-7", **item})
        added = await caller.until("conversation.item.added")
        done = await caller.until("conversation.item.done")
        assert added["item"] == done["item"]
        assert (added["item"]["id"], added["item"]["type"]) == ("mine-7", item["type"])
        assert added["item"]["status"] == "completed"
        again = await refused(caller, "conversation.item.create", item={"id": "mine-7", **item})
        assert again["code"] == "item_create_duplicate_item_id"


async def test_conversation_item_create_in_its_place(house: Any) -> None:
    """`root` is the front, absent and null the end, an id the place after that item."""
    async with calling(house.url) as caller:
        places: dict[str, dict[str, str | None]] = {
            "b": {},
            "d": {"previous_item_id": None},
            "a": {"previous_item_id": "root"},
            "c": {"previous_item_id": "b"},
        }
        for item_id, place in places.items():
            await caller.send("conversation.item.create", item={"id": item_id, **HELLO}, **place)
            await caller.until("conversation.item.done")
        assert caller.checker.order == ("a", "b", "c", "d")
        previous = [e["previous_item_id"] for e in caller.events if e["type"] == "conversation.item.added"]
        assert previous == [None, "b", None, "b"]
        nowhere = await refused(caller, "conversation.item.create", item=HELLO, previous_item_id="nobody")
        assert nowhere["param"] == "previous_item_id"


async def test_conversation_item_truncate(house: Any, answer: str) -> None:
    """The history is cut to what was heard; a position beyond the sound is taken as its end."""
    async with calling(house.url) as caller:
        await caller.send("response.create")
        item_id = (await caller.until("response.done"))["response"]["output"][0]["id"]
        for end_ms, heard in ((60_000, answer), (200, "It is"), (0, "")):
            await caller.send(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms, event_id="x"
            )
            cut = await caller.until("conversation.item.truncated")
            assert (cut["item_id"], cut["content_index"], cut["audio_end_ms"]) == (item_id, 0, end_ms)
            await caller.send("conversation.item.retrieve", item_id=item_id)
            shown = (await caller.until("conversation.item.retrieved"))["item"]
            assert shown["content"][0]["transcript"] == heard


async def test_conversation_item_retrieve(house: Any) -> None:
    """An item as it stands, the assistant's in the middle of being made too; an unknown one is an error."""
    hold = Hold(after=4)
    house.vendor.llm.cue(LlmCue(tokens=("It", " is", " noon", ". ", "Else?"), hold=hold))
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("response.create")
        item_id = (await caller.until("response.output_item.added"))["item"]["id"]
        await soon(hold.reached)
        await caller.send("conversation.item.retrieve", item_id=item_id)
        shown = (await caller.until("conversation.item.retrieved"))["item"]
        assert shown["status"] == "in_progress"
        assert "It is noon. ".startswith(shown["content"][0]["text"])
        hold.release.set()
        await caller.until("response.done")
        error = await refused(caller, "conversation.item.retrieve", item_id="nobody")
        assert error["code"] == "item_retrieve_invalid_item_id"


async def test_conversation_item_delete(house: Any) -> None:
    """The item is gone, for the model too; an unknown one is an error."""
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("conversation.item.create", item={"id": "x", **HELLO})
        await caller.send("conversation.item.delete", item_id="x")
        assert (await caller.until("conversation.item.deleted"))["item_id"] == "x"
        error = await refused(caller, "conversation.item.delete", item_id="x")
        assert error["code"] == "item_delete_invalid_item_id"
        await caller.send("response.create")
        await caller.until("response.done")
    messages = (await house.vendor.llm.nth(0)).question["messages"]
    assert [message["role"] for message in messages if message["role"] != "system"] == []


async def test_response_create(house: Any) -> None:
    """A response, without anything that was said."""
    async with calling(house.url) as caller:
        await caller.send("response.create")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"


@pytest.mark.parametrize("by_id", [False, True])
async def test_response_cancel(house: Any, by_id: bool) -> None:
    """The running response ends as cancelled; when none runs that is a harmless error with the words clients know."""
    hold = Hold(after=3)
    house.vendor.llm.cue(LlmCue(tokens=("One", " two", " three", " four"), hold=hold))
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("response.create")
        response_id = (await caller.until("response.created"))["response"]["id"]
        await soon(hold.reached)
        await caller.send("response.cancel", **({"response_id": response_id} if by_id else {}))
        done = (await caller.until("response.done"))["response"]
        assert done["status"] == "cancelled"
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        error = await refused(caller, "response.cancel")
        assert error["code"] == "response_cancel_not_active"
        assert error["message"].startswith("Cancellation failed")


async def test_output_audio_buffer_clear(house: Any) -> None:
    """Means something over WebRTC only: taken, and nothing happens."""
    async with calling(house.url) as caller:
        await caller.send("output_audio_buffer.clear")
        await caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
        assert caller.kinds() == ["session.created", "input_audio_buffer.cleared"]


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
async def test_event_id(house: Any, kind: str) -> None:
    """An error names the event that caused it, and the session lives on."""
    async with calling(house.url) as caller:
        error = await refused(caller, kind, **BAD[kind])
        assert error["type"] == "invalid_request_error"
        await caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
