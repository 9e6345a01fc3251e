"""`POST /v1/chat/completions`: the request, read and checked. No I/O.

There are four kinds of parameter. Some are supported here. Some are passed to the provider, which supports or refuses
them (`PASSED`). Some may be ignored without harm (`IGNORED`, listed in the answer). Some would change the answer and
are not supported (`NEUTRAL`): they are refused unless they request the default behaviour. A name that is in none of the
lists is refused too: it is most likely misspelt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from voicepipe.errors import ProtocolError, validation_place
from voicepipe.protocol.chat_messages import (
    MAX_CALLS,
    MAX_MESSAGES,
    AssistantMessage,
    ChatMessage,
    NamedTool,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
)
from voicepipe.protocol.json_fields import one_of, refuse_depth

IGNORED: Final = ("seed", "service_tier", "store", "prompt_cache_retention")
"""These parameters promise a best effort, or concern storage; no answer is wrong without them."""

PASSED: Final[Mapping[str, Any]] = {
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "reasoning_effort": None,
    "verbosity": "medium",
}
"""Parameters that are passed to the provider unless they request the default behaviour, so that a provider that does
not have them gets none.
"""

NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "prediction": (),
    "audio": (),
    "web_search_options": (),
    "functions": (),
    "function_call": (),
}
"""Parameters that are not supported, with the values that request nothing."""

MAX_MODELS: Final = 16
Name = Annotated[str, Meta(min_length=1, max_length=256)]
MAX_STOPS: Final = 4
Stop = Annotated[str, Meta(min_length=1, max_length=256)]
Opaque = Annotated[str, Meta(max_length=256)]
Metadata = dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]]
"""The published maximum sizes."""


class StreamOptions(Struct, frozen=True):
    """The options of a streamed answer."""

    include_usage: bool = False


class VoicepipeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a request that are not published: those of `voicepipe`."""

    deadline_ms: Annotated[int, Meta(ge=1, le=600_000)] | None = None
    """How soon the first word is needed, in ms, for a route of several candidates."""


class ChatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request, its shape checked."""

    model: Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[ToolDefinition], Meta(max_length=MAX_CALLS)] | None = None
    tool_choice: ToolChoice | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    models: Annotated[list[Name], Meta(max_length=MAX_MODELS)] | None = None
    """The other LLMs that may answer, best first."""

    user: Opaque | None = None
    safety_identifier: Opaque | None = None
    prompt_cache_key: Opaque | None = None
    metadata: Annotated[Metadata, Meta(max_length=16)] | None = None
    voicepipe: VoicepipeFields | None = None

    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: Name | None = None
    verbosity: Name | None = None

    seed: Any = None
    service_tier: Any = None
    store: Any = None
    prompt_cache_retention: Any = None
    n: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    modalities: Any = None
    prediction: Any = None
    audio: Any = None
    web_search_options: Any = None
    functions: Any = None
    function_call: Any = None

    @property
    def output_limit(self) -> int | None:
        """Return the maximum length of the answer, in tokens, by either of its names."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop sequences before which the answer ends."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def passed(self) -> tuple[tuple[str, str], ...]:
        """Return what is passed to the provider, each value as JSON."""
        return passed_parameters({name: getattr(self, name) for name in PASSED})

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the parameters that were given and have no effect."""
        return tuple(name for name in IGNORED if getattr(self, name) is not None)

    @property
    def function_choice(self) -> str:
        """Return `auto`, `none`, `required`, or the name of the one function to call."""
        choice = self.tool_choice
        return choice.function.name if isinstance(choice, NamedTool) else choice or "auto"


def passed_parameters(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return those of PASSED that request something, each value as JSON."""
    return tuple(
        (name, msgspec.json.encode(value).decode())
        for name, value in given.items()
        if value is not None and value != PASSED[name]
    )


_decode: Final = msgspec.json.Decoder(ChatRequest).decode

