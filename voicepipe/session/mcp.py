"""The MCP servers that one session's client requests: their connections, and the lists of their tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any

from voicepipe.ports.server_tool import ServerTool, ToolServer
from voicepipe.protocol.mcp import McpRequest
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e
from voicepipe.turn.conversation import ToolList

Open = Callable[[McpRequest], ToolServer]


class SessionMcp:
    """The servers of one session."""

    def __init__(
        self,
        open_server: Open | None,
        wire: EventRenderer,
        put: Callable[[Frames], None],
        post: Callable[[e.Event], None],
        on_tools: Callable[[], None],
    ) -> None:
        """`on_tools` is called when the tools have changed. `open_server` is None where no session may request any."""
        self._open, self._wire, self._put, self._post, self._on_tools = open_server, wire, put, post, on_tools
        self._servers: dict[McpRequest, tuple[ToolServer, asyncio.Task[None]]] = {}
        self._n_lists = 0

    def connect(self, requests: Collection[McpRequest], group: asyncio.TaskGroup | None) -> None:
        """Connect the servers that are requested now, in tasks of `group`, and disconnect all others. `group` is None
        before the session runs and once it ends."""
        if group is None or {*requests} == self._servers.keys():
            return
        for gone in [request for request in self._servers if request not in requests]:
            server, task = self._servers.pop(gone)
            server.stop()
            task.cancel()
        for request in requests:
            if request not in self._servers and self._open is not None:
                server = self._open(request)
                task = group.create_task(self._serve(server, request), name="mcp")
                self._servers[request] = server, task
        self._on_tools()

    def stop(self) -> None:
        """Connect no more: the session ends, and its tasks are cancelled."""
        for server, _ in self._servers.values():
            server.stop()

    def tools(self, taken: Collection[str]) -> tuple[ServerTool, ...]:
        """Return the tools of all servers, without names that are `taken`; of two of one name the first counts."""
        found: dict[str, ServerTool] = {}
        for server, _ in self._servers.values():
            for tool in server.tools:
                if (name := tool.facts.tool.name) not in taken:
                    found.setdefault(name, tool)
        return tuple(found.values())

    async def _serve(self, server: ToolServer, request: McpRequest) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report(server, request), name="mcp-list")
            await server.run()

    async def _report(self, server: ToolServer, request: McpRequest) -> None:
        """Notify the client of the list of tools, once the first attempt to connect is over."""
        self._n_lists += 1
        item_id = f"mcpl_{self._wire.config.session_id.removeprefix('sess_')}_{self._n_lists:04d}"
        self._put(self._wire.tool_list("mcp_list_tools.in_progress", item_id))
        await server.attempted.wait()
        if server.is_away:
            self._put(self._wire.tool_list("mcp_list_tools.failed", item_id))
        else:
            try:
                item = ToolList(item_id, request.label, _listed(server.tools))
                self._post(e.ItemCreateRequested(None, item, None))
                self._put(self._wire.tool_list("mcp_list_tools.completed", item_id))
            except Exception as bug:
                log_crash("mcp", bug)
        self._on_tools()


def _listed(tools: tuple[ServerTool, ...]) -> str:
    def plain(tool: ServerTool) -> dict[str, Any]:
        definition = tool.facts.tool
        return {
            "name": definition.name,
            "description": definition.description,
            "input_schema": json.loads(definition.parameters_json),
        }

    return json.dumps([plain(tool) for tool in tools], separators=(",", ":"), ensure_ascii=False)
