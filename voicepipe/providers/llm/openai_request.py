"""A question to a model, written as the body of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from voicepipe.errors import StageRefused
from voicepipe.providers.net.openai import OpenAiOptions, extra
from voicepipe.providers.net.peer import Peer
from voicepipe.stages.model import Called, Function, Message, ModelRequest, Returned, Said, Text

_encode = msgspec.json.Encoder().encode


def body(peer: Peer, request: ModelRequest, options: OpenAiOptions) -> bytes:
    """The request's body as JSON.

    Raises:
        StageRefused: a function's parameters are not JSON.
    """
    fields: dict[str, Any] = {"model": request.model, "messages": messages(request.messages), "stream": True}
    if options.stream_usage:
        fields["stream_options"] = {"include_usage": True}
    if request.functions:
        fields["tools"] = [_tool(peer, function) for function in request.functions]
        fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.max_output_tokens is not None:
        fields[options.max_tokens_field] = request.max_output_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if options.session_field and request.session:
        fields[options.session_field] = request.session
    return _encode(fields | extra(options.llm_extra))


def messages(conversation: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation as chat messages.

    Servers refuse a whole conversation in which a call is not followed at once by its result. So calls that
    stand together become one assistant message, with the text right before them, and their results come next
    even if the caller spoke in between; a call without a result, or a result without a call, is left out.
    """
    conversation = tuple(conversation)
    results = {m.call_id: m for m in conversation if isinstance(m, Returned)}
    written: list[dict[str, Any]] = []
    waiting: list[Returned] = []
    for message in conversation:
        if isinstance(message, Called):
            if message.call_id in results:
                if not waiting and not (written and written[-1]["role"] == "assistant"):
                    written.append({"role": "assistant", "content": None})
                written[-1].setdefault("tool_calls", []).append(_call(message))
                waiting.append(results[message.call_id])
            continue
        written += map(_result, waiting)
        waiting.clear()
        if isinstance(message, Said):
            written.append({"role": message.role, "content": _content(message)})
    return written + [_result(returned) for returned in waiting]


def _content(message: Said) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        # A plain string: some servers (SambaNova) take nothing else.
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


def _tool(peer: Peer, function: Function) -> dict[str, Any]:
    described: dict[str, Any] = {"name": function.name, "description": function.description}
    if function.parameters_json:
        try:
            described["parameters"] = msgspec.json.decode(function.parameters_json)
        except msgspec.DecodeError as error:
            why = f"the parameters of function {function.name!r} are not JSON: {error}"
            raise StageRefused(peer.stage, provider=peer.name, why=why, retryable=False) from None
    return {"type": "function", "function": described}


def _tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in ("auto", "none", "required") else {"type": "function", "function": {"name": choice}}
