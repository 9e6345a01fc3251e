"""The connection to one MCP server, kept up: over streamable HTTP, or to a program's standard input and output.

The package `mcp` is imported when the connection is made: it takes half a second, which only a server with such tools
should pay.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from voicepipe.agents.echoed_secrets import secrets_of, without
from voicepipe.agents.mcp_options import McpOptions
from voicepipe.agents.mcp_tool import MAX_LIST_CHARS, MAX_TOOLS, McpTool, is_read_only, text_of
from voicepipe.ports.server_tool import MAX_RESULT_CHARS, ToolError
from voicepipe.telemetry.log import log_event

if TYPE_CHECKING:
    from mcp import Client

CONNECT_S: Final = 10.0
"""The time limit of a connection, with the list of the tools."""

FIRST_WAIT_S: Final = 0.5
MAX_WAIT_S: Final = 60.0
"""The wait before the next attempt to connect: twice as long each time, a fifth more or less."""

LIST_S: Final = 30.0
"""Time between two lists of the tools; each also shows that the server is still there."""

_PAGES: Final = 20
"""How many pages a list of tools may have."""

_AWAY: Final = "The server of this function cannot be reached now."


class McpConnection:
    """One server. `run` keeps the connection; without one, a call fails at once."""

    def __init__(self, options: McpOptions) -> None:
        self.options, self._hidden = options, secrets_of(options.url, options.headers)
        self.tools: tuple[McpTool, ...] = ()
        """The tools as they were listed last; they stay while the server is away."""

        self.attempted = asyncio.Event()
        """Set when the first attempt to connect is over."""

        self.n_connected = 0
        """How often a connection was made."""

        self.is_away = True
        """There is no connection."""

        self.task: asyncio.Task[None] | None = None
        """The task of `run`, for `end`."""

        self._is_stopping = False
        self._client: Client | None = None
        self._broken = asyncio.Event()

    async def run(self) -> None:
        """Connect, and connect again whenever the connection is lost. `stop` before this is cancelled."""
        wait_s = FIRST_WAIT_S
        while not self._is_stopping:
            before = self.n_connected
            try:
                await self._connected()
            except Exception as why:
                log_event("mcp_failed", level=logging.WARNING, server=self.options.name, why=_reason(why, self.options))
            finally:
                self._client, self.is_away = None, True
                self.attempted.set()
            wait_s = FIRST_WAIT_S if self.n_connected > before else min(2 * wait_s, MAX_WAIT_S)
            if not self._is_stopping:
                await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))

    def stop(self) -> None:
        """Connect no more. A task group of `mcp` that fails at the same moment drops the task's cancellation."""
        self._is_stopping = True

    def end(self) -> None:
        """End the connection."""
        self.stop()
        if self.task is not None:
            self.task.cancel()

    async def _connected(self) -> None:
        """Serve calls until the connection is lost."""
        self._broken.clear()
        mcp = await asyncio.to_thread(_package)  # takes seconds on a busy machine, which are not the server's
        async with asyncio.timeout(CONNECT_S) as limit, _client(mcp, self.options) as client:
            await self._list(client)
            limit.reschedule(None)
            self._client, self.is_away = client, False
            self.n_connected += 1
            self.attempted.set()
            log_event("mcp_connected", server=self.options.name, tools=len(self.tools))
            while not await self._lost():
                async with asyncio.timeout(CONNECT_S):
                    await self._list(client)

    async def _lost(self) -> bool:
        """Wait until a call has failed, at most `LIST_S`; return whether one has."""
        try:
            async with asyncio.timeout(LIST_S):
                await self._broken.wait()
        except TimeoutError:
            return False
        return True

    async def _list(self, client: Client) -> None:
        listed: list[Any] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            listed += page.tools
            if (cursor := page.next_cursor) is None:
                break
        allowed = self.options.allowed_tools
        tools: dict[str, McpTool] = {}
        for each in listed:
            if (allowed and each.name not in allowed) or self.options.read_only not in (None, is_read_only(each)):
                continue
            try:
                tools.setdefault(each.name, McpTool(each, self.options, self._call))
            except ValueError as why:
                log_event("mcp_tool_refused", server=self.options.name, tool=each.name[:64], why=str(why))
        for missing in sorted(set(allowed) - {each.name for each in listed}):
            log_event("mcp_tool_refused", server=self.options.name, tool=missing, why="the server has no such tool")
        self.tools = tuple(_within_limits(tools.values()))

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        client = self._client
        if client is None:
            raise ToolError(_AWAY)
        from mcp import MCPError

        try:
            result = await client.call_tool(name, arguments)
        except MCPError as why:
            if why.code in _LOST:
                self._broken.set()
                raise ToolError(_AWAY) from None
            raise ToolError(f"The call failed: {without(self._hidden, why.message)[:500]}") from None
        except Exception as why:  # the connection was closed meanwhile, or the result does not fit its own schema
            log_event("mcp_failed", level=logging.WARNING, server=self.options.name, why=_reason(why, self.options))
            raise ToolError("The call failed.") from None
        text = without(self._hidden, text_of(result))
        if result.is_error:
            raise ToolError(text[:MAX_RESULT_CHARS])
        return text


