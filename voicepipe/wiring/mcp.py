"""Keep the connections to the MCP servers of the settings."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Final

from voicepipe.agents.mcp_options import McpOptions
from voicepipe.agents.mcp_server import McpServer
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.extras import install_command
from voicepipe.protocol.mcp import McpRequest, origin_of
from voicepipe.tasks import background_tasks

START_S: Final = 10.0
"""How long the start waits for the first answers: a session that begins without the list of tools has none of them."""


@asynccontextmanager
async def open_mcp(settings: Settings) -> AsyncIterator[Mapping[str, McpServer]]:
    """Yield the servers by name. One that is away is connected when it comes.

    Raises:
        ConfigError: the settings name one, and the extra `mcp` is not installed.
    """
    if not settings.mcp:
        yield MappingProxyType({})
        return
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError(f"mcp: expected the extra to be installed ({install_command('mcp')}), got none")
    servers = {name: McpServer(entry.options(name)) for name, entry in settings.mcp.items()}
    async with background_tasks() as tasks:
        for name, server in servers.items():
            tasks.start(server.run(), name=f"mcp-{name}")
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                for server in servers.values():
                    await server.attempted.wait()
        try:
            yield MappingProxyType(servers)
        finally:
            for server in servers.values():
                server.stop()


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


def open_requested(request: McpRequest) -> McpServer:
    """Return a connection to a server that a session requests. What it says of its tools is not trusted."""
    return McpServer(
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
