"""The fields of a `session`, a `response` and an item that are published or that clients are known to send, and those
that are not served.

A misspelt field would be a setting that is silently not in force, so it is refused. A published field that this server
does not serve is accepted: the rest of the update takes effect, and an error names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import JsonObject

SERVED_TOOLS: Final = ("function", "mcp")

_TRANSCRIPTION: Final = frozenset({"model", "language", "prompt", "keywords", "languages", "delay"})
_DETECTION: Final = frozenset(
    {
        "type",
        "create_response",
        "interrupt_response",
        "threshold",
        "prefix_padding_ms",
        "silence_duration_ms",
        "idle_timeout_ms",
        "eagerness",
    }
)
_INNER: Final[dict[str, frozenset[str]]] = {
    "prompt": frozenset({"id", "variables", "version"}),
    "tracing": frozenset({"workflow_name", "group_id", "metadata"}),
    "reasoning": frozenset({"effort", "summary"}),
    "truncation": frozenset({"type", "retention_ratio", "token_limits"}),
    "audio.input.format": frozenset({"type", "rate"}),
    "audio.input.noise_reduction": frozenset({"type"}),
    "audio.input.transcription": _TRANSCRIPTION,
    "audio.input.turn_detection": _DETECTION,
    "audio.output.format": frozenset({"type", "rate"}),
    "input_audio_noise_reduction": frozenset({"type"}),
    "input_audio_transcription": _TRANSCRIPTION,
    "turn_detection": _DETECTION,
}
"""Object that one reader takes whole, by its dotted path -> its fields."""

_FREE: Final = "providerData"
"""The object of a client's own provider: its other fields are not ours to refuse."""


