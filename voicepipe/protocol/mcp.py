"""MCP servers that a session requests: tools of `type: "mcp"`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import JsonObject, listing, missing, record, required, text, wrong_value

MOST_SERVERS: Final = 8
"""How many servers a session may request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRequest:
    """One server that a session requests."""

    label: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """With the authorization; never sent back to a client."""

    allowed_tools: tuple[str, ...] = ()
    """Names; empty: all."""


def read_mcp(given: JsonObject, path: str) -> McpRequest:
    """Read a tool of `type: "mcp"`.

    Raises:
        ProtocolError: a field is missing or wrong, or the client wants to approve calls, which is not supported.
    """
    label = text(required(given, "server_label", path, "a string"), f"{path}.server_label", max_chars=64)
    url = text(required(given, "server_url", path, "an address; connectors are not supported"), f"{path}.server_url")
    if not label:
        raise missing(f"{path}.server_label", "a label")
    if origin_of(url) is None:
        raise ProtocolError(f"{path}.server_url: expected http(s)://HOST...", field=f"{path}.server_url")
    if given.get("require_approval") != "never":
        raise wrong_value(
            f"{path}.require_approval", '"never"; other values are not supported', given.get("require_approval")
        )
    headers = given.get("headers")
    named = {} if headers is None else record(headers, f"{path}.headers")
    pairs = {name: text(value, f"{path}.headers.{name[:64]}") for name, value in named.items()}
    if given.get("authorization") is not None:
        pairs["Authorization"] = f"Bearer {text(given['authorization'], f'{path}.authorization')}"
    if any(not each.isprintable() or not each.isascii() for pair in pairs.items() for each in pair):
        raise ProtocolError(f"{path}.headers: expected printable ASCII", field=f"{path}.headers")
    allowed = given.get("allowed_tools")
    at = f"{path}.allowed_tools"
    if isinstance(allowed, dict):
        allowed, at = allowed.get("tool_names"), f"{at}.tool_names"
    names = () if allowed is None else tuple(text(each, f"{at}[{i}]") for i, each in enumerate(listing(allowed, at)))
    return McpRequest(label=label, url=url, headers=tuple(pairs.items()), allowed_tools=names)


def mcp_object(request: McpRequest) -> JsonObject:
    """Return the server as a session shows it, without its secrets."""
    allowed = list(request.allowed_tools) or None
    about = {"type": "mcp", "server_label": request.label, "server_url": request.url}
    return {**about, "allowed_tools": allowed, "require_approval": "never"}


def origin_of(url: str) -> str | None:
    """Return the origin of an address, `https://HOST:PORT` with every port written; None: it is no such address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not parts.hostname or parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        return None
    return f"{parts.scheme}://{parts.hostname.lower()}:{port}"
