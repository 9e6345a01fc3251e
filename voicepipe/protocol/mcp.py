"""MCP servers that a session requests: tools of `type: "mcp"`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import JsonObject, flag, listing, missing, one_of, record, required, text
from voicepipe.protocol.published_fields import MCP, refuse_unknown

MAX_SERVERS: Final = 8
"""How many servers a session may request."""

_APPROVALS: Final = ("always", "never")


class ToolFilter(Struct, frozen=True):
    """Some tools of a server: those that fit each condition that is set."""

    names: tuple[str, ...] | None = None
    read_only: bool | None = None
    """What the server declares of the tool (`readOnlyHint`)."""

    def fits(self, name: str, *, read_only: bool) -> bool:
        """Return whether a tool is one of them. A filter without conditions has none."""
        if self.names is None and self.read_only is None:
            return False
        return (self.names is None or name in self.names) and self.read_only in (None, read_only)


class Approval(Struct, frozen=True, kw_only=True):
    """Which tools the client must approve before each call: all, but for those of `never` that are not of `always`."""

    never: ToolFilter | None = None
    always: ToolFilter | None = None
    is_always: bool = True
    """False: no tool, and there are no filters."""

    def needed(self, name: str, *, read_only: bool) -> bool:
        """Return whether a call of this tool needs approval. A tool that no filter has does."""
        if self.always is not None and self.always.fits(name, read_only=read_only):
            return True
        return self.is_always and not (self.never is not None and self.never.fits(name, read_only=read_only))


class ToolChoice(Struct, frozen=True):
    """Which function must be called."""

    choice: str
    """`auto`, `none`, `required`, or a function's name."""

    server: str = ""
    """The label of the MCP server whose tools it is about; empty: all functions."""


