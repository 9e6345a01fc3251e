"""A conversation that is full: what its client adds is refused by name, and whoever speaks is answered."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Caller, calling
from voicepipe.testing.fakes.cues import CallCue, LlmCue

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


async def add(caller: Caller, item: dict[str, Any]) -> dict[str, Any]:
    """Add an item; returns what the server says to it."""
    await caller.send("conversation.item.create", event_id="mine", item=item)
    while True:
        event = await caller.next()
        if event["type"] in ("conversation.item.done", "error"):
            return event


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


WORDS = message({"type": "input_text", "text": "hello"})


async def test_items_beyond_the_limit_are_refused(house: Any) -> None:
    """The error names the event, the field, the limit and what came; the session goes on."""
    async with calling(house.base_url, session=TEXT) as caller:
        for _ in range(20):
            assert (await add(caller, WORDS))["type"] == "conversation.item.done"
        error = (await add(caller, WORDS))["error"]
        assert (error["event_id"], error["param"], error["code"]) == ("mine", "item", "conversation_full")
        assert error["message"].startswith("item: expected at most 20 items in the conversation, got one more")
        await caller.send("response.create")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
    asked = house.vendor.llm.asked[-1].question["messages"]
    assert sum(each["role"] == "user" for each in asked) <= 10


async def test_pictures_beyond_the_limit_are_refused(house: Any) -> None:
    """By their size; so is the input of a response that refers to one again and again."""
    async with calling(house.base_url, session=TEXT) as caller:
        picture = message({"type": "input_image", "image_url": PICTURE})
        added = await add(caller, picture)
        await add(caller, picture)
        error = (await add(caller, picture))["error"]
        assert (error["param"], error["code"]) == ("item", "conversation_full")
        assert "expected at most 120000 characters in all items of the conversation, got 150" in error["message"]
        reference = {"type": "item_reference", "id": added["item"]["id"]}
        await caller.send("response.create", response={"conversation": "none", "input": [reference] * 3})
        error = (await caller.until("error"))["error"]
        assert (error["param"], error["code"]) == ("response.input", "conversation_full")


async def test_the_instructions_of_a_response_are_bounded(house: Any) -> None:
    """As those of a session are."""
    async with calling(house.base_url, session=TEXT) as caller:
        await caller.send("response.create", response={"instructions": "x" * 150_001})
        error = (await caller.until("error"))["error"]
        assert (error["param"], error["code"]) == ("response.instructions", "string_above_max_length")


async def test_a_spoken_turn_is_answered_all_the_same(house: Any, question: Samples) -> None:
    """The oldest items leave for it, and the client is told of each."""
    async with calling(house.base_url, session=SPOKEN) as caller:
        added = [(await add(caller, WORDS))["item"]["id"] for _ in range(20)]
        await caller.say(question)
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        gone = [event["item_id"] for event in caller.events if event["type"] == "conversation.item.deleted"]
        assert gone == added[:2]
        assert len(caller.checker.order) == 20


async def test_the_result_of_a_call_is_taken(house: Any, question: Samples) -> None:
    """A turn that needs it does not fail."""
    async with calling(house.base_url, session=SPOKEN) as caller:
        for _ in range(20):
            await add(caller, WORDS)
        house.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look"),), finish="tool_calls"))
        await caller.say(question)
        await caller.until("response.done")
        result = {"type": "function_call_output", "call_id": "call_fake", "output": "noon"}
        assert (await add(caller, result))["type"] == "conversation.item.done"
        assert (await add(caller, result))["type"] == "error"
        await caller.send("response.create")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
    asked = house.vendor.llm.asked[-1].question["messages"]
    assert [each["role"] for each in asked[-2:]] == ["assistant", "tool"]
