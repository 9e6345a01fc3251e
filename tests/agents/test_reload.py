"""Other settings come into force while the server runs, for new sessions only."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.agents import load_file
from voicepipe.agents.mcp_server import McpConnection
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.config import load
from voicepipe.config.settings import Settings
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.wiring import running
from voicepipe.wiring.mcp import McpServers, open_mcp
from voicepipe.wiring.serve import serve

TOML = """
[server]
port = 0
data_dir = "DATA"
drain_ms = 0
[providers.fake]
base_url = "URL"
[agents.default]
stt = "fake/stt"
llm = "fake/llm"
tts = "fake/tts"
instructions = "Old."
"""


class Folder:
    """The settings' file and the Python file, as they stand now."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self._toml = TOML.replace("URL", url).replace("DATA", str(path / "data"))
        self.write()
        (path / "agents.py").write_text("from voicepipe.agents import Agent\nagent = Agent(name='python')\n")

    def write(self, before: str = "", after: str = "", more: str = "") -> None:
        (self.path / "voicepipe.toml").write_text(self._toml.replace(before, after) + more)

    def read(self) -> Settings:
        return load(environ={"HOME": str(self.path)}, folder=self.path, agents=load_file(self.path / "agents.py"))


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[Any, Folder]]:
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        folder = Folder(tmp_path, vendor.base_url)
        async with running(folder.read(), read=folder.read) as server:
            yield server, folder


async def reload(server: Any, **headers: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.base_url}/v1/settings/reload", headers=headers) as answer,
    ):
        return answer.status, await answer.json()


def instructions(user: User) -> str:
    return str(next(event["session"]["instructions"] for event in reversed(user.events) if "session" in event))


async def test_a_reload_leaves_personal_data_redacted_for_the_llm(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        folder = Folder(tmp_path, vendor.base_url)
        folder.write(more='redact_for_llm = ["email"]\n')
        async with running(folder.read(), read=folder.read) as server:
            assert (await reload(server))[0] == 200
            vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
            async with calling(server.base_url, session={"output_modalities": ["text"]}) as user:
                await user.prompt("I am ada@example.com.")
        said = (await vendor.llm.nth(0)).question["messages"][-1]["content"]
    assert "ada@example.com" not in said


async def test_new_sessions_have_the_new_settings_and_running_ones_theirs(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, folder), calling(server.base_url) as running_user:
        folder.write("Old.", "New.", '[agents.second]\naliases = ["2"]\n')
        assert await reload(server) == (200, {"agents": ["default", "python", "second"]})
        async with calling(server.base_url) as user:
            assert instructions(user) == "New."
        async with calling(server.base_url, query="agent=2") as user:
            assert await user.prompt("Hello.") == "Fine."
        await running_user.send("session.update", session={"type": "realtime"})
        await running_user.until("session.updated")
        assert instructions(running_user) == "Old."
        assert await running_user.prompt("Hello.") == "Fine."


async def test_an_agent_that_is_gone_finishes_its_calls(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, folder):
        folder.write(more="[agents.second]\n")
        await reload(server)
        async with calling(server.base_url, query="agent=second") as user:
            folder.write()
            assert (await reload(server))[0] == 200
            assert await user.prompt("Hello.") == "Fine."
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with calling(server.base_url, query="agent=second"):
                pass


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("[agents.default]", "[agents.default", "expected a TOML file"),
        ("[agents.default]", f"deep = {'[' * 10_000}", "expected a TOML file"),
        ("Old.", "{{name}}", "agents.default.instructions: expected {{name}} of a variable"),
        ('llm = "fake/llm"', 'llm = "nowhere/llm"', "no provider is called 'nowhere'"),
        ("port = 0", "port = 1", "server: expected the values of the start, since a change needs a restart"),
        ('tts = "fake/tts"', 'tts = "local/hibari"', "agents: expected the local models of the start"),
    ],
)
async def test_wrong_settings_leave_the_old_ones_in_force(tmp_path: Path, before: str, after: str, why: str) -> None:
    async with served(tmp_path) as (server, folder):
        folder.write(before, after)
        status, answer = await reload(server)
        assert (status, answer["error"]["code"]) == (409, "settings_refused")
        assert why in answer["error"]["message"]
        async with calling(server.base_url) as user:
            assert instructions(user) == "Old."
            assert await user.prompt("Hello.") == "Fine."


