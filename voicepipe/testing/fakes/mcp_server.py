"""An MCP server on a local socket (streamable HTTP, JSON answers), which can fall away and come back.

async with FakeMcpServer() as mcp:
    mcp.tools["add"] = FakeMcpTool(schema, lambda arguments: "3")
    ...  # connect to mcp.url
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

VERSION = "2025-11-25"
"""The protocol version that it speaks."""


@dataclass(slots=True)
class FakeMcpTool:
    """One of its tools."""

    answer: Callable[[dict[str, Any]], str] = lambda arguments: "done"
    """Returns the result's text; a `ValueError` is a tool that failed."""

    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    description: str = ""
    read_only: bool = False


class FakeMcpServer:
    """The server. The kernel picks its port, which it keeps while it is unplugged."""

    def __init__(self) -> None:
        self.tools: dict[str, FakeMcpTool] = {}
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        """The method, parameters and headers of each request."""

        self.hold: asyncio.Event | None = None
        """Set: calls wait for it."""

        self.held = asyncio.Event()
        """A call waits."""

        self.status = 0
        """Not 0: each request is answered with this status."""

        self.port = 0
        self._sessions: set[str] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the calls so far: names and arguments."""
        return [(params["name"], params.get("arguments") or {}) for m, params, _ in self.requests if m == "tools/call"]

    async def __aenter__(self) -> FakeMcpServer:
        await self.plug_in()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.unplug()

    async def plug_in(self) -> None:
        """Listen, on the earlier port if there was one. It has no session of before."""
        self._sessions.clear()
        app = web.Application()
        app.router.add_post("/mcp", self._answer)
        app.router.add_delete("/mcp", self._end)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def unplug(self) -> None:
        """Close every connection, and listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _end(self, request: web.Request) -> web.Response:
        self._sessions.discard(request.headers.get("Mcp-Session-Id", ""))
        return web.Response(status=204)

    async def _answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        method, params = message.get("method", ""), message.get("params") or {}
        self.requests.append((method, params, dict(request.headers)))
        if self.status:
            return web.Response(status=self.status)
        if "id" not in message:
            return web.Response(status=202)
        session = request.headers.get("Mcp-Session-Id", "")
        if method == "initialize":
            session = secrets.token_hex(8)
            self._sessions.add(session)
        elif method in ("tools/list", "tools/call") and session not in self._sessions:
            return web.Response(status=404)
        result = await self._result(method, params)
        body = {"jsonrpc": "2.0", "id": message["id"], **result}
        headers = {"Mcp-Session-Id": session} if session else {}
        return web.json_response(body, headers=headers)

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                about = {"name": "fake", "version": "1"}
                return {"result": {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": about}}
            case "tools/list":
                return {"result": {"tools": [_listed(name, tool) for name, tool in self.tools.items()]}}
            case "tools/call" if params["name"] in self.tools:
                if self.hold is not None:
                    self.held.set()
                    await self.hold.wait()
                return {"result": self._called(self.tools[params["name"]], params.get("arguments") or {})}
            case "tools/call":
                return {"error": {"code": -32602, "message": f"Unknown tool: {params['name']}"}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def _called(self, tool: FakeMcpTool, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            text, failed = tool.answer(arguments), False
        except ValueError as why:
            text, failed = str(why), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}


def _listed(name: str, tool: FakeMcpTool) -> dict[str, Any]:
    about = {"name": name, "description": tool.description, "inputSchema": tool.schema}
    return {**about, "annotations": {"readOnlyHint": tool.read_only}}
