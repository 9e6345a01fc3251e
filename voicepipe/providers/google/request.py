"""Convert a question to a model to the body of Gemini's `generateContent`."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from voicepipe.ports.model import Called, Function, Image, ModelRequest, Returned, Text
from voicepipe.providers.google.options import GeminiOptions
from voicepipe.providers.google.thought_signatures import UNKNOWN_SIGNATURE, ThoughtSignatures
from voicepipe.providers.llm import response_format
from voicepipe.providers.llm.extra_params import passed_on, refused
from voicepipe.providers.llm.functions import arguments_of, parameters
from voicepipe.providers.llm.strict_roles import Piece, Speech, speeches, system
from voicepipe.providers.net import options as texts
from voicepipe.providers.net.address import ProviderAddress

_encode = msgspec.json.Encoder().encode

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

_PASSED: Final = {
    "top_p": "topP",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}
"""Source: Gemini API reference, `GenerationConfig`."""

_OLDER: Final = re.compile(r"gemini-(1|2)[.-]|gemma")
"""Models without signatures; later ones refuse a step whose first call has none. They also refuse functions together
with an answer in JSON, as many public issues report."""

_UNVALIDATED: Final = re.compile(r"gemini-(1\.|2\.0)|gemma")
"""Models without the mode `VALIDATED` of function calls."""


def request_body(
    address: ProviderAddress, request: ModelRequest, options: GeminiOptions, signatures: ThoughtSignatures
) -> bytes:
    """Return the request's body as JSON.

    Raises:
        StageRefused: a function's parameters are not JSON, or the API has no such extra parameter.
    """
    fields: dict[str, Any] = {"contents": contents(request, signatures)}
    if system_texts := system(request.messages):
        fields["systemInstruction"] = {"parts": [{"text": text} for text in system_texts]}
    if request.functions:
        fields["tools"] = [{"functionDeclarations": [declared(address, function) for function in request.functions]}]
        fields["toolConfig"] = {"functionCallingConfig": _calling(request)}
    left_out = options.refuses | options.model_refuses
    generation: dict[str, Any] = {"maxOutputTokens": request.max_output_tokens, "temperature": request.temperature}
    generation |= passed_on(address, request, names=_PASSED, left_out=left_out, seen=response_format.SEEN)
    generation |= _format(address, request, left_out)
    fields["generationConfig"] = {name: value for name, value in generation.items() if value is not None}
    for more in (options.model_extra, options.llm_extra):
        fields = _merged(fields, texts.members(more, Any))
    config = fields["generationConfig"]
    fields["generationConfig"] = {name: value for name, value in config.items() if name not in left_out}
    return _encode(fields)


def _format(address: ProviderAddress, request: ModelRequest, left_out: frozenset[str]) -> dict[str, Any]:
    """Source: Gemini API reference, `GenerationConfig`."""
    form = response_format.response_format_of(address, request)
    if not form.is_json:
        return {}
    if "responseMimeType" in left_out or (form.schema is not None and "responseJsonSchema" in left_out):
        raise refused(address, f"the API has no {response_format.NAME} of type {form.type!r}")
    if request.functions and _OLDER.match(request.model):
        raise refused(address, f"the API has no {response_format.NAME} beside functions")
    required = {"responseMimeType": "application/json", "responseJsonSchema": form.schema}
    return {name: value for name, value in required.items() if value is not None}


def contents(request: ModelRequest, signatures: ThoughtSignatures) -> list[dict[str, Any]]:
    """Return the conversation of a request, without the system's messages."""
    names = {m.call_id: m.name for m in request.messages if isinstance(m, Called)}
    signed = not _OLDER.match(request.model)
    return [_content(speech, names, signatures, signed) for speech in speeches(request.messages)]


def _content(speech: Speech, names: dict[str, str], signatures: ThoughtSignatures, signed: bool) -> dict[str, Any]:
    parts = [_part(piece, names) for piece in speech.pieces]
    calls = [(part, piece) for part, piece in zip(parts, speech.pieces, strict=True) if isinstance(piece, Called)]
    if signed:
        for place, (part, call) in enumerate(calls):
            # Of parallel calls only the first has a signature.
            signature = signatures.of(call.call_id) or (UNKNOWN_SIGNATURE if place == 0 else None)
            if signature is not None:
                part["thoughtSignature"] = signature
    return {"role": "user" if speech.role == "user" else "model", "parts": parts}


def _part(piece: Piece, names: dict[str, str]) -> dict[str, Any]:
    match piece:
        case Text(text):
            return {"text": text}
        case Image(url):
            return _image(url)
        case Called(_, name, arguments):
            return {"functionCall": {"name": name, "args": arguments_of(arguments)}}
        case returned:
            return {"functionResponse": {"name": names[returned.call_id], "response": result_of(returned)}}


def result_of(returned: Returned) -> dict[str, Any]:
    """Return a result as an object, which Gemini requires; a result that is not an object is put into one."""
    try:
        return msgspec.json.decode(returned.output, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"result": returned.output}


def _image(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"fileData": {"fileUri": url}}
    kind, _, data = url.removeprefix("data:").partition(",")
    return {"inlineData": {"mimeType": kind.partition(";")[0], "data": data}}


def declared(address: ProviderAddress, function: Function) -> dict[str, Any]:
    """Return a function as the API declares it; raises as `request_body`."""
    described: dict[str, Any] = {"name": function.name, "description": function.description}
    if function.parameters_json:  # the field `parameters` takes only a part of JSON Schema, and refuses the rest
        described["parametersJsonSchema"] = parameters(address, function)
    return described


def _calling(request: ModelRequest) -> dict[str, Any]:
    """Source: Gemini API, "Function calling modes". Of all modes that call functions, only with `AUTO` may the
    arguments differ from the schema.
    """
    choice = request.tool_choice
    is_strict = any(function.strict for function in request.functions)
    if choice == "auto" and is_strict and not _UNVALIDATED.match(request.model):
        return {"mode": "VALIDATED"}
    if choice in _MODES:
        return {"mode": _MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return `one` merged with the members of `other`, recursively inside objects that both have."""
    made = dict(one)
    for name, value in other.items():
        both = isinstance(made.get(name), dict) and isinstance(value, dict)
        made[name] = _merged(made[name], value) if both else value
    return made