_CODES: Final = (
    (re.compile(r"Object missing required field `(\w+)`"), "missing_required_parameter"),
    (re.compile(r"Object contains unknown field `([^`]{1,64})`"), "unknown_parameter"),
    (re.compile(r"Expected `[^`]+`, got `[^`]+`()"), "invalid_type"),
)


def read_chat_request(body: bytes) -> ChatRequest:
    """Read a request's body.

    Raises:
        ProtocolError: it is no such request, or requests what is not supported; `field` is the dotted path of it.
    """
    try:
        request = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise json_refusal(wrong) from None
    refuse_unsupported(request, NEUTRAL)
    _check_format(request.response_format)
    _check_tools(request)
    _check_calls(request.messages)
    return request


def json_refusal(wrong: Exception) -> ProtocolError:
    """Return the error for a body that msgspec could not decode."""
    if not isinstance(wrong, msgspec.ValidationError):
        return ProtocolError("Expected a JSON object as the body.", code="invalid_json")
    return validation_refusal(*validation_place(wrong))


def validation_refusal(why: str, path: str) -> ProtocolError:
    """Return the error for what msgspec reports of the field at `path`."""
    for pattern, code in _CODES:
        if found := pattern.match(why):
            return ProtocolError(f"{why}.", field=".".join(filter(None, (path, found[1]))) or None, code=code)
    return ProtocolError(f"{why}.", field=path or None)


def refuse_unsupported(request: Struct, neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """Check that fields which are not supported have values that request nothing.

    Raises:
        ProtocolError: one of them has another value.
    """
    for name, harmless in neutral.items():
        value = getattr(request, name)
        if value is not None and value not in harmless:
            why = f"This server can't honour {name!r}. Leave it out" + (
                f", or send {msgspec.json.encode(harmless[0]).decode()}." if harmless else "."
            )
            raise ProtocolError(why, field=name, code="unsupported_parameter")


def _check_format(response_format: Mapping[str, Any] | None) -> None:
    if response_format is not None:
        one_of(response_format.get("type"), "response_format.type", ("text", "json_object", "json_schema"))
        refuse_depth(response_format, "response_format")


def _check_tools(request: ChatRequest) -> None:
    names = set[str]()
    for position, tool in enumerate(request.tools or ()):
        at, function = f"tools[{position}].function", tool.function
        if function.name in names:
            raise ProtocolError(f"There are two functions {function.name!r}.", field=f"{at}.name")
        names.add(function.name)
        if schema := bytes(function.parameters):
            check_schema(schema, f"{at}.parameters")
    choice = request.tool_choice
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        why = f"There is no function {choice.function.name!r} among the tools."
        raise ProtocolError(why, field="tool_choice.function.name")
    if choice == "required" and not names:
        raise ProtocolError("There are no tools to be called.", field="tool_choice")


def check_schema(text: bytes, path: str) -> None:
    """Check the JSON Schema of a function's parameters.

    Raises:
        ProtocolError: it is no JSON object, or nests too deep.
    """
    try:
        schema = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise ProtocolError("Expected a JSON Schema object.", field=path, code="invalid_type") from None
    refuse_depth(schema, path)


def _check_calls(messages: list[ChatMessage]) -> None:
    """Check that every result belongs to a call before it, and that every call has its result before the next
    message.
    """
    waiting = dict[str, int]()
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if waiting.pop(message.tool_call_id, None) is None:
                why = "No message before it calls a function with this id, or the call has its result already."
                raise ProtocolError(why, field=f"messages[{position}].tool_call_id")
            continue
        _check_answered(waiting)
        if isinstance(message, AssistantMessage):
            waiting = {call.id: position for call in message.tool_calls or ()}
    _check_answered(waiting)


def _check_answered(waiting: Mapping[str, int]) -> None:
    for call_id, position in waiting.items():
        why = f"The call {call_id[:64]!r} has no result: a message of role 'tool' must follow for each call."
        raise ProtocolError(why, field=f"messages[{position}].tool_calls")
