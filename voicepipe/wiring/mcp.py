"""Keep the connections to the MCP servers of the settings."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from voicepipe.agents.mcp_options import McpOptions
from voicepipe.agents.mcp_server import McpConnection
from voicepipe.config.mcp import McpEntry
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.extras import install_command
from voicepipe.protocol.mcp import McpRequest, origin_of
from voicepipe.tasks import BackgroundTasks, background_tasks

START_S: Final = 10.0
"""How long the start, or a reload, waits for the first answers: a session that begins without a list has no tools."""


class McpServers:
    """The connections to the servers of the settings. Its own methods run one at a time."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._in_force: dict[str, tuple[McpEntry, McpConnection]] = {}
        self._retained: set[McpConnection] = set()
        """Those of sessions that began before a reload."""

    async def connected(self, settings: Settings) -> dict[str, McpConnection]:
        """Return the servers of these settings by name; those whose settings have not changed are the ones in force.

        It waits up to `START_S` for the lists of their tools. `put_in_force` or `drop` follows.

        Raises:
            ConfigError: there are servers, and the extra `mcp` is not installed.
        """
        if settings.mcp and importlib.util.find_spec("mcp") is None:
            raise ConfigError(f"mcp: expected the extra to be installed ({install_command('mcp')}), got none")
        servers: dict[str, McpConnection] = {}
        for name, entry in settings.mcp.items():
            before = self._in_force.get(name)
            if before is not None and before[0] == entry:
                servers[name] = before[1]
            else:
                servers[name] = McpConnection(entry.options(name))
                servers[name].task = self._tasks.start(servers[name].run(), name=f"mcp-{name}")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    for server in servers.values():
                        await server.attempted.wait()
        except BaseException:
            self.drop(servers)
            raise
        return servers

    def put_in_force(
        self, settings: Settings, servers: Mapping[str, McpConnection], *, retained_s: float = 0.0
    ) -> None:
        """Keep these connections. Others serve the sessions that run for `retained_s` more, and then end."""
        old = [server for _, server in self._in_force.values() if server not in servers.values()]
        self._in_force = {name: (settings.mcp[name], server) for name, server in servers.items()}
        for server in old:
            self._retained.add(server)
            self._tasks.start(self._end_later(server, retained_s), name="mcp-end")

    async def _end_later(self, server: McpConnection, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._retained.discard(server)
        server.end()

    def drop(self, servers: Mapping[str, McpConnection]) -> None:
        """End those of these connections that are not in force."""
        for server in servers.values():
            if all(server is not other for _, other in self._in_force.values()):
                server.end()

    def stop(self) -> None:
        """Connect no more: the process ends."""
        for server in (*self._retained, *(server for _, server in self._in_force.values())):
            server.stop()


@asynccontextmanager
async def open_mcp() -> AsyncIterator[McpServers]:
    """Yield the connections. A server that is away is connected when it comes."""
    async with background_tasks() as tasks:
        servers = McpServers(tasks)
        try:
            yield servers
        finally:
            servers.stop()


def check_requested(requests: Collection[McpRequest], origins: Collection[str]) -> None:
    """Check that sessions may request these servers: a client must not choose where the server sends requests.

    Raises:
        ProtocolError: one is at another origin than the operator has allowed, or the extra `mcp` is not installed.
    """
    allowed = {origin_of(origin) for origin in origins}
    for request in requests:
        if origin_of(request.url) not in allowed or importlib.util.find_spec("mcp") is None:
            why = f"session.tools: expected MCP servers of allowed origins, got {request.label!r} at another one"
            raise ProtocolError(why, field="session.tools", code="mcp_server_not_allowed")


def open_requested(request: McpRequest) -> McpConnection:
    """Return a connection to a server that a session requests. What it declares of its tools is not trusted."""
    return McpConnection(
        McpOptions(
            name=request.label,
            url=request.url,
            headers=request.headers,
            allowed_tools=request.allowed_tools,
            read_only=request.read_only,
            needs_approval=lambda name, read_only: request.approval.needed(name, read_only=read_only),
            is_trusted=False,
        )
    )
