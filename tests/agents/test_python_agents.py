"""Agents as Python objects: hooks, files, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from voicepipe.agents import Agent, ToolSession, load_file
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.ports.model import ModelRequest
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.apology import WORDS
from voicepipe.turn.record.values import TurnRecord

IMPORT = "from voicepipe.agents import Agent\n"
TEXT = {"output_modalities": ["text"]}


async def answer(user: User) -> str:
    done = await user.until("response.done")
    return str(done["response"]["output"][0]["content"][0]["text"])


async def test_hooks_follow_a_session(fake_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="voicepipe")
    agent = Agent("You know {{name}}.", variables={"name": "nobody"}, first_speaker="agent", greeting="Hello {{name}}.")
    records: list[TurnRecord] = []
    over: asyncio.Queue[ToolSession] = asyncio.Queue()  # bounded: one session ends

    @agent.on("session_started")
    async def start(session: ToolSession) -> dict[str, str]:
        return {"name": "Ada", "nmae": "refused"}

    @agent.on("before_reply")
    async def add(session: ToolSession, request: ModelRequest) -> str:
        return f"There are {len(request.messages)} messages."

    @agent.on("turn_ended")
    async def note(session: ToolSession, record: TurnRecord) -> None:
        records.append(record)

    @agent.on("session_ended")
    async def end(session: ToolSession) -> None:
        over.put_nowait(session)

    async with fake_server(agents=[agent]) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        async with calling(server.url, session=TEXT) as user:
            assert await answer(user) == "Hello Ada."
            await user.send("response.create")
            assert await answer(user) == "Fine."
        messages = (await server.vendor.llm.nth(0)).question["messages"]
        async with asyncio.timeout(WAIT_S):
            session = await over.get()
    assert [each["content"] for each in messages] == ["You know Ada.", "Hello Ada.", "There are 2 messages."]
    assert session.session_id.startswith("sess_")
    assert {record.cause for record in records} == {"greeting", "create"}
    refused = [record.fields["why"] for record in caplog.records if record.message == "hook_failed"]  # type: ignore[attr-defined]
    assert refused == ["expected variables of this agent (name), got nmae"]


async def test_what_hooks_return_may_be_no_unicode_text(fake_server: Any) -> None:
    agent = Agent("You know {{name}}.", variables={"name": ""})

    @agent.on("session_started")
    async def start(session: ToolSession) -> dict[str, str]:
        return {"name": "Ada \ud83d"}

    @agent.on("before_reply")
    async def add(session: ToolSession, request: ModelRequest) -> str:
        return "cut \ud83d"

    async with fake_server(agents=[agent]) as server, calling(server.url, session=TEXT) as user:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        assert await user.prompt("Hello.") == "Fine."
        messages = (await server.vendor.llm.nth(0)).question["messages"]
    assert [messages[0]["content"], messages[-1]["content"]] == ["You know Ada \ufffd.", "cut \ufffd"]


@pytest.mark.parametrize("fails", ["raises", "exits", "interrupts", "cancels itself", "overruns", "clings"])
async def test_a_hook_that_fails_costs_an_apology_at_most(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    caplog.set_level(logging.INFO, logger="voicepipe")
    for limit in ("START_MS", "REPLY_MS", "BACKGROUND_MS"):
        monkeypatch.setattr(f"voicepipe.wiring.agent_hooks.{limit}", 1)
    monkeypatch.setattr("voicepipe.cancellation.GRACE_S", 0.001)
    agent = Agent("Be brief.", first_speaker="agent", greeting="Hello.")

    async def fail(*_: Any) -> None:
        if fails == "raises":
            raise RuntimeError("password=hunter2")
        if fails == "exits":
            sys.exit("no database")
        if fails == "interrupts":
            raise KeyboardInterrupt
        if fails == "cancels itself":
            raise asyncio.CancelledError
        while fails == "clings":
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    for hook in ("session_started", "before_reply", "turn_ended", "session_ended"):
        agent.on(hook)(fail)
    async with fake_server(agents=[agent]) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        for _ in range(2):
            async with calling(server.url) as user:
                await user.send("session.update", session={"type": "realtime"})
                assert await user.answer() == "Hello."
                await user.send("response.create")
                failed = (await user.until("response.done"))["response"]
                assert (failed["status"], failed["status_details"]["error"]["code"]) == ("failed", "llm_failed")
                assert "password" not in str(failed)
                assert await user.answer() == WORDS["en"]
        assert server.vendor.llm.received == [], "the LLM answers nothing without the hook's text"
    failed = {record.fields["hook"] for record in caplog.records if record.message == "hook_failed"}  # type: ignore[attr-defined]
    assert failed == {"session_started", "before_reply", "turn_ended", "session_ended"}


def test_settings_override_what_the_object_says(tmp_path: Path) -> None:
    agent = Agent("Be brief.", name="clinic", language="en", budget={"tool_ms": 900}, aliases=["front"])
    overrides = {"agents.clinic.language": "de"}
    settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path, agents=[agent])
    options = settings.agents["clinic"]
    assert (options.instructions, options.language, options.budget.tool_ms, options.aliases) == (
        "Be brief.",
        "de",
        900,
        ("front",),
    )
    with pytest.raises(ConfigError, match=r"agents\.clinic\.speaks: unknown setting \(Agent 'clinic'\)"):
        load(environ={"HOME": "/h"}, folder=tmp_path, agents=[Agent(name="clinic", speaks="fast")])


def test_a_file_has_agents(tmp_path: Path) -> None:
    path = tmp_path / "support.py"
    path.write_text(
        "from voicepipe.agents import Agent\nagent = Agent('Be brief.')\nother = Agent(name='other')\nboth = agent\n"
    )
    assert [agent.name for agent in load_file(path)] == ["default", "other"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agent = 1\n", "expected an agent"),
        ("x = 1\nimport nothing_of_this_name\n", r"support\.py, line 2: ModuleNotFoundError: No module"),
        ("def f(:\n", "SyntaxError"),
        ("import sys\nsys.exit('no KEY')\n", r"support\.py, line 2: SystemExit: no KEY"),
        (f"{IMPORT}a = Agent()\nb = Agent()\n", "different names"),
        (f"{IMPORT}a = Agent()\n@a.tool\nasync def f(x): ...\n", "tool f: expected a type for each parameter"),
        (f"{IMPORT}a = Agent()\n@a.on('turn')\nasync def f(): ...\n", "expected one async"),
        (f"{IMPORT}a = Agent()\n@a.on('turn_ended')\ndef f(): ...\n", "expected one async"),
        (f"{IMPORT}a = Agent()\n@a.on('turn_ended')\nasync def f(record): ...\n", r"turn_ended\(session, record\)"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "support.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_file(path)


def test_a_file_may_import_modules_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "opening_hours_of_a_test.py").write_text("TEXT = 'From nine to five.'\n")
    path = tmp_path / "support.py"
    path.write_text(f"from opening_hours_of_a_test import TEXT\n{IMPORT}agent = Agent(TEXT)\n")
    (agent,) = load_file(path)
    assert agent.settings["instructions"] == "From nine to five."
    del sys.modules["opening_hours_of_a_test"]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which does not exist"):
        load_file(tmp_path / "support.py")
