"""Convert a question to a model to the body of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from voicepipe.errors import StageRefused
from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text
from voicepipe.providers.llm import call_ids as ids
from voicepipe.providers.llm import strict_roles
from voicepipe.providers.llm.extra_params import passed_on
from voicepipe.providers.llm.functions import parameters
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.options import OpenAiOptions, extra
from voicepipe.values import replace

_encode = msgspec.json.Encoder().encode


def request_body(address: ProviderAddress, request: ModelRequest, options: OpenAiOptions) -> bytes:
    """Return the request's body as JSON.

    Raises:
        StageRefused: a function's parameters are not JSON, or the server cannot take an image of the conversation, or a
            parameter that is passed on.
    """
    fields: dict[str, Any] = {"model": request.model, "messages": _messages(address, request, options), "stream": True}
    if options.stream_usage:
        fields["stream_options"] = {"include_usage": True}
    if request.functions:
        fields |= _tools(address, request, options)
    if request.max_output_tokens is not None:
        fields[options.max_tokens_field] = min(
            request.max_output_tokens, options.max_output_tokens or request.max_output_tokens
        )
    if request.temperature is not None:
        fields["temperature"] = min(max(request.temperature, options.min_temperature), options.max_temperature)
    if options.session_field and request.session:
        fields[options.session_field] = request.session
    refused = options.refuses | options.model_refuses
    fields |= extra(options.model_extra) | extra(options.llm_extra)
    fields |= passed_on(address, request, names=None, left_out=refused)
    return _encode({name: value for name, value in fields.items() if name not in refused})


def call_ids(conversation: Iterable[Message], options: OpenAiOptions) -> frozenset[str]:
    """The IDs of the conversation's calls, as the server gets them."""
    return frozenset(_id(m.call_id, options) for m in conversation if isinstance(m, Called))


def messages(conversation: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the conversation as chat messages.

    Servers refuse a whole conversation in which a call is not followed at once by its result. So consecutive calls
    become one assistant message, with the text right before them. Their results come next even if the user spoke in
    between. A call without a result, or a result without a call, is left out.
    """
    conversation = tuple(conversation)
    results = {m.call_id: m for m in conversation if isinstance(m, Returned)}
    written: list[dict[str, Any]] = []
    waiting: list[Returned] = []
    back: set[str] = set()
    for message in conversation:
        if isinstance(message, Returned):
            back.add(message.call_id)
            continue
        if isinstance(message, Called):
            if message.call_id in results:
                if all(each.call_id in back for each in waiting):  # made in reaction to the earlier results
                    written += map(_result, waiting)
                    waiting.clear()
                if not waiting and not (written and written[-1]["role"] == "assistant"):
                    written.append({"role": "assistant", "content": None})
                written[-1].setdefault("tool_calls", []).append(_call(message))
                waiting.append(results[message.call_id])
            continue
        written += map(_result, waiting)
        waiting.clear()
        written.append({"role": message.role, "content": _content(message)})
    return written + [_result(returned) for returned in waiting]


def _messages(address: ProviderAddress, request: ModelRequest, options: OpenAiOptions) -> list[dict[str, Any]]:
    contents = (m for m in request.messages if isinstance(m, Content))
    if options.text_only and any(isinstance(part, Image) for m in contents for part in m.parts):
        raise StageRefused(address.stage, provider=address.name, why="the API takes no images", retryable=False)
    named = tuple(
        replace(m, call_id=_id(m.call_id, options)) if isinstance(m, Called | Returned) else m for m in request.messages
    )
    written = messages(named)
    if options.strict_order:
        written = strict_roles.reordered(written)
    prefill_field = options.prefill or ("prefix" if options.strict_order else "")
    if prefill_field and written and written[-1]["role"] == "assistant" and "tool_calls" not in written[-1]:
        written[-1][prefill_field] = True
    return written


def _id(call_id: str, options: OpenAiOptions) -> str:
    return ids.nine(call_id) if options.call_ids == "nine" else call_id


def _content(message: Content) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        # A plain string: some servers (SambaNova) accept nothing else.
        return " ".join(part.text for part in message.parts if isinstance(part, Text) and part.text)
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image_url", "image_url": {"url": part.url, "detail": part.detail}}
        for part in message.parts
    ]


def _call(called: Called) -> dict[str, Any]:
    function = {"name": called.name, "arguments": called.arguments or "{}"}
    return {"id": called.call_id, "type": "function", "function": function}


def _result(returned: Returned) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": returned.call_id, "content": returned.output}


def _tools(address: ProviderAddress, request: ModelRequest, options: OpenAiOptions) -> dict[str, Any]:
    choice, callable_functions = request.tool_choice, request.functions
    if choice not in ("auto", "none") and options.forced_tools != "as_requested":
        # A server that cannot require one function by name gets only this function.
        callable_functions = tuple(each for each in callable_functions if choice in ("required", each.name))
        choice = options.forced_tools
    return {
        "tools": [_tool(address, function) for function in callable_functions],
        "tool_choice": _tool_choice(choice),
    }


def _tool(address: ProviderAddress, function: Function) -> dict[str, Any]:
    described: dict[str, Any] = {"name": function.name, "description": function.description}
    if function.parameters_json:
        described["parameters"] = parameters(address, function)
    if function.strict is not None:
        described["strict"] = function.strict
    return {"type": "function", "function": described}


def _tool_choice(choice: str) -> str | dict[str, Any]:
    plain = ("auto", "none", "required", "any")
    return choice if choice in plain else {"type": "function", "function": {"name": choice}}
