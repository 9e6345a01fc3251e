"""Keep the connections to the MCP servers of the settings."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Final

from voicepipe.agents.mcp_server import McpServer
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.extras import install_command
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
