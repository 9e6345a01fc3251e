"""Several workers: a reload reaches all of them, and each loads the agents of a Python file."""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.wiring.workers import Server, serving
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow

AGENTS = "from voicepipe.agents import Agent\nfirst = Agent('Be brief.', name='first')\n"
SECOND = "second = Agent('Be kind.', name='second', hand_over=['first'])\n"


async def reload(server: Server) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers=server.headers) as http,
        http.post(f"{server.url}/v1/settings/reload") as answer,
    ):
        return answer.status, await answer.json()


async def printed(server: Server, words: str) -> None:
    """Wait until the server has printed a line with these words."""

    async def find() -> bool | None:
        return any(words in line for line in server.said) or None

    await eventually(find)


async def instructions_of(server: Server, agent: str) -> set[str]:
    """Open two sessions of an agent at once, which the two workers share; return their instructions."""
    found: set[str] = set()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=server.headers))
        for _ in range(2):
            line = await stack.enter_async_context(http.ws_connect(f"{server.url}/v1/realtime?agent={agent}"))
            found.add((await line.receive_json())["session"]["instructions"])
        await server.until_sessions(2)
    await server.until_sessions(0)
    return found


async def test_a_reload_reaches_each_worker(tmp_path: Path) -> None:
    """By the API and by SIGHUP; a broken file is refused by all, and a new worker has what is in force."""
    file = tmp_path / "agents.py"
    file.write_text(AGENTS)
    async with serving(tmp_path, "", str(file)) as server:
        await server.until_workers(2)
        assert await instructions_of(server, "first") == {"Be brief."}
        file.write_text(AGENTS + SECOND)
        status, answer = await reload(server)
        assert (status, answer["workers"]) == (200, {"reloaded": 2, "all": 2, "why": ""})
        assert {"first", "second"} <= set(answer["agents"])
        assert await instructions_of(server, "second") == {"Be kind."}

        file.write_text("agent = nothing\n")
        status, answer = await reload(server)
        assert (status, answer["error"]["code"]) == (409, "settings_refused")
        server.process.send_signal(signal.SIGHUP)
        await printed(server, "settings not reloaded, the old ones stay in force")
        assert await instructions_of(server, "second") == {"Be kind."}

        file.write_text(AGENTS + SECOND.replace("kind", "loud"))
        server.process.send_signal(signal.SIGHUP)
        await printed(server, "settings reloaded by 2 of 2 workers")
        before = server.pid(1)
        os.kill(before, signal.SIGKILL)
        await server.logs("worker_ended", worker=1)
        await server.until_workers(2)
        assert server.pid(1) != before
        assert await instructions_of(server, "second") == {"Be loud."}
