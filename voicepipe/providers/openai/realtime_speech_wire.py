"""The events of OpenAI's Realtime API for speech to speech, both ways.

Sources: OpenAI API reference, "Realtime", client and server events, and its own Python package for their fields. Older
names of the events with audio (`response.audio.delta`) are read too. Unverified: which codes an `error` event has.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from voicepipe.errors import StageError
from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.realtime_stt_wire import failure
from voicepipe.providers.speech_model.vendor_history import instructions_of

AUDIO: Final = ("response.output_audio.delta", "response.audio.delta")
WORDS: Final = ("response.output_audio_transcript.delta", "response.audio_transcript.delta")
WORDS_COMPLETE: Final = ("response.output_audio_transcript.done", "response.audio_transcript.done")
CANCEL: Final = '{"type":"response.cancel"}'

HARMLESS: Final = frozenset(
    {
        "response_cancel_not_active",
        "item_truncate_invalid_item_id",
        "item_delete_invalid_item_id",
    }
)
"""Codes of errors after which the conversation goes on: what was to be stopped, cut or deleted is over already."""


class Item(msgspec.Struct):
    """A message or a function call."""

    id: str = ""
    type: str = ""
    name: str = ""
    call_id: str = ""
    arguments: str = ""


class _Cached(msgspec.Struct):
    text_tokens: int = 0
    audio_tokens: int = 0


class _InputTokens(msgspec.Struct):
    text_tokens: int = 0
    audio_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_details: _Cached | None = None


class _OutputTokens(msgspec.Struct):
    text_tokens: int = 0
    audio_tokens: int = 0


class _Usage(msgspec.Struct):
    input_token_details: _InputTokens | None = None
    output_token_details: _OutputTokens | None = None


class _Details(msgspec.Struct):
    reason: str | None = None
    error: dict[str, Any] | None = None


class Response(msgspec.Struct):
    """An answer, and how it ended."""

    id: str = ""
    status: str = ""
    status_details: _Details | None = None
    usage: _Usage | None = None


class _ErrorCode(msgspec.Struct):
    code: str | None = None


class VendorEvent(msgspec.Struct):
    """Any event of the server, as far as it is read."""

    type: str
    response_id: str = ""
    item_id: str = ""
    delta: str = ""
    item: Item | None = None
    response: Response | None = None
    error: _ErrorCode | None = None

    @property
    def answer(self) -> str:
        """Return the id of the response that it belongs to; empty: none."""
        return self.response_id or (self.response.id if self.response is not None else "")


_decoder = msgspec.json.Decoder(VendorEvent)


def event_of(address: ProviderAddress, message: str | bytes) -> VendorEvent:
    """Return the event of a message.

    Raises:
        StageError: it is no event, or an error after which the conversation is of no use.
    """
    try:
        event = _decoder.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise failures.broken(address, "the vendor sent a malformed message") from None
    if event.type == "error" and (event.error is None or event.error.code not in HARMLESS):
        raise failure(address, message.encode() if isinstance(message, str) else message)
    return event


def failed(address: ProviderAddress, response: Response) -> StageError:
    """Return the error of a response that has failed, or that the vendor has cancelled."""
    details = response.status_details
    if details is not None and details.error is not None:
        return failure(address, msgspec.json.encode({"error": details.error}))
    why = (details.reason if details is not None else None) or "no reason"
    return failures.broken(address, f"the vendor ended its answer: {response.status} ({failures.quote(address, why)})")


def usage_of(response: Response) -> SpeechUsage | None:
    """Return the tokens of a response; None: they were not counted."""
    usage = response.usage
    if usage is None or usage.input_token_details is None or usage.output_token_details is None:
        return None
    got, made = usage.input_token_details, usage.output_token_details
    cached = got.cached_tokens_details or _Cached(text_tokens=min(got.cached_tokens, got.text_tokens))
    return SpeechUsage(
        text_input=got.text_tokens,
        audio_input=got.audio_tokens,
        cached_text=min(cached.text_tokens, got.text_tokens),
        cached_audio=min(cached.audio_tokens, got.audio_tokens),
        text_output=made.text_tokens,
        audio_output=made.audio_tokens,
    )


# --- what is sent -----------------------------------------------------------------------------


def item_of(item_id: str, message: Message) -> dict[str, Any]:
    """Return a message as an item of the conversation."""
    match message:
        case Called(call_id, name, arguments):
            return {
                "id": item_id,
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": arguments or "{}",
            }
        case Returned(call_id, output):
            return {"id": item_id, "type": "function_call_output", "call_id": call_id, "output": output}
        case Content(role, parts):
            kind = "output_text" if role == "assistant" else "input_text"
            content = [_part(kind, part) for part in parts]
            return {"id": item_id, "type": "message", "role": role, "content": content}


def _part(kind: str, part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": part.url, "detail": part.detail}
    return {"type": kind, "text": part.text}


def encoded(kind: str, **fields: Any) -> str:
    """Return a client's event."""
    return msgspec.json.encode({"type": kind, **fields}).decode()


def answer_request(request: ModelRequest) -> str:
    """Return the event that requests an answer to what the vendor has."""
    response: dict[str, Any] = {"instructions": instructions_of(request), "output_modalities": ["audio"]}
    if request.max_output_tokens is not None:
        response["max_output_tokens"] = request.max_output_tokens
    response["tools"] = [_tool(each) for each in request.functions]
    named = request.tool_choice not in ("auto", "none", "required")
    choice = {"type": "function", "name": request.tool_choice} if named else request.tool_choice
    response["tool_choice"] = choice if request.functions else "none"
    return encoded("response.create", response=response)


def _tool(function: Function) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function.name,
        "description": function.description,
        "parameters": msgspec.Raw(function.parameters_json.encode()),
    }