def by_object(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the fields of each object of a session, by the object's dotted path, from the paths that have a reader."""
    found: dict[str, set[str]] = {}
    for path in paths:
        if path in _INNER:
            found[path] = set(_INNER[path])
        steps = path.split(".")
        for depth, key in enumerate(steps):
            found.setdefault(".".join(steps[:depth]), set()).add(key)
    return {dotted: frozenset(fields) for dotted, fields in found.items() if dotted != _FREE}


RESPONSE: Final[dict[str, frozenset[str]]] = {
    "": frozenset(
        {
            *("audio", "conversation", "input", "instructions", "max_output_tokens", "metadata", "output_modalities"),
            *("parallel_tool_calls", "prompt", "reasoning", "tool_choice", "tools"),
            *("max_response_output_tokens", "modalities", "output_audio_format", "temperature", "voice"),
            *("id", "object", "prompt_cache_key", "providerData"),
        }
    ),
    "prompt": _INNER["prompt"],
    "reasoning": _INNER["reasoning"],
    "audio": frozenset({"input", "output"}),
    "audio.output": frozenset({"format", "voice", "speed", "model"}),
    "audio.output.format": _INNER["audio.output.format"],
}
"""The fields of the `response` of a `response.create`, in either shape."""

ITEM: Final[dict[str, frozenset[str]]] = {
    "": frozenset(
        {
            *("id", "object", "type", "status", "role", "content", "phase"),
            *("call_id", "name", "arguments", "output", "approval_request_id", "approve", "reason"),
            *("server_label", "error", "tools", "metadata", "providerData"),
        }
    )
}
"""The same for an item. Clients add items again as they got them from a server."""

MCP: Final[dict[str, frozenset[str]]] = {
    "": frozenset(
        {
            *("type", "server_label", "server_url", "authorization", "headers", "allowed_tools", "require_approval"),
            *("connector_id", "tunnel_id", "allowed_callers", "defer_loading", "server_description"),
        }
    ),
    "allowed_tools": frozenset({"tool_names", "read_only"}),
    "require_approval": frozenset({"always", "never"}),
    "require_approval.always": frozenset({"tool_names", "read_only"}),
    "require_approval.never": frozenset({"tool_names", "read_only"}),
}
"""The same for a tool of `type: "mcp"`."""


def refuse_unknown(owned: JsonObject, fields: dict[str, frozenset[str]], path: str = "session") -> None:
    """Check that the object at `path`, a session unless it is named, has no field beyond these.

    Raises:
        ProtocolError: `unknown_parameter`, with the dotted path of the first such field.
    """
    for dotted, known in fields.items():
        owner = at(owned, dotted)
        for key in owner if isinstance(owner, dict) else ():
            if key not in known:
                field = ".".join(filter(None, (path, dotted, key[:64])))
                raise ProtocolError(f"{field}: expected a published field", field=field, code="unknown_parameter")


def at(session: JsonObject, dotted: str) -> Any:
    """Return the value at a dotted path, or None where a step of it is missing."""
    value: Any = session
    for step in dotted.split(".") if dotted else ():
        value = value.get(step) if isinstance(value, dict) else None
    return value


def not_served(session: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the path of each field of an accepted update that does not take effect, and why.

    What clients send by default is not named: a null, `tracing: "auto"`, `parallel_tool_calls: true`.
    """
    for dotted, is_unserved, why in _NOT_SERVED:
        if is_unserved(at(session, dotted)):
            yield f"session.{dotted}", why
    yield from _unserved_tools(session.get("tools"), "session")


def not_served_of_response(response: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the same for the `response` of a `response.create`."""
    for dotted, is_unserved, why in (*_NOT_SERVED_OF_BOTH, *_NOT_SERVED_OF_RESPONSE):
        if is_unserved(at(response, dotted)):
            yield f"response.{dotted}", why
    yield from _unserved_tools(response.get("tools"), "response")


def _unserved_tools(tools: object, path: str) -> Iterator[tuple[str, str]]:
    kinds = [tool.get("type") if isinstance(tool, dict) else None for tool in tools] if isinstance(tools, list) else []
    unserved = [(place, kind) for place, kind in enumerate(kinds) if is_unserved_tool(kind)]
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "mcp":
            for name, is_unserved, why in _NOT_SERVED_OF_MCP[path]:
                if is_unserved(tool.get(name)):
                    yield f"{path}.tools[{place}].{name}", why
    if unserved:
        names = ", ".join(sorted({repr(kind[:64]) for _, kind in unserved if kind is not None}))
        yield f"{path}.tools[{unserved[0][0]}].type", f'only "function" and "mcp" are served, not {names}'


def is_unserved_tool(kind: object) -> bool:
    """Return whether this is the `type` of a tool that the server does not have."""
    return isinstance(kind, str) and bool(kind) and kind not in SERVED_TOOLS


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != [] and value != {}


def _is_own_prompt(prompt: object) -> bool:
    return isinstance(prompt, dict) and not prompt.get("variables")


_NOISE: Final = "noise is not reduced"
_KEYWORDS: Final = "the transcriber's settings have them"
_Unserved = tuple[tuple[str, Callable[[object], bool], str], ...]
"""(field, whether a value of it requests something, why it is not in force)."""

_OF_MCP: Final[_Unserved] = (
    ("allowed_callers", lambda value: _is_given(value) and value != ["direct"], "the LLM calls the tools directly"),
    ("defer_loading", _is_given, "the LLM gets the tools of a server at once"),
    ("server_description", lambda value: _is_given(value) and value != "", "the LLM gets the tools' own descriptions"),
)
_OF_SESSION: Final = "what the session has requested of this server is in force"
_NOT_SERVED_OF_MCP: Final[dict[str, _Unserved]] = {
    "session": _OF_MCP,
    "response": (
        *_OF_MCP,
        *((name, _is_given, _OF_SESSION) for name in ("authorization", "headers", "require_approval")),
    ),
}
_NOT_SERVED_OF_BOTH: Final[_Unserved] = (
    ("reasoning", _is_given, "the agent's settings decide it"),
    ("parallel_tool_calls", lambda value: value is False, "calls may come in parallel"),
)
_NOT_SERVED_OF_RESPONSE: Final[_Unserved] = (
    ("prompt", _is_given, "stored prompts are not served; write instructions"),
)
_NOT_SERVED: Final[_Unserved] = (
    ("include", _is_given, "log probabilities of a transcript are not served"),
    *_NOT_SERVED_OF_BOTH,
    ("tracing", lambda value: isinstance(value, dict) and bool(value), "the operator's traces take none of it"),
    ("prompt", _is_own_prompt, "stored prompts are not served; write instructions, or variables of this agent's"),
    ("prompt.version", _is_given, "stored prompts are not served"),
    ("audio.input.noise_reduction", _is_given, _NOISE),
    ("input_audio_noise_reduction", _is_given, _NOISE),
    ("audio.input.transcription.keywords", _is_given, _KEYWORDS),
    ("audio.input.transcription.delay", _is_given, _KEYWORDS),
    (
        "audio.input.transcription.languages",
        lambda value: isinstance(value, list) and len(value) > 1,
        "one language is served; the agent's own is in force",
    ),
)