def with_choice(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a client sets, with its `tool_choice` as the two fields of sessions and replies."""
    choice = found.get("tool_choice")
    if not isinstance(choice, ToolChoice):
        return found
    return {**found, "tool_choice": choice.choice, "tool_server": choice.server}


def choice_object(choice: str, server: str) -> JsonObject:
    """Return the choice of a server's tools as a session shows it."""
    named = {} if choice == "required" else {"name": choice}
    return {"type": "mcp", "server_label": server, **named}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRequest:
    """One server that a session requests."""

    label: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """With the authorization; never sent back to a client."""

    allowed_tools: tuple[str, ...] = ()
    """Names; empty: all."""

    read_only: bool | None = None
    """Set: only the tools that the server declares to be read-only, or those it does not."""

    approval: Approval = field(default_factory=Approval)


class McpUse(Struct, frozen=True):
    """A server of the session that one response may use."""

    label: str
    allowed_tools: tuple[str, ...] | None = None
    """Names; None: all that the session has."""


def read_mcp_use(given: JsonObject, path: str, session: Collection[McpRequest]) -> McpUse:
    """Read a tool of `type: "mcp"` of a response: a server that the session has requested, by its label.

    Raises:
        ProtocolError: a field is wrong, or the session has no such server.
    """
    _check_fields(given, path)
    label, at = text(required(given, "server_label", path, "a string"), f"{path}.server_label"), f"{path}.server_label"
    known = next((each for each in session if each.label == label), None)
    if known is None:
        why = f"{at}: expected a server that the session has requested with session.update, got {label[:64]!r}"
        raise ProtocolError(why, field=at)
    if given.get("server_url") not in (None, known.url):
        why = f"{path}.server_url: expected the session's address of {label!r}, or none"
        raise ProtocolError(why, field=f"{path}.server_url")
    return McpUse(label, _read_names(given.get("allowed_tools"), f"{path}.allowed_tools"))


def read_mcp(given: JsonObject, path: str) -> McpRequest:
    """Read a tool of `type: "mcp"`.

    Raises:
        ProtocolError: a field is missing or wrong, or it is no server with an address.
    """
    _check_fields(given, path)
    for other in ("connector_id", "tunnel_id"):
        if given.get(other) is not None:
            why = f"{path}.{other}: expected the address of an MCP server in server_url; no others are supported"
            raise ProtocolError(why, field=f"{path}.{other}")
    label = text(required(given, "server_label", path, "a string"), f"{path}.server_label", max_chars=64)
    url = text(required(given, "server_url", path, "an address"), f"{path}.server_url")
    if not label:
        raise missing(f"{path}.server_label", "a label")
    if origin_of(url) is None:
        raise ProtocolError(f"{path}.server_url: expected http(s)://HOST...", field=f"{path}.server_url")
    headers = given.get("headers")
    named = {} if headers is None else record(headers, f"{path}.headers")
    pairs = {name: text(value, f"{path}.headers.{name[:64]}") for name, value in named.items()}
    if given.get("authorization") is not None:
        pairs["Authorization"] = f"Bearer {text(given['authorization'], f'{path}.authorization')}"
    if any(not each.isprintable() or not each.isascii() for pair in pairs.items() for each in pair):
        raise ProtocolError(f"{path}.headers: expected printable ASCII", field=f"{path}.headers")
    allowed, at = given.get("allowed_tools"), f"{path}.allowed_tools"
    only = _read_filter(allowed, at) if isinstance(allowed, dict) else ToolFilter(_read_names(allowed, at))
    return McpRequest(
        label=label,
        url=url,
        headers=tuple(pairs.items()),
        allowed_tools=only.names or (),
        read_only=only.read_only,
        approval=_read_approval(given.get("require_approval"), f"{path}.require_approval"),
    )


def _check_fields(given: JsonObject, path: str) -> None:
    """Check that all fields are published, and the values of those that are accepted without an effect."""
    refuse_unknown(given, MCP, path)
    if given.get("defer_loading") is not None:
        flag(given["defer_loading"], f"{path}.defer_loading")
    if given.get("server_description") is not None:
        text(given["server_description"], f"{path}.server_description")
    _read_names(given.get("allowed_callers"), f"{path}.allowed_callers")


def _read_approval(value: object, path: str) -> Approval:
    """Read `always`, `never`, or an object with a filter for either; a null means `always`, as published."""
    if value is None:
        return Approval()
    if not isinstance(value, dict):
        return Approval(is_always=one_of(value, path, _APPROVALS) == "always")
    always, never = (
        None if value.get(name) is None else _read_filter(value[name], f"{path}.{name}") for name in _APPROVALS
    )
    return Approval(always=always, never=never)


def _read_filter(value: object, path: str) -> ToolFilter:
    given = record(value, path)
    read_only = given.get("read_only")
    return ToolFilter(
        _read_names(given.get("tool_names"), f"{path}.tool_names"),
        None if read_only is None else flag(read_only, f"{path}.read_only"),
    )


def _read_names(value: object, path: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    return tuple(text(each, f"{path}[{i}]") for i, each in enumerate(listing(value, path)))


def mcp_object(request: McpRequest) -> JsonObject:
    """Return the server as a session shows it, without its secrets."""
    allowed: object = list(request.allowed_tools) or None
    if request.read_only is not None:
        allowed = _filter_object(ToolFilter(request.allowed_tools or None, request.read_only))
    about = {"type": "mcp", "server_label": request.label, "server_url": request.url}
    return {
        **about,
        "allowed_tools": allowed,
        "require_approval": _approval_object(request.approval),
        **dict.fromkeys(("allowed_callers", "defer_loading", "server_description")),
    }


def _approval_object(approval: Approval) -> JsonObject | str:
    filters = {"always": approval.always, "never": approval.never}
    given = {name: _filter_object(each) for name, each in filters.items() if each is not None}
    return given or ("always" if approval.is_always else "never")


def _filter_object(given: ToolFilter) -> JsonObject:
    names = {} if given.names is None else {"tool_names": list(given.names)}
    return names if given.read_only is None else {**names, "read_only": given.read_only}


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
