"""`[mcp.NAME]`: MCP servers whose tools agents may call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from voicepipe.agents.mcp_options import McpOptions
from voicepipe.config.convert import SECRET, SECRET_TABLE, between
from voicepipe.config.sources import Leaves
from voicepipe.config.tools import Read, filled_in
from voicepipe.errors import ConfigError
from voicepipe.protocol.prompt import listed
from voicepipe.values import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEntry:
    """A `[mcp.NAME]`: an MCP server."""

    url: Annotated[str, SECRET] = field(default="", repr=False)
    """The server's address (streamable HTTP), `http://` or `https://`. Never shown, since it may contain a key.
    Redirects are followed on the same host only."""

    headers: Annotated[tuple[tuple[str, str], ...], SECRET_TABLE] = field(default=(), repr=False)
    """Headers of each request. `${NAME}` in a value is replaced by that environment variable; the server does not start
    without it."""

    command: tuple[str, ...] = ()
    """Instead of an address: a program and its arguments, which is started and speaks MCP over its standard input and
    output. It gets no environment variables but `HOME`, `PATH` and the like, and those of `environment`."""

    environment: Annotated[tuple[tuple[str, str], ...], SECRET_TABLE] = field(default=(), repr=False)
    """Environment variables of the program; `${NAME}` as in `headers`."""

    allowed_tools: tuple[str, ...] = ()
    """The tools that agents may call, by name. Empty: all of the server's."""

    timeout_ms: Annotated[int, between(1, 600_000)] = 10_000
    """Time limit of a call. The LLM then reads that there is no result."""

    def options(self, name: str) -> McpOptions:
        """Return the server as its connection needs it."""
        return McpOptions(
            name=name,
            url=self.url,
            headers=self.headers,
            command=self.command,
            environment=self.environment,
            allowed_tools=self.allowed_tools,
            timeout_ms=self.timeout_ms,
        )


class _HasMcp(Protocol):
    @property
    def mcp(self) -> tuple[str, ...]: ...


def read_mcp(leaves: Leaves, read: Read, env: Mapping[str, str]) -> dict[str, McpEntry]:
    """Return the MCP servers of the settings.

    Raises:
        ConfigError: naming the key of a missing or wrong value.
    """
    names = sorted({path[1] for path in leaves if path[0] == "mcp" and len(path) > 1})
    return {name: _checked(read(McpEntry(), ("mcp", name), leaves), name, env) for name in names}


def _checked(entry: McpEntry, name: str, env: Mapping[str, str]) -> McpEntry:
    at = f"mcp.{name}"
    if bool(entry.url) == bool(entry.command):
        raise ConfigError(f"{at}: expected either a url or a command")
    if entry.url and not entry.url.startswith(("http://", "https://")):
        raise ConfigError(f"{at}.url: expected an address that begins with http(s)://, got another one")
    return replace(
        entry,
        headers=tuple((head, filled_in(text, f"{at}.headers.{head}", env)) for head, text in entry.headers),
        environment=tuple((each, filled_in(text, f"{at}.environment.{each}", env)) for each, text in entry.environment),
    )


def check_mcp(agents: Mapping[str, _HasMcp], servers: Collection[str]) -> None:
    """Check that agents name only MCP servers that exist.

    Raises:
        ConfigError: one does not; the text lists those that exist.
    """
    for agent, options in agents.items():
        for name in options.mcp:
            if name not in servers:
                raise ConfigError(
                    f"agents.{agent}.mcp: expected names of MCP servers ({listed(servers)}), got {name!r}"
                )
