"""`POST /v1/responses`: the request, read and checked. No I/O.

The parameters are of the four kinds of [chat completions](chat_request.py): supported, passed to the provider, without
effect (`IGNORED`), and refused unless they request nothing (`NEUTRAL`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from voicepipe.errors import ProtocolError
from voicepipe.protocol.chat_messages import MAX_CALLS, MAX_MESSAGES, FunctionName
from voicepipe.protocol.chat_request import (
    MAX_MODELS,
    Metadata,
    Name,
    Opaque,
    VoicepipeFields,
    check_schema,
    json_refusal,
    passed_parameters,
    refuse_unsupported,
)
from voicepipe.protocol.json_fields import JsonObject, one_of, refuse_depth

IGNORED: Final = (
    "include",
    "max_tool_calls",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "stream_options",
    "truncation",
)
"""These parameters concern storage, speed or tools that only one vendor runs; no answer is wrong without them."""

NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "context_management": (),
    "moderation": (),
    "access_programs": (),
    "image": (),
    "top_logprobs": (0,),
}
"""Parameters that are not supported, with the values that request nothing."""

ResponseId = Annotated[str, Meta(min_length=1, max_length=256)]


class FunctionTool(Struct, frozen=True, tag_field="type", tag="function"):
    """A function that the LLM may call; other tools are run by one vendor alone."""

    name: FunctionName
    description: str | None = None
    parameters: Raw = Raw(b"")
    """The JSON Schema of its parameters, as it came."""

    strict: bool | None = None

    @property
    def schema(self) -> bytes:
        """Return the schema; empty: there is none."""
        written = bytes(self.parameters)
        return b"" if written == b"null" else written

    def to_wire(self) -> JsonObject:
        """Return the tool as a response repeats it."""
        schema = msgspec.json.decode(self.schema) if self.schema else None
        named: JsonObject = {"type": "function", "name": self.name, "description": self.description}
        return named | {"parameters": schema, "strict": self.strict}


class NamedFunction(Struct, frozen=True, tag_field="type", tag="function"):
    """The one function to call."""

    name: FunctionName


class AllowedTools(Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """The tools of the request that the LLM may call now."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunction], Meta(max_length=MAX_CALLS)]


class Reasoning(Struct, frozen=True):
    """Options of models that reason."""

    effort: Name | None = None
    summary: Any = None
    generate_summary: Any = None


class TextOptions(Struct, frozen=True):
    """Options of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Name | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request, its shape checked."""

    model: Name
    input: str | Annotated[list[dict[str, Any]], Meta(max_length=MAX_MESSAGES)] = ""
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_CALLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedFunction | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    models: Annotated[list[Name], Meta(max_length=MAX_MODELS)] | None = None
    """The other LLMs that may answer, best first."""

    user: Opaque | None = None
    safety_identifier: Opaque | None = None
    prompt_cache_key: Opaque | None = None
    metadata: Annotated[Metadata, Meta(max_length=16)] | None = None
    voicepipe: VoicepipeFields | None = None

    include: Any = None
    max_tool_calls: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    service_tier: Any = None
    stream_options: Any = None
    truncation: Any = None
    background: Any = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None
    access_programs: Any = None
    image: Any = None
    top_logprobs: Any = None

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the parameters that were given and have no effect."""
        given = [name for name in IGNORED if getattr(self, name) not in (None, "disabled", [])]
        reasoning = self.reasoning or Reasoning()
        return tuple(given) + ("reasoning.summary",) * bool(reasoning.summary or reasoning.generate_summary)

    @property
    def passed(self) -> tuple[tuple[str, str], ...]:
        """Return what is passed to the provider, by the names of chat completions, each value as JSON."""
        text, reasoning = self.text or TextOptions(), self.reasoning or Reasoning()
        return passed_parameters(
            {
                "top_p": self.top_p,
                "parallel_tool_calls": self.parallel_tool_calls,
                "response_format": chat_format(text.format),
                "reasoning_effort": reasoning.effort,
                "verbosity": text.verbosity,
            }
        )

    @property
    def callable_tools(self) -> list[FunctionTool]:
        """Return the functions that the model may call now."""
        choice = self.tool_choice
        allowed = {each.name for each in choice.tools} if isinstance(choice, AllowedTools) else None
        return [tool for tool in self.tools or () if allowed is None or tool.name in allowed]

    @property
    def function_choice(self) -> str | None:
        """Return `auto`, `none`, `required`, or the name of the one function to call; None: there is no choice."""
        match self.tool_choice:
            case NamedFunction(name):
                return name
            case AllowedTools(mode):
                return mode
            case choice:
                return choice

    def echo(self) -> JsonObject:
        """Return the request's own fields as a response repeats them."""
        text, reasoning = self.text or TextOptions(), self.reasoning or Reasoning()
        return {
            "background": False,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": reasoning.effort, "summary": None},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "temperature": self.temperature,
            "text": {"format": text.format or {"type": "text"}, "verbosity": text.verbosity},
            "tool_choice": msgspec.to_builtins(self.tool_choice or "auto"),
            "tools": [tool.to_wire() for tool in self.tools or ()],
            "top_logprobs": 0,
            "top_p": self.top_p,
            "truncation": "disabled",
            "user": self.user,
        }