@pytest.mark.parametrize(
    ("text", "why"), [("1 / 0\n", "ZeroDivisionError"), ("exit('no KEY')\n", "SystemExit: no KEY")]
)
async def test_a_broken_python_file_leaves_the_old_one_in_force(tmp_path: Path, text: str, why: str) -> None:
    async with served(tmp_path) as (server, folder):
        (folder.path / "agents.py").write_text(text)
        status, answer = await reload(server)
        assert (status, f"agents.py, line 1: {why}" in answer["error"]["message"]) == (409, True)
        async with calling(server.base_url) as user:
            assert await user.prompt("Hello.") == "Fine."


async def test_settings_that_cannot_be_read_for_any_reason_are_refused(tmp_path: Path) -> None:
    """Also for one that nothing foresees: SIGHUP ends no server."""
    async with FakeVendor() as vendor:
        folder = Folder(tmp_path, vendor.base_url)

        def read() -> Settings:
            raise MemoryError

        async with running(folder.read(), read=read) as server:
            status, answer = await reload(server)
    assert (status, answer["error"]["message"]) == (409, "the settings can't be put in force: MemoryError")


async def test_only_an_operator_of_all_projects_may_reload(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, _):
        keys = ApiKeys(tmp_path / "data")
        key = keys.create("acme", now_s=unix_s()).text
        status, _ = await reload(server, Authorization=f"Bearer {key}")
        assert status == 403


@pytest.mark.slow
async def test_a_signal_that_comes_before_the_server_listens_reloads_too(tmp_path: Path) -> None:
    """The settings may have changed since they were read; the signal's own effect would be to end the process."""
    lines: list[str] = []
    is_reloaded = asyncio.Event()

    def note(line: str) -> None:
        lines.append(line.split(",")[0])
        if line.startswith("settings"):
            is_reloaded.set()

    async with FakeVendor() as vendor:
        folder = Folder(tmp_path, vendor.base_url)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(folder.read(), note, folder.read))
            await asyncio.sleep(0)
            assert lines == []
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(WAIT_S):
                await is_reloaded.wait()
            assert lines[-1] == "settings reloaded"
            serving.cancel()


@pytest.mark.slow
async def test_a_signal_reloads(tmp_path: Path) -> None:
    """SIGHUP, with what came of it for the operator."""
    lines: asyncio.Queue[str] = asyncio.Queue()  # bounded: a test prints tens

    async def line(start: str) -> str:
        async with asyncio.timeout(WAIT_S):
            while not (found := await lines.get()).startswith(start):
                pass
        return found

    async with FakeVendor() as vendor:
        folder = Folder(tmp_path, vendor.base_url)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(folder.read(), lines.put_nowait, folder.read))
            await line("Ctrl-C")
            os.kill(os.getpid(), signal.SIGHUP)
            assert await line("settings") == "settings reloaded, agents: default, python"
            folder.write("Old.", "{{name}}")
            os.kill(os.getpid(), signal.SIGHUP)
            assert "the old ones stay in force: agents.default.instructions" in await line("settings")
            serving.cancel()


