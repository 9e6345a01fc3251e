"""Personal data of a call: replaced before the record, the journal and the log, and by setting before the LLM."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.pii import redact
from voicepipe.pii.redact import Kind, redact_pii
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

Event = dict[str, Any]

SPOKEN = "my card is four two four two four two four two four two four two four two four two"
STORED = {"records.redact": ["all"], "records.text": "always", "journals.enabled": True, "journals.text": "always"}


async def stored_turn(url: str) -> Event:
    """The only turn, once it is stored whole."""

    async def probe() -> Event | None:
        async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/turns") as answer:
            turns: list[Event] = (await answer.json())["data"]
        return turns[0] if turns and turns[0]["outcome"] else None

    return await eventually(probe)


def files_below(folder: Path) -> bytes:
    """Everything that the server has written."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_nothing_stored_has_the_original(
    fake_server: Any, speech: Samples, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the record, the journal, the database's files or the log; the LLM still reads what was said."""
    async with fake_server(STORED) as server:
        server.vendor.stt.usual = SttCue(text=SPOKEN)
        server.vendor.llm.usual = LlmCue(tokens=tokens("I wrote to anna@example.com."))
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
        turn = await stored_turn(server.url)
        question = (await server.vendor.llm.nth(0)).question["messages"][-1]
    assert turn["user_text"] == "my card is [card]"
    assert turn["agent_text"] == "I wrote to [email]."
    assert question["content"] == SPOKEN
    written = files_below(server.folder / "data")
    assert b"four two four two" not in written
    assert b"anna@example.com" not in written
    assert "four two four two" not in caplog.text


async def test_the_event_loop_searches_no_text_for_the_llm(
    fake_server: Any, speech: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long conversation takes a second of CPU, which the other sessions would wait."""
    threads: list[int] = []

    def search(text: str, kinds: Collection[Kind]) -> str:
        threads.append(threading.get_ident())
        return redact_pii(text, kinds)

    monkeypatch.setattr(redact, "redact_pii", search)
    async with fake_server({"agents.default.redact_for_llm": ["card"]}) as server:
        server.vendor.stt.usual = SttCue(text=SPOKEN)
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
        assert (await server.vendor.llm.nth(0)).question["messages"][-1]["content"] == "my card is [card]"
    assert threads
    assert threading.get_ident() not in threads


async def test_the_llm_reads_none_by_setting(fake_server: Any, speech: Samples) -> None:
    """Neither what was said, nor what was typed, nor a function's result; its instructions are the operator's own."""
    async with fake_server({"agents.default.redact_for_llm": ["card", "email"]}) as server:
        server.vendor.stt.usual = SttCue(text=SPOKEN)
        async with calling(server.url, session={"instructions": "You are desk@example.com."}) as user:
            typed = {"type": "input_text", "text": "I am anna@example.com, call +41 79 123 45 67."}
            await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": [typed]})
            await user.speak(speech)
            await user.until("response.done")
        system, written, spoken = (await server.vendor.llm.nth(0)).question["messages"]
    assert system["content"] == "You are desk@example.com."
    assert written["content"] == "I am [email], call +41 79 123 45 67."
    assert spoken["content"] == "my card is [card]"