def _within_limits(tools: Iterable[McpTool]) -> Iterator[McpTool]:
    """Yield the tools up to the first that is too many, or too much for one event to a client."""
    n_chars = 0
    for position, tool in enumerate(tools):
        definition = tool.facts.tool
        n_chars += len(definition.description) + len(definition.parameters_json)
        if position >= MAX_TOOLS or n_chars > MAX_LIST_CHARS:
            return
        yield tool


_LOST: Final = frozenset((-32000, -32600))
"""Codes with which `mcp` reports a connection that was closed, and a session that the server has no more."""


@asynccontextmanager
async def _client(mcp: Any, options: McpOptions) -> AsyncIterator[Client]:
    """Yield a client that is connected."""
    if options.command:
        program, *arguments = options.command
        how = mcp.StdioServerParameters(command=program, args=arguments, env=dict(options.environment))
        errors = sys.__stderr__ or subprocess.DEVNULL  # what the program logs is its own affair
        async with mcp.Client(mcp.client.stdio.stdio_client(how, errlog=errors)) as client:
            yield client
        return
    http = await asyncio.to_thread(_http_client, options.headers)
    async with (
        http,
        mcp.Client(mcp.client.streamable_http.streamable_http_client(options.url, http_client=http)) as client,
    ):
        yield client


def _package() -> Any:
    """Return the package `mcp`, with what is used of it. In a thread: the event loop serves calls meanwhile."""
    for name in ("jsonschema.validators", "mcp.client.stdio", "mcp.client.streamable_http"):
        importlib.import_module(name)
    for name in ("client", "httpx2", "mcp"):  # their lines may have arguments, results and addresses
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return importlib.import_module("mcp")


def _http_client(headers: tuple[tuple[str, str], ...]) -> Any:
    """Return an HTTP client. In a thread, since the first one reads all certificates of the machine."""
    httpx2 = importlib.import_module("httpx2")
    timeouts = httpx2.Timeout(CONNECT_S, read=None)  # each call has a time limit of its own
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeouts, verify=_certificates(), trust_env=False)


@cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()


def _reason(why: BaseException, options: McpOptions) -> str:
    """Return what went wrong, of several errors the first: without its text, which may have a secret, and without the
    arguments of the program, which may have one, too."""
    while isinstance(why, BaseExceptionGroup):
        why = why.exceptions[0]
    kind, program = type(why).__name__, next(iter(options.command), "")
    if isinstance(why, TimeoutError):
        return f"{program or 'the server'} did not answer within {CONNECT_S:g} s"
    if program and isinstance(why, OSError):
        return f"{program} can't be started: {os.strerror(why.errno) if why.errno else kind}"
    code = getattr(why, "code", None)  # of an MCPError
    if program and code in _LOST:
        return f"{program} has ended, or closed its output; what it wrote to its standard error is in the server's own"
    return f"{kind} {code}" if isinstance(code, int) else kind
