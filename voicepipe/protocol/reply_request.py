"""The overrides of `response.create`: the session's reply settings, with the client's values for this reply."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from voicepipe.audio.formats import FormatName
from voicepipe.protocol.items import Find, read_context
from voicepipe.protocol.json_fields import (
    MAX_ECHOED_CHARS,
    Reader,
    changes,
    listing,
    number,
    record,
    refuse_depth,
    text,
)
from voicepipe.protocol.mcp import McpRequest, McpUse, read_mcp_use, with_choice
from voicepipe.protocol.metadata import read_metadata
from voicepipe.protocol.published_fields import (
    RESPONSE,
    at,
    is_unserved_tool,
    not_served_of_response,
    refuse_unknown,
)
from voicepipe.protocol.session_types import (
    FLAT_FORMATS,
    read_audible,
    read_max_tokens,
    read_tool_choice,
    read_tools,
    read_voice,
)
from voicepipe.protocol.session_update import MAX_SPEED, MIN_SPEED
from voicepipe.turn.settings import ReplySettings, ServerTool, Tool
from voicepipe.values import replace


def read_reply(
    value: object, session: ReplySettings, find: Find, servers: Collection[McpRequest] = ()
) -> ReplySettings:
    """Return the session's own settings with the `response` object of a `response.create` merged in. Nulls change
    nothing.

    `tools` are the client's functions, and servers of the session (`servers`). If it names any, the response has the
    tools of no others of these.

    Raises:
        ProtocolError: a value has the wrong type or is out of range; `field` is its dotted path.
    """
    if value is None:
        return session
    response = record(value, "response")
    refuse_depth(response, "response")
    refuse_unknown(response, RESPONSE, "response")
    functions, uses = _split_tools(response.get("tools"), servers)
    if uses:
        response = {**response, "tools": functions}
    found = changes(response, _OVERRIDES, "response")
    if response.get("input") is not None:
        found["context"] = read_context(response["input"], "response.input", find)
    given: dict[str, Any] = {name: override for name, override in found.items() if override is not None}
    if response.get("max_output_tokens", response.get("max_response_output_tokens")) == "inf":
        given["max_output_tokens"] = None
    if uses:
        labels = {each.label for each in servers}
        given["server_tools"] = tuple(
            each for each in session.server_tools if each.label not in labels or _is_used(each, uses)
        )
    return replace(session, **with_choice(given))


def unserved_of_reply(value: object, output_format: FormatName) -> tuple[tuple[str, str], ...]:
    """Return the path of each field of an accepted `response` that does not take effect, and why.

    Args:
        output_format: the session's own. A response that names the same is served.
    """
    if not isinstance(value, dict):
        return ()
    fields = dict(not_served_of_response(value))
    flat = value.get("output_audio_format")
    named = {
        "response.audio.output.format": at(value, "audio.output.format.type"),
        "response.output_audio_format": FLAT_FORMATS.get(flat, flat) if isinstance(flat, str) else None,
    }
    other = "the format of the session is in force"
    return tuple(
        (fields | {field: other for field, name in named.items() if name not in (None, output_format)}).items()
    )


def _split_tools(tools: object, servers: Collection[McpRequest]) -> tuple[list[object], list[McpUse]]:
    """Return the tools of a response that are no MCP servers, and the servers."""
    functions, uses = list[object](), list[McpUse]()
    for position, each in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(each, dict) and each.get("type") == "mcp":
            uses.append(read_mcp_use(each, f"response.tools[{position}]", servers))
        else:
            functions.append(each)
    return functions, uses


def _is_used(tool: ServerTool, uses: Iterable[McpUse]) -> bool:
    names = (each.allowed_tools for each in uses if each.label == tool.label)
    return any(allowed is None or tool.tool.name in allowed for allowed in names)


def _or_null(reader: Reader) -> Reader:
    return lambda value, path: None if value is None else reader(value, path)


def _read_temperature(value: object, path: str) -> float:
    return number(value, path, low=0.0, high=2.0)


def _read_speed(value: object, path: str) -> float:
    return number(value, path, low=MIN_SPEED, high=MAX_SPEED)


def _read_instructions(value: object, path: str) -> str:
    return text(value, path, max_chars=MAX_ECHOED_CHARS)


def _read_served_tools(value: object, path: str) -> tuple[Tool, ...]:
    """Read the functions; tools of other types are left out, and named in an error."""
    return read_tools([tool for tool in listing(value, path) if not _is_unserved(tool)], path)


def _is_unserved(tool: object) -> bool:
    return isinstance(tool, dict) and is_unserved_tool(tool.get("type"))


def _read_joined(value: object, path: str) -> bool:
    """Return whether the reply joins the conversation: any string but `none` means the session's conversation."""
    return text(value, path) != "none"


_OVERRIDES: Final[dict[str, tuple[str, Reader]]] = {
    "modalities": ("audible", _or_null(read_audible)),
    "output_modalities": ("audible", _or_null(read_audible)),
    "instructions": ("instructions", _or_null(_read_instructions)),
    "voice": ("voice", _or_null(read_voice)),
    "audio.output.voice": ("voice", _or_null(read_voice)),
    "audio.output.speed": ("speed", _or_null(_read_speed)),
    "tools": ("tools", _or_null(_read_served_tools)),
    "tool_choice": ("tool_choice", _or_null(read_tool_choice)),
    "max_response_output_tokens": ("max_output_tokens", read_max_tokens),
    "max_output_tokens": ("max_output_tokens", read_max_tokens),
    "temperature": ("temperature", _or_null(_read_temperature)),
    "metadata": ("metadata", _or_null(read_metadata)),
    "conversation": ("in_conversation", _or_null(_read_joined)),
}
"""The published keys come after the older ones, so that they take precedence."""
