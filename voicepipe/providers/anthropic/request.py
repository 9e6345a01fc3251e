"""Convert a question to a model to the body of Anthropic's Messages."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from voicepipe.ports.model import Called, Function, Image, ModelRequest, Text
from voicepipe.providers.anthropic.options import AnthropicOptions
from voicepipe.providers.llm import call_ids, response_format
from voicepipe.providers.llm.extra_params import passed_on, refused
from voicepipe.providers.llm.functions import arguments_of, parameters
from voicepipe.providers.llm.strict_roles import Piece, Speech, speeches, system
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.options import extra

_encode = msgspec.json.Encoder().encode

GO_ON: Final = "(Go on from where you stopped.)"
"""The user message after the agent's, for models that refuse to continue a message of their own."""

_CHOICES = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}


def request_body(address: ProviderAddress, request: ModelRequest, options: AnthropicOptions) -> bytes:
    """Return the request's body as JSON.

    Raises:
        StageRefused: a function's parameters are not JSON, or it does not have a parameter that is passed on.
    """
    fields: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or options.max_output_tokens,
        "messages": _messages(request, options),
        "stream": True,
    }
    if system_texts := system(request.messages):
        fields["system"] = _system(system_texts, options)
    if request.functions:
        fields["tools"] = [_tool(address, function, options) for function in request.functions]
        named = {"type": "tool", "name": request.tool_choice}
        fields["tool_choice"] = _CHOICES.get(request.tool_choice, named)
    if request.temperature is not None:
        fields["temperature"] = min(request.temperature, 1.0)  # their maximum is 1
    fields |= extra(options.model_extra) | extra(options.llm_extra)
    fields |= passed_on(
        address, request, names={"top_p": "top_p"}, left_out=options.left_out, seen=response_format.SEEN
    )
    if (form := response_format.response_format_of(address, request)).is_json:
        beside = msgspec.json.decode(fields.get("output_config", b"{}"), type=dict[str, Any])  # `effort`
        fields["output_config"] = beside | {"format": _format(address, form, options)}
    return _encode({name: value for name, value in fields.items() if name not in options.left_out})


def _system(system_texts: tuple[str, ...], options: AnthropicOptions) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in system_texts]
    # The first block is the agent's instructions, the same for the whole session, with the functions before it.
    return [_cached(blocks[0], options), *blocks[1:]]


def _format(
    address: ProviderAddress, form: response_format.ResponseFormat, options: AnthropicOptions
) -> dict[str, Any]:
    """Source: Claude API, "Structured outputs", `output_config.format`."""
    if form.schema is None or response_format.NAME in options.left_out:
        raise refused(address, f"the API has no {response_format.NAME} of type {form.type!r}")
    return {"type": "json_schema", "schema": form.schema}


def _messages(request: ModelRequest, options: AnthropicOptions) -> list[dict[str, Any]]:
    written = [_message(speech) for speech in speeches(request.messages)]
    if written[-1]["role"] == "assistant" and "prefill" in options.left_out:
        written.append({"role": "user", "content": [{"type": "text", "text": GO_ON}]})
    for message in reversed(written):
        if message["role"] == "user":  # the next turn's request begins with everything up to here
            message["content"][-1] = _cached(message["content"][-1], options)
            break
    last = written[-1]
    if last["role"] == "assistant" and last["content"][-1]["type"] == "text":  # refused with spaces at its end
        last["content"][-1]["text"] = last["content"][-1]["text"].rstrip()
    return written


def _cached(block: dict[str, Any], options: AnthropicOptions) -> dict[str, Any]:
    if not options.cache:
        return block
    ttl = {} if options.cache_ttl == "5m" else {"ttl": options.cache_ttl}
    return {**block, "cache_control": {"type": "ephemeral", **ttl}}


def _message(speech: Speech) -> dict[str, Any]:
    return {"role": speech.role, "content": [_block(piece) for piece in speech.pieces]}


def _block(piece: Piece) -> dict[str, Any]:
    match piece:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(url):
            return {"type": "image", "source": _source(url)}
        case Called(call_id, name, arguments):
            return {"type": "tool_use", "id": call_ids.plain(call_id), "name": name, "input": arguments_of(arguments)}
        case returned:
            return {"type": "tool_result", "tool_use_id": call_ids.plain(returned.call_id), "content": returned.output}


def _source(url: str) -> dict[str, str]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, _, data = url.removeprefix("data:").partition(",")
    return {"type": "base64", "media_type": kind.partition(";")[0], "data": data}


def _tool(address: ProviderAddress, function: Function, options: AnthropicOptions) -> dict[str, Any]:
    """Source: Claude API, "Structured outputs", strict tool use: of the models that have structured outputs."""
    schema = parameters(address, function) if function.parameters_json else {"type": "object", "properties": {}}
    described = {"name": function.name, "description": function.description, "input_schema": schema}
    is_strict = function.strict and response_format.NAME not in options.left_out
    return described | ({"strict": True} if is_strict else {})
