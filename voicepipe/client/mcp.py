"""MCP servers that a session requests, and the decision on their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from voicepipe.client import events as e

Approve = Callable[[e.ApprovalRequested], Awaitable[bool]]
"""Decides whether a call may run."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server whose tools the agent may call."""

    label: str
    """Its name in the session."""

    url: str
    authorization: str = field(default="", repr=False)
    """A token for the server; empty: none."""

    allowed_tools: tuple[str, ...] = ()
    """The names of the tools; empty: all."""

    require_approval: Literal["always", "never"] = "always"

    def to_wire(self) -> dict[str, Any]:
        """Return its entry in the `tools` of a `session.update`."""
        optional = {"authorization": self.authorization, "allowed_tools": list(self.allowed_tools)}
        return {
            "type": "mcp",
            "server_label": self.label,
            "server_url": self.url,
            "require_approval": self.require_approval,
            **{name: value for name, value in optional.items() if value},
        }
