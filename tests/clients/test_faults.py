"""The openai package for Python where this server once did something else than the published one."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import InvalidStatus

from voicepipe.audio.files import read_sound
from voicepipe.testing.waiting import WAIT_S

TRANSCRIPT = "what time is it"


def client_of(server: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


async def until(connection: Any, kind: str) -> Any:
    """Return the next event of this type."""
    async with asyncio.timeout(WAIT_S):
        while (event := await connection.recv()).type != kind:
            pass
        return event


async def test_an_item_with_a_whole_recording_is_transcribed_and_answered(fake_server: Any, question: Path) -> None:
    """It was acknowledged, and the LLM never read it."""
    audio = base64.b64encode(read_sound(question, 24_000).tobytes()).decode()
    content: Any = [{"type": "input_audio", "audio": audio}]
    transcribed: Any = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    async with fake_server() as server, client_of(server).realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session=transcribed)
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        done = await until(connection, "conversation.item.input_audio_transcription.completed")
        await connection.response.create()
        await until(connection, "response.done")
        messages = server.vendor.llm.received[-1].question["messages"]
    assert done.transcript == TRANSCRIPT
    assert [each["content"] for each in messages if each["role"] == "user"] == [TRANSCRIPT]


async def test_a_tool_of_an_unknown_type_leaves_the_rest_in_force(fake_server: Any) -> None:
    """It threw the whole update away. One error names it."""
    function = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}
    tools: Any = [function, {"type": "web_search"}]
    async with fake_server() as server, client_of(server).realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session={"type": "realtime", "instructions": "Be brief.", "tools": tools})
        session = (await until(connection, "session.updated")).session
        error = (await until(connection, "error")).error
    assert (session.instructions, [tool.name for tool in session.tools]) == ("Be brief.", ["look_up"])
    assert error.param == "session.tools[1].type"


async def test_a_field_that_is_not_served_is_null_and_named(fake_server: Any) -> None:
    """It was accepted and ignored."""
    requested: Any = {
        "type": "realtime",
        "instructions": "Be brief.",
        "include": ["item.input_audio_transcription.logprobs"],
    }
    async with fake_server() as server, client_of(server).realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session=requested)
        session = (await until(connection, "session.updated")).session
        error = (await until(connection, "error")).error
    assert (session.instructions, session.include) == ("Be brief.", None)
    assert error.param.startswith("session.include")


async def test_a_call_that_is_not_there_is_not_found(fake_server: Any) -> None:
    """It opened a new session."""
    async with fake_server() as server:
        with pytest.raises(InvalidStatus) as refused:
            async with client_of(server).realtime.connect(call_id="rtc_none"):
                pass
    assert refused.value.response.status_code == 404


async def test_a_result_without_its_call_is_refused(fake_server: Any) -> None:
    """It was taken for an item, and providers refused the request that had it."""
    item: Any = {"type": "function_call_output", "call_id": "call_none", "output": "3"}
    async with fake_server() as server, client_of(server).realtime.connect(model="gpt-realtime") as connection:
        await connection.conversation.item.create(item=item)
        error = (await until(connection, "error")).error
    assert error.code == "invalid_tool_call_id"
