"""Tools of MCP servers: a fake one on a real socket, which falls away and comes back."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import logging
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from voicepipe.agents import Agent, mcp_server
from voicepipe.agents.mcp_options import McpOptions
from voicepipe.agents.mcp_server import McpConnection
from voicepipe.agents.mcp_tool import McpTool
from voicepipe.config import load
from voicepipe.config.docs_table import effective
from voicepipe.errors import ConfigError
from voicepipe.ports.server_tool import MAX_RESULT_CHARS, ToolError, ToolSession
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S, eventually

TEXT = {"output_modalities": ["text"]}
AWAY = "The server of this function cannot be reached now."
SESSION = ToolSession(session_id="sess_1", project="p", agent="default")
NUMBERS = itertools.count()
DAY = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    """The package is imported before the first test: no start of a server waits for that on a busy machine."""
    importlib.import_module("mcp")


@pytest.fixture
async def mcp() -> AsyncIterator[FakeMcpServer]:
    async with FakeMcpServer() as server:
        server.tools["free_times"] = FakeMcpTool(lambda given: f"{given['day']} 9:00", DAY, "Find free times.", True)
        server.tools["book"] = FakeMcpTool(_book)
        yield server


def _book(given: dict[str, Any]) -> str:
    if "day" not in given:
        raise ValueError("Which day?")
    return "x" * (MAX_RESULT_CHARS + 1)


def settings(mcp: FakeMcpServer, **more: object) -> dict[str, object]:
    return {"mcp.clinic.url": mcp.url, "agents.default.mcp": "clinic", **more}


def call(name: str, **arguments: Any) -> CallCue:
    return CallCue(name, (json.dumps(arguments),), f"c{next(NUMBERS)}")


async def result_of(server: Any, user: User, cue: CallCue) -> str:
    """What the LLM reads of a call."""
    before = len(server.vendor.llm.received)
    server.vendor.llm.cue(LlmCue(calls=(cue,)), LlmCue(tokens=tokens("Done.")))
    assert await user.prompt("hello") == "Done."
    messages = (await server.vendor.llm.nth(before + 1)).question["messages"]
    return str(messages[-1]["content"])


async def test_an_agent_calls_a_tool_of_an_mcp_server(fake_server: Any, mcp: FakeMcpServer) -> None:
    """The LLM gets the server's own schema. The client sees the server's name, and no side effect is assumed of a tool
    that only reads.
    """
    async with fake_server(settings(mcp)) as server, calling(server.url, session=TEXT) as user:
        assert await result_of(server, user, call("free_times", day="Monday")) == "Monday 9:00"
        sent = {each["function"]["name"]: each["function"] for each in server.vendor.llm.received[0].question["tools"]}
    assert sent["free_times"] == {"name": "free_times", "description": "Find free times.", "parameters": DAY}
    (item,) = [e["item"] for e in user.events if e["type"] == "conversation.item.done" and "output" in e["item"]]
    assert (item["type"], item["server_label"], item["output"]) == ("mcp_call", "clinic", "Monday 9:00")
    assert mcp.called == [("free_times", {"day": "Monday"})]


@pytest.mark.parametrize(
    ("cue", "read"),
    [
        (call("free_times", day=1), '{"error": "Wrong arguments: 1 is not of type \'string\' at .day"}'),
        (call("book"), '{"error": "Which day?"}'),
    ],
)
async def test_the_llm_reads_why_there_is_no_result(
    fake_server: Any, mcp: FakeMcpServer, cue: CallCue, read: str
) -> None:
    """Wrong arguments never reach the server."""
    async with fake_server(settings(mcp)) as server, calling(server.url, session=TEXT) as user:
        assert await result_of(server, user, cue) == read
    assert mcp.called == ([("book", {})] if cue.name == "book" else [])


async def test_a_result_is_bounded(fake_server: Any, mcp: FakeMcpServer) -> None:
    async with fake_server(settings(mcp)) as server, calling(server.url, session=TEXT) as user:
        result = await result_of(server, user, call("book", day="Monday"))
    assert len(result) == MAX_RESULT_CHARS
    assert result.endswith(" [cut]")


async def test_a_server_that_dies_during_a_call_and_comes_back(
    fake_server: Any, mcp: FakeMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that runs, and one while the server is away, end at once with an error that the LLM reads."""
    monkeypatch.setattr("voicepipe.agents.mcp_server.FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("voicepipe.agents.mcp_server.MAX_WAIT_S", 0.001)
    mcp.hold = asyncio.Event()
    async with fake_server(settings(mcp)) as server, calling(server.url, session=TEXT) as user:

        async def unplug() -> None:
            await mcp.held.wait()
            await mcp.unplug()

        async with asyncio.TaskGroup() as group:
            group.create_task(unplug())
            read = await result_of(server, user, call("free_times", day="Monday"))
        assert json.loads(read) == {"error": AWAY}
        assert json.loads(await result_of(server, user, call("free_times", day="Monday"))) == {"error": AWAY}
        mcp.hold = None
        await mcp.plug_in()

        async def back() -> bool | None:
            return await result_of(server, user, call("free_times", day="Monday")) == "Monday 9:00" or None

        assert await eventually(back)


async def test_a_server_that_hangs_costs_no_more_than_the_time_limit(fake_server: Any, mcp: FakeMcpServer) -> None:
    mcp.hold = asyncio.Event()
    more = settings(mcp, **{"mcp.clinic.timeout_ms": 1})
    async with fake_server(more) as server, calling(server.url, session=TEXT) as user:
        read = await result_of(server, user, call("free_times", day="Monday"))
    assert json.loads(read) == {"error": "No result within 1 ms."}


async def test_an_agent_has_the_tools_that_are_allowed(fake_server: Any, mcp: FakeMcpServer) -> None:
    """Of two tools of one name the agent's own counts. An agent that names no MCP server has none of its tools."""
    agent = Agent("Be brief.", name="other", mcp=["clinic"])

    @agent.tool
    async def free_times() -> str:
        """Ours."""
        return "ours"

    mcp.tools["reset all"] = FakeMcpTool()
    more = settings(mcp, **{"mcp.clinic.allowed_tools": "free_times,reset all", "agents.none.mcp": []})
    async with fake_server(more, agents=[agent]) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        for agent_name in ("default", "other", "none"):
            async with calling(server.url, session=TEXT, query=f"agent={agent_name}") as user:
                await user.prompt("hello")
        sent = [each.question.get("tools", []) for each in server.vendor.llm.received]
    assert [[each["function"]["name"] for each in tools] for tools in sent] == [["free_times"], ["free_times"], []]
    assert [tools[0]["function"]["description"] for tools in sent[:2]] == ["Find free times.", "Ours."]


async def test_secrets_are_in_no_log_and_no_text_for_the_llm(
    fake_server: Any, mcp: FakeMcpServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicepipe.agents.mcp_server.FIRST_WAIT_S", 0.001)
    caplog.set_level(logging.INFO)
    more = settings(mcp, **{"mcp.clinic.headers.Authorization": "Bearer hunter2"})
    more["mcp.clinic.url"] = f"{mcp.url}?key=hunter3"
    async with fake_server(more) as server, calling(server.url, session=TEXT) as user:
        assert await result_of(server, user, call("free_times", day="Monday")) == "Monday 9:00"
        assert mcp.requests[-1][2]["Authorization"] == "Bearer hunter2"
        await mcp.unplug()
        read = await result_of(server, user, call("free_times", day="Monday"))
    assert "hunter" not in read
    assert "mcp_failed" in caplog.messages
    ours = [
        record for record in caplog.records if record.name.split(".")[0] in ("voicepipe", "mcp", "httpx2", "client")
    ]
    assert not [record for record in ours if "hunter" in f"{record.getMessage()} {record.__dict__}"]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_llm_reads_no_header_that_a_server_echoes(fake_server: Any, mcp: FakeMcpServer, fails: bool) -> None:
    def echo(given: dict[str, Any]) -> str:
        said = f"Refused: {mcp.requests[-1][2]['Authorization']}"
        if fails:
            raise ValueError(said)
        return said

    mcp.tools["echo"] = FakeMcpTool(echo)
    more = settings(mcp, **{"mcp.clinic.headers.Authorization": "Bearer key-of-the-server"})
    async with fake_server(more) as server, calling(server.url, session=TEXT) as user:
        read = await result_of(server, user, call("echo"))
    assert "Refused: Bearer [secret]" in read
    assert "key-of" not in read


async def test_the_server_starts_without_an_mcp_server_that_is_away(fake_server: Any, mcp: FakeMcpServer) -> None:
    await mcp.unplug()
    async with fake_server(settings(mcp)) as server, calling(server.url, session=TEXT) as user:
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("hello") == "Fine."


async def test_the_extra_must_be_installed(
    fake_server: Any, mcp: FakeMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"mcp: expected the extra to be installed \(pip install .*\[mcp\]"):
        async with fake_server(settings(mcp)):
            pass


PROGRAM = """
from mcp.server.mcpserver import MCPServer
import os, sys
server = MCPServer("clinic")

@server.tool()
def key() -> str:
    return f"{os.environ['CLINIC_KEY']} {'SECRET_OF_OURS' in os.environ}"

@server.tool()
def die() -> str:
    os._exit(1)

server.run()
"""


@pytest.mark.slow
async def test_a_program_that_dies_is_started_again(
    fake_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the environment of its section, and nothing of ours."""
    monkeypatch.setattr("voicepipe.agents.mcp_server.FIRST_WAIT_S", 0.001)
    monkeypatch.setenv("SECRET_OF_OURS", "hunter2")
    (tmp_path / "clinic.py").write_text(PROGRAM)
    agent = Agent("Be brief.", mcp=["clinic"])
    more: dict[str, object] = {
        "mcp.clinic.command": [sys.executable, str(tmp_path / "clinic.py")],
        "mcp.clinic.environment.CLINIC_KEY": "k-1",
    }
    async with fake_server(more, agents=[agent]) as server, calling(server.url, session=TEXT) as user:
        assert await result_of(server, user, call("key")) == "k-1 False"
        assert json.loads(await result_of(server, user, call("die"))) == {"error": AWAY}

        async def back() -> bool | None:
            return await result_of(server, user, call("key")) == "k-1 False" or None

        assert await eventually(back)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((sys.executable, "-c", "raise SystemExit('hunter2')"), f"{sys.executable} has ended"),
        (
            (sys.executable, "-c", "import os; os.close(1); input()"),
            f"{sys.executable} has ended, or closed its output",
        ),
        (("/nowhere/clinic", "--key=hunter2"), "/nowhere/clinic can't be started: No such file or directory"),
    ],
)
async def test_the_log_says_what_became_of_a_program(
    command: tuple[str, ...], why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its arguments and its output, which may have secrets."""
    caplog.set_level(logging.INFO, logger="voicepipe")
    monkeypatch.setattr("sys.__stderr__", None)
    server = McpConnection(McpOptions(name="clinic", command=command))
    running = asyncio.create_task(server.run())
    try:
        await server.attempted.wait()
    finally:
        server.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (failed,) = [record for record in caplog.records if record.message == "mcp_failed"]
    assert failed.__dict__["fields"]["why"].startswith(why)
    assert "hunter2" not in str(failed.__dict__)


@pytest.mark.parametrize("arguments", ["[]", "{", '{"day": 1}', "[" * 100_000])
async def test_what_is_no_object_of_the_schema_is_refused(arguments: str) -> None:
    with pytest.raises(ToolError, match="Wrong arguments"):
        await _tool(DAY).call(arguments, SESSION)


async def test_a_schema_that_refers_elsewhere_is_never_fetched(mcp: FakeMcpServer) -> None:
    """The server itself judges the arguments then."""
    schema = {"type": "object", "properties": {"day": {"$ref": mcp.url}}}
    assert await _tool(schema).call('{"day": "Monday"}', SESSION) == "called"
    assert mcp.requests == []


def _tool(schema: dict[str, Any]) -> McpTool:
    async def called(name: str, arguments: dict[str, Any]) -> str:
        return "called"

    listed = SimpleNamespace(name="free_times", description=None, input_schema=schema, annotations=None)
    return McpTool(listed, McpOptions(name="clinic"), called)


async def test_the_connection_ends_whenever_it_is_stopped(mcp: FakeMcpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each step of a failing attempt to connect, too."""
    monkeypatch.setattr("voicepipe.agents.mcp_server.FIRST_WAIT_S", 0.001)
    await mcp.unplug()
    for n_steps in range(40):
        server = McpConnection(McpOptions(name="clinic", url=mcp.url))
        task = asyncio.create_task(server.run())
        await server.attempted.wait()
        for _ in range(n_steps):
            await asyncio.sleep(0.0001)
        server.stop()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=WAIT_S)
        assert done, f"it goes on after {n_steps} steps"


# --- settings -----------------------------------------------------------------------------------


def test_settings_of_an_mcp_server(tmp_path: Path) -> None:
    options = {
        "mcp.clinic.url": "https://clinic.example/mcp?key=hunter2",
        "mcp.clinic.headers.Authorization": "Bearer ${CLINIC_KEY}",
        "agents.default.mcp": "clinic",
    }
    loaded = load(overrides=options, environ={"HOME": "/h", "CLINIC_KEY": "hunter3"}, folder=tmp_path)
    assert loaded.mcp["clinic"].options("clinic").headers == (("Authorization", "Bearer hunter3"),)
    assert "hunter" not in f"{effective(loaded)} {loaded} {loaded.mcp['clinic'].options('clinic')}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mcp.clinic.timeout_ms": 1}, r"mcp\.clinic: expected either a url or a command"),
        ({"mcp.clinic.url": "http://h", "mcp.clinic.command": "run"}, r"mcp\.clinic: expected either"),
        ({"mcp.clinic.url": "ftp://h"}, r"mcp\.clinic\.url: expected an address that begins with http"),
        ({"mcp.clinic.url": "http://h", "mcp.clinic.headers.A": "${NO}"}, r"mcp\.clinic\.headers\.A: .* variable NO"),
        (
            {"agents.default.mcp": "clinik", "mcp.clinic.url": "http://h"},
            r"agents\.default\.mcp: .*\(clinic\), got 'clin",
        ),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(overrides=options, environ={"HOME": "/h"}, folder=tmp_path)


async def test_the_time_for_a_connection_begins_behind_the_import(
    mcp: FakeMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the import takes seconds: the first attempt would fail, and sessions begin without tools."""
    begun, go_on, load_package, n_imports = threading.Event(), threading.Event(), mcp_server._package, 0

    def slow() -> Any:
        nonlocal n_imports
        n_imports += 1
        begun.set()
        assert go_on.wait(WAIT_S)
        return load_package()

    async def has_begun() -> bool | None:
        return begun.is_set() or None

    monkeypatch.setattr(mcp_server, "_package", slow)
    monkeypatch.setattr(mcp_server, "CONNECT_S", 0.0)
    server = McpConnection(McpOptions(name="clinic", url=mcp.url))
    running = asyncio.create_task(server.run())
    await eventually(has_begun)
    monkeypatch.setattr(mcp_server, "CONNECT_S", WAIT_S)
    go_on.set()
    async with asyncio.timeout(WAIT_S):
        await server.attempted.wait()
    assert (server.n_connected, server.is_away, n_imports) == (1, False, 1)
    server.stop()
    running.cancel()
    await asyncio.wait([running])
