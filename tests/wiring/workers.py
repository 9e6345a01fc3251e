"""A server of two workers in a process of its own, and the sessions of its users."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil  # type: ignore[import-untyped]

from tests.wiring.test_serve import config_file
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.reconnecting_user import ReconnectingUser
from voicepipe.testing.waiting import WAIT_S, eventually

MAX_SESSIONS = 4
LIMITS = f"""
        max_sessions = {MAX_SESSIONS}
        max_chats = 2
        address_connections = 40
        drain_ms = 2000
        item_audio_s = 10
        [quotas]
        user_sessions = 2
"""


@dataclass
class Server:
    """A server of two workers."""

    process: asyncio.subprocess.Process
    vendor: FakeVendor
    key: str = ""
    url: str = ""
    said: list[str] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def take_log(self, line: str) -> None:
        """Take a line of stderr: nothing but log events belongs there."""
        assert line.startswith("{"), line
        self.logged.append(json.loads(line))

    def pid(self, worker: int) -> int:
        """The process of a worker, as last started."""
        started = (each for each in reversed(self.logged) if each["event"] == "worker_started")
        return next(int(each["pid"]) for each in started if each["worker"] == worker)

    async def logs(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait for a log event with these fields."""

        async def find() -> dict[str, Any] | None:
            return next((each for each in self.logged if {"event": event, **fields}.items() <= each.items()), None)

        return await eventually(find)

    async def read(self, path: str, **more: Any) -> Any:
        """Get an answer on a connection of its own."""
        async with (
            aiohttp.ClientSession(headers=self.headers) as http,
            http.get(f"{self.url}{path}", **more) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await (answer.json() if answer.content_type == "application/json" else answer.text())

    async def metric(self, name: str) -> float:
        """The value of a metric."""
        text = await self.read("/metrics")
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"voicepipe_{name} "))

    async def mint(self, **voicepipe: object) -> dict[str, Any]:
        """Mint a client secret."""
        async with (
            aiohttp.ClientSession(headers=self.headers) as http,
            http.post(f"{self.url}/v1/realtime/client_secrets", json={"voicepipe": voicepipe}) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return dict(await answer.json())

    async def until_sessions(self, count: int) -> None:
        """Wait until so many sessions have their slots."""

        async def probe() -> bool | None:
            return await self.metric("sessions") == count or None

        await eventually(probe)

    async def until_workers(self, n: int) -> None:
        """Wait until so many workers take connections: before that the others get all."""

        async def probe() -> bool | None:
            return await self.metric("workers") == n or None

        await eventually(probe)

    def connections(self, worker: int) -> int:
        """The number of connections to the port that a worker has."""
        port = int(self.url.rpartition(":")[2])
        found = psutil.Process(self.pid(worker)).net_connections("tcp")
        return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in found)


@asynccontextmanager
async def serving(folder: Path, more: str = "", *files: str) -> AsyncIterator[Server]:
    async with FakeVendor() as vendor:
        (folder / "data").mkdir(mode=0o700)
        key = ApiKeys(folder / "data").create("acme", now_s=1, scopes=("realtime", "tokens", "chat", "operate_all"))
        path = config_file(folder, vendor, limits=LIMITS + more)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voicepipe", "serve", *files, "--workers", "2", "--config", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("VOICEPIPE_")},
        )
        server = Server(process, vendor, key.text)
        try:
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(_read_lines(process.stdout, server.said.append), name="stdout")]
                readers += [group.create_task(_read_lines(process.stderr, server.take_log), name="stderr")]
                server.url = await eventually(lambda: _address(server))
                yield server
                for reader in readers:
                    reader.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
                async with asyncio.timeout(WAIT_S):
                    await process.wait()


async def _read_lines(stream: asyncio.StreamReader | None, take: Any) -> None:
    assert stream is not None
    while line := await stream.readline():
        take(line.decode().rstrip())


async def _address(server: Server) -> str | None:
    assert server.process.returncode is None, server.logged
    is_ready = any(line.startswith("Ctrl-C") for line in server.said)
    n_ready = sum(each["event"] == "worker_started" for each in server.logged)
    return server.said[0].rpartition(" ")[2] if is_ready and n_ready == 2 else None


@asynccontextmanager
async def talking(
    server: Server, *, key: str = "", resumable: bool = False, agent: str = "default"
) -> AsyncIterator[ReconnectingUser]:
    """An open session."""
    headers = {"Authorization": f"Bearer {key or server.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        line = await http.ws_connect(f"{server.url}/v1/realtime?agent={agent}", max_msg_size=0)
        user = ReconnectingUser(http, server.url, line)
        await user.until("session.created")
        session: dict[str, Any] = {"type": "realtime", "output_modalities": ["text"]}
        if resumable:
            session |= {"providerData": {"voicepipe": {"resume": True}}}
        await user.send("session.update", session=session)
        await user.until("session.updated")
        yield user
        for each in user.lines:
            await each.close()


async def take_turn(user: ReconnectingUser) -> str:
    """Have the agent answer; return its text."""
    content = [{"type": "input_text", "text": "What time is it?"}]
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await user.send("response.create")
    created = await user.until("response.created")
    while (done := await user.until("response.done"))["response"]["id"] != created["response"]["id"]:
        pass  # the worker that goes on with a session ends the response of the one that died
    assert done["response"]["status"] == "completed"
    return str(done["response"]["output"][0]["content"][0]["text"])


async def status_of(server: Server, key: str) -> int:
    """The status with which a session is refused; 101: it is not."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
        try:
            line = await http.ws_connect(f"{server.url}/v1/realtime")
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status
        await line.close()
        return 101