def chat_format(written: Mapping[str, Any] | None) -> JsonObject | None:
    """Return a `text.format` as the `response_format` of chat completions, which has the schema one level deeper."""
    if written is None or written.get("type") != "json_schema":
        return None if written is None else dict(written)
    return {"type": "json_schema", "json_schema": {name: value for name, value in written.items() if name != "type"}}


_decode: Final = msgspec.json.Decoder(ResponseRequest).decode


def read_response_request(body: bytes) -> ResponseRequest:
    """Read a request's body. Its items are read by `response_rest_items.read_items`.

    Raises:
        ProtocolError: it is no such request, or requests what is not supported; `field` is the dotted path of it.
    """
    try:
        request = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise _in_a_sentence(json_refusal(wrong)) from None
    refuse_unsupported(request, NEUTRAL)
    if request.text is not None and request.text.format is not None:
        one_of(request.text.format.get("type"), "text.format.type", ("text", "json_object", "json_schema"))
        refuse_depth(request.text.format, "text.format")
    _check_tools(request)
    return request


def _in_a_sentence(refusal: ProtocolError) -> ProtocolError:
    """Return the refusal of a tool that only one vendor runs in words; any other one unchanged."""
    field = refusal.field or ""
    if field.startswith("tools[") and field.endswith("].type"):
        why = f"{refusal.why} This server serves tools of the type 'function' alone."
        return ProtocolError(why, field=field, code="unsupported_parameter")
    return refusal


def _check_tools(request: ResponseRequest) -> None:
    names = set[str]()
    for position, tool in enumerate(request.tools or ()):
        if tool.name in names:
            raise ProtocolError(f"There are two functions {tool.name!r}.", field=f"tools[{position}].name")
        names.add(tool.name)
        if tool.schema:
            check_schema(tool.schema, f"tools[{position}].parameters")
    _check_choice(request, names)


def _check_choice(request: ResponseRequest, names: set[str]) -> None:
    chosen: Sequence[tuple[str, str]] = ()
    match request.tool_choice:
        case NamedFunction(name):
            chosen = [("tool_choice.name", name)]
        case AllowedTools(tools=tools):
            chosen = [(f"tool_choice.tools[{position}].name", tool.name) for position, tool in enumerate(tools)]
    for field, name in chosen:
        if name not in names:
            raise ProtocolError(f"There is no function {name!r} among the tools.", field=field)
    if request.function_choice == "required" and not request.callable_tools:
        raise ProtocolError("There are no tools to be called.", field="tool_choice")