async def test_a_reloaded_agent_keeps_its_documents_and_hides_personal_data_from_the_llm(tmp_path: Path) -> None:
    """Both are put into an agent's stages beside its providers, at the start and at each reload."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("The blue ticket costs nine francs.")
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=tokens("Fine."))
        folder = Folder(tmp_path, vendor.base_url)
        folder.write(more=f'knowledge = "{tmp_path / "documents"}"\nredact_for_llm = ["email"]\n')
        async with running(folder.read(), read=folder.read) as server:
            assert (await reload(server))[0] == 200
            async with calling(server.base_url) as user:
                said = [{"type": "input_text", "text": "What is the blue ticket, anna@example.com?"}]
                await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": said})
                await user.send("response.create")
                await user.until("response.done")
            question = str((await vendor.llm.nth(0)).question["messages"][-1])
    assert "nine francs" in question
    assert "anna@example.com" not in question


def clinic(mcp: FakeMcpServer, *, of: str = "default") -> str:
    """Return the settings of an MCP server, and of an agent that has its tools."""
    return f'[agents.{of}]\nmcp = ["clinic"]\n[mcp.clinic]\nurl = "{mcp.url}"\n'


async def call_tool(vendor: FakeVendor, user: User, n_before: int) -> str:
    """Have the LLM call `where`; return what it reads of the result."""
    vendor.llm.cue(LlmCue(calls=(CallCue("where", ("{}",), f"c_{n_before}"),)), LlmCue(tokens=tokens("There.")))
    assert await user.prompt("Where?") == "There."
    return str((await vendor.llm.nth(n_before + 1)).question["messages"][-1]["content"])


async def test_mcp_servers_change_for_new_sessions(tmp_path: Path) -> None:
    """A call that runs keeps its connection, with or without the server in the settings."""
    text = {"output_modalities": ["text"]}
    async with FakeVendor() as vendor, FakeMcpServer() as old, FakeMcpServer() as new:
        old.tools["where"], new.tools["where"] = FakeMcpTool(lambda _: "old"), FakeMcpTool(lambda _: "new")
        folder = Folder(tmp_path, vendor.base_url)
        folder.write(more=clinic(old, of="second"))
        async with (
            running(folder.read(), read=folder.read) as server,
            calling(server.base_url, query="agent=second", session=text) as first,
        ):
            folder.write(more=clinic(new, of="second"))
            assert (await reload(server))[0] == 200
            async with calling(server.base_url, query="agent=second", session=text) as second:
                assert await call_tool(vendor, second, 0) == "new"
            assert await call_tool(vendor, first, 2) == "old"
            folder.write(more="[agents.second]\n")
            assert (await reload(server))[0] == 200
            assert await call_tool(vendor, first, 4) == "old"
            async with calling(server.base_url, query="agent=second", session=text) as third:
                vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
                assert await third.prompt("Where?") == "Fine."
                assert "tools" not in (await vendor.llm.nth(6)).question


async def test_a_connection_that_has_not_changed_stays_and_others_end(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, FakeMcpServer() as one, FakeMcpServer() as other, open_mcp() as servers:
        folder = Folder(tmp_path, vendor.base_url)

        async def put_in_force(mcp: FakeMcpServer) -> McpConnection:
            folder.write(more=clinic(mcp, of="second"))
            settings = folder.read()
            found = await servers.connected(settings)
            servers.put_in_force(settings, found)
            return found["clinic"]

        first = await put_in_force(one)
        assert await put_in_force(one) is first
        assert not first.is_away
        second = await put_in_force(other)
        await eventually(lambda: _is_over(first))
        assert not second.is_away


async def test_a_refused_reload_ends_the_connections_that_it_has_made(tmp_path: Path) -> None:
    made: list[McpConnection] = []
    connect = McpServers.connected

    async def connected(self: McpServers, settings: Settings) -> dict[str, McpConnection]:
        found = await connect(self, settings)
        made.extend(found.values())
        return found

    async with FakeMcpServer() as mcp, served(tmp_path) as (server, folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(McpServers, "connected", connected)
            folder.write('tts = "fake/tts"', 'tts = "local/hibari"', clinic(mcp, of="second"))
            assert (await reload(server))[0] == 409
        (client,) = made
        await eventually(lambda: _is_over(client))


async def _is_over(server: McpConnection) -> bool | None:
    return (server.task is not None and server.task.done()) or None
