"""In a full conversation, a client's new items are refused by name, and speech is answered."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, LlmCue
from voicepipe.testing.user import User, calling

TEXT = {"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}}
SPOKEN = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
PICTURE = "data:image/png;base64," + "A" * 50_000


@pytest.fixture
def more_settings() -> dict[str, object]:
    """A conversation of few items, and a history of fewer."""
    return {
        "conversation.max_items": 20,
        "conversation.max_chars": 120_000,
        "conversation.history_items": 10,
    }


async def add(user: User, item: dict[str, Any]) -> dict[str, Any]:
    """Add an item; returns what the server says to it."""
    await user.send("conversation.item.create", event_id="mine", item=item)
    while True:
        event = await user.next()
        if event["type"] in ("conversation.item.done", "error"):
            return event


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


WORDS = message({"type": "input_text", "text": "hello"})


async def test_items_beyond_the_limit_are_refused(server: Any) -> None:
    """The error names the event, the field, the limit and what came; the session goes on."""
    async with calling(server.base_url, session=TEXT) as user:
        for _ in range(20):
            assert (await add(user, WORDS))["type"] == "conversation.item.done"
        error = (await add(user, WORDS))["error"]
        assert (error["event_id"], error["param"], error["code"]) == ("mine", "item", "conversation_full")
        assert error["message"].startswith("item: expected at most 20 items in the conversation, got one more")
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    messages = server.vendor.llm.received[-1].question["messages"]
    assert sum(each["role"] == "user" for each in messages) <= 10


async def test_pictures_beyond_the_limit_are_refused(server: Any) -> None:
    """By their size; so is the input of a response that refers to one again and again."""
    async with calling(server.base_url, session=TEXT) as user:
        picture = message({"type": "input_image", "image_url": PICTURE})
        added = await add(user, picture)
        await add(user, picture)
        error = (await add(user, picture))["error"]
        assert (error["param"], error["code"]) == ("item", "conversation_full")
        assert "expected at most 120000 characters in all items of the conversation, got 150" in error["message"]
        reference = {"type": "item_reference", "id": added["item"]["id"]}
        await user.send("response.create", response={"conversation": "none", "input": [reference] * 3})
        error = (await user.until("error"))["error"]
        assert (error["param"], error["code"]) == ("response.input", "conversation_full")


async def test_the_instructions_of_a_response_are_bounded(server: Any) -> None:
    """As those of a session are."""
    async with calling(server.base_url, session=TEXT) as user:
        await user.send("response.create", response={"instructions": "x" * 150_001})
        error = (await user.until("error"))["error"]
        assert (error["param"], error["code"]) == ("response.instructions", "string_above_max_length")


async def test_a_spoken_turn_is_answered_all_the_same(server: Any, question: Samples) -> None:
    """The oldest items are deleted to make room, and the client is notified of each."""
    async with calling(server.base_url, session=SPOKEN) as user:
        added = [(await add(user, WORDS))["item"]["id"] for _ in range(20)]
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
        gone = [event["item_id"] for event in user.events if event["type"] == "conversation.item.deleted"]
        assert gone == added[:2]
        assert len(user.checker.order) == 20


async def test_the_result_of_a_call_is_taken(server: Any, question: Samples) -> None:
    """A turn that needs it does not fail."""
    async with calling(server.base_url, session=SPOKEN) as user:
        for _ in range(20):
            await add(user, WORDS)
        server.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look"),), finish="tool_calls"))
        await user.speak(question)
        await user.until("response.done")
        result = {"type": "function_call_output", "call_id": "call_fake", "output": "noon"}
        assert (await add(user, result))["type"] == "conversation.item.done"
        assert (await add(user, result))["type"] == "error"
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    messages = server.vendor.llm.received[-1].question["messages"]
    assert [each["role"] for each in messages[-2:]] == ["assistant", "tool"]
