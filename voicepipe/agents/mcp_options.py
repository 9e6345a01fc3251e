"""The options of an MCP server, for settings that load without the package `mcp`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """One server, checked: either `url` or `command` is set."""

    name: str
    """Its name in the settings, or the `server_label` of the session that requested it."""

    url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    """The program and its arguments."""

    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allowed_tools: tuple[str, ...] = ()
    """Names; empty: all."""

    read_only: bool | None = None
    """Set: only the tools that the server declares to be read-only, or those it does not."""

    needs_approval: Callable[[str, bool], bool] | None = None
    """Returns whether each call of a tool needs approval, by its name and its declaration as read-only; None: no."""

    timeout_ms: int = 10_000
    is_trusted: bool = True
    """Whether the operator has named this server: then a tool that it declares read-only counts as read-only."""
