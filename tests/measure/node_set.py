"""Several nodes behind a balancer, with a store between them that can be stopped, slowed and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from tests.measure.node_users import answer_cue, speech_cue
from voicepipe.testing.fakes.cartesia_tts import KEY, FakeCartesia
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.free_port import free_port
from voicepipe.testing.redis import RedisServer
from voicepipe.testing.waiting import eventually

END_S: Final = 60.0
START_S: Final = 300.0
"""A cold start on a machine with thirty times as much work as cores."""

READ_BYTES: Final = 64 * 1024

NGINX: Final = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
  fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  upstream nodes {{ {servers} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://nodes; proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_set_header Host $http_host;
      proxy_connect_timeout 1s; proxy_read_timeout 1h; proxy_send_timeout 1h;
      proxy_next_upstream error timeout http_502 http_503 non_idempotent;
    }}
  }}
}}
"""
"""A node that is down refuses connections: nginx tries the next one."""

# The providers never fail here, but a busy machine may hold them for longer than the default timeouts.
CONFIG: Final = """
[server]
port = {port}
workers = 1
data_dir = "{folder}/data"
drain_ms = {drain_ms}
[cluster]
name = "measure"
node = "{name}"
[providers.fake]
base_url = "{vendor}"
connect_timeout_ms = 30000
idle_timeout_ms = 60000
[providers.cartesia]
base_url = "{voice}"
api_key = "{key}"
connect_timeout_ms = 30000
idle_timeout_ms = 60000
[agents.default]
stt = "fake/stt"
llm = "fake/llm"
tts = "cartesia/sonic-3"
"""


@dataclass(slots=True)
class Node:
    """A server process that can be ended and started again, on its port."""

    name: str
    port: int
    config: Path
    env: Mapping[str, str]
    log: Path
    process: Process | None = None

    @property
    def url(self) -> str:
        """Return its own address."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it accepts sessions."""
        command = (sys.executable, "-m", "voicepipe", "serve", "--config", str(self.config))
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=dict(self.env))
        await eventually(self._is_ready, within_s=START_S)

    async def kill(self) -> None:
        """Kill it as the kernel would (SIGKILL)."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Stop it as an operator would (SIGTERM), and wait until it has drained."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(END_S):
            await self.process.wait()

    async def _is_ready(self) -> bool | None:
        assert self.process is not None
        if self.process.returncode is not None:
            raise RuntimeError(f"{self.name} has ended: {self.log.read_text()[-2_000:]}")
        with suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as http, http.get(f"{self.url}/readyz") as answer:
                return answer.status == 200 or None
        return None


@dataclass(slots=True)
class SlowLink:
    """A TCP proxy before the store that delays each direction by `delay_ms`."""

    far_host: str
    far_port: int
    port: int = 0
    delay_ms: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        try:
            far_reader, far_writer = await asyncio.open_connection(self.far_host, self.far_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, far_writer), name="to the store")
                group.create_task(self._forward(far_reader, writer), name="from the store")
        finally:
            self._open -= ends
            for end in ends:
                end.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(READ_BYTES):
                await asyncio.sleep(self.delay_ms / 1_000)
                sink.write(data)
        sink.transport.abort()

    async def is_idle(self) -> bool | None:
        """Return whether the last connection has ended."""
        return not self._open or None

    def abort(self) -> None:
        """Drop all connections."""
        for end in tuple(self._open):
            end.transport.abort()


@dataclass(slots=True)
class NodeSet:
    """The nodes and what they need."""

    nodes: list[Node]
    url: str
    """The balancer's address."""

    vendor: FakeVendor
    store: RedisServer
    link: SlowLink


@asynccontextmanager
async def node_set(
    folder: Path,
    store: RedisServer,
    *,
    more_stores: Sequence[RedisServer] = (),
    n_nodes: int = 3,
    drain_ms: int = 20_000,
    records_url: str = "",
) -> AsyncIterator[NodeSet]:
    """Run nodes behind nginx while the block runs. A store with an address of its own is reached there, without the
    link. `more_stores`: they have the snapshots of sessions too. `records_url`: the Postgres of the records; empty:
    each node has a file.
    """
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(FakeVendor())
        voice = await stack.enter_async_context(FakeCartesia())
        vendor.llm.usual, voice.script.usual = answer_cue, speech_cue
        vendor.stt.usual = SttCue(text="What is there?")
        link = SlowLink(store.host, store.port)
        server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
        stack.push_async_callback(_closed, server, link)
        link.port = server.sockets[0].getsockname()[1]
        env = {key: value for key, value in os.environ.items() if not key.startswith("VOICEPIPE_")}
        is_near = store.host == "127.0.0.1"
        url = store.url.replace(f":{store.port}/", f":{link.port}/") if is_near else store.url
        env["VOICEPIPE_CLUSTER__STORE"] = url
        if more_stores:
            env["VOICEPIPE_CLUSTER__SNAPSHOT_STORES"] = ",".join((url, *(other.url for other in more_stores)))
        if records_url:
            env["VOICEPIPE_RECORDS__URL"] = records_url
        nodes = []
        for number in range(n_nodes):
            own, name = folder / str(number), f"node{number}"
            own.mkdir()
            port, config = free_port(), own / "voicepipe.toml"
            facts = {"vendor": vendor.base_url, "voice": voice.base_url, "key": KEY, "drain_ms": drain_ms}
            config.write_text(CONFIG.format(port=port, folder=own, name=name, **facts))
            nodes.append(Node(name, port, config, env, own / "log"))
            stack.push_async_callback(_ended, nodes[-1])
        await asyncio.gather(*(node.start() for node in nodes))
        url = await _balanced(folder, nodes, stack)
        yield NodeSet(nodes, url, vendor, store, link)


async def _balanced(folder: Path, nodes: list[Node], stack: AsyncExitStack) -> str:
    port, config = free_port(), folder / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{node.port} max_fails=0;" for node in nodes)
    config.write_text(NGINX.format(folder=folder, servers=servers, port=port))
    command = ("nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log"))
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    stack.push_async_callback(_killed, process)

    async def accepts() -> bool | None:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        return None

    await eventually(accepts)
    return f"http://127.0.0.1:{port}"


async def _closed(server: asyncio.Server, link: SlowLink) -> None:
    server.close()
    link.abort()
    await eventually(link.is_idle)


async def _ended(node: Node) -> None:
    if node.process is not None:
        await _killed(node.process)


async def _killed(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
