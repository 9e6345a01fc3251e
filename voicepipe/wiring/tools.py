"""Build the functions that agents may call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from voicepipe.agents.http_tool import HttpTool
from voicepipe.config.settings import Settings
from voicepipe.ports.server_tool import ServerTool
from voicepipe.session.end_call import END_CALL, EndCall


@asynccontextmanager
async def tools_of(settings: Settings) -> AsyncIterator[Mapping[str, ServerTool]]:
    """Yield the tools of the settings, by name."""
    # A call has its own time limit, also in a session that has ended.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        yield {END_CALL: EndCall()} | {
            name: HttpTool(tool.options(name), http) for name, tool in settings.tools.items()
        }
