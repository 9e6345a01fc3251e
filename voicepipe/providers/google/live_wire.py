"""The messages of Gemini's Live API, both ways.

Source: ai.google.dev, "Live API - WebSockets API reference". Names are in camel case, as there.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pybase64

from voicepipe.ports.model import ModelRequest, Returned
from voicepipe.ports.speech_model import SpeechOptions
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.providers.google.request import contents, declared, result_of
from voicepipe.providers.google.thought_signatures import ThoughtSignatures
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.speech_model.vendor_history import HistoryEntry, instructions_of

RATE_HZ: Final = 16_000
"""The sample rate of the user's audio; the model's has 24 kHz."""

PIECE_BYTES: Final = RATE_HZ * 2
"""The user's audio is sent in pieces of a second."""

BEGINS: Final = '{"realtimeInput":{"activityStart":{}}}'
ENDS: Final = '{"realtimeInput":{"activityEnd":{}}}'


class _Blob(msgspec.Struct, rename="camel"):
    data: str = ""


class _Part(msgspec.Struct, rename="camel"):
    inline_data: _Blob | None = None


class _Turn(msgspec.Struct, rename="camel"):
    parts: list[_Part] = []


class _Words(msgspec.Struct):
    text: str = ""


class Content(msgspec.Struct, rename="camel"):
    """A part of an answer."""

    model_turn: _Turn | None = None
    output_transcription: _Words | None = None
    generation_complete: bool = False
    turn_complete: bool = False
    interrupted: bool = False


class _Call(msgspec.Struct):
    name: str
    id: str = ""
    args: dict[str, Any] | None = None


class _Calls(msgspec.Struct, rename="camel"):
    function_calls: list[_Call] = []


class _Count(msgspec.Struct, rename="camel"):
    modality: str = ""
    token_count: int = 0


class _Usage(msgspec.Struct, rename="camel"):
    prompt_tokens_details: list[_Count] = []
    response_tokens_details: list[_Count] = []
    thoughts_token_count: int = 0


class Message(msgspec.Struct, rename="camel"):
    """Any message of the server, as far as it is read."""

    setup_complete: dict[str, Any] | None = None
    server_content: Content | None = None
    tool_call: _Calls | None = None
    usage_metadata: _Usage | None = None
    go_away: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(Message)


def message_of(address: ProviderAddress, data: str | bytes) -> Message:
    """Return a message; the server sends JSON in text or in binary frames.

    Raises:
        StageError: it is an error, or no message.
    """
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise failures.broken(address, "the vendor sent a malformed message") from None
    if message.error is not None:
        raise failures.in_band(address, data.encode() if isinstance(data, str) else data)
    return message


def usage_of(message: Message) -> SpeechUsage | None:
    """Return the tokens that a message reports; None: it reports none."""
    usage = message.usage_metadata
    if usage is None:
        return None
    spoken, output = _of(usage.prompt_tokens_details, "AUDIO"), _of(usage.response_tokens_details, "AUDIO")
    read = sum(each.token_count for each in usage.prompt_tokens_details) - spoken
    written = sum(each.token_count for each in usage.response_tokens_details) - output
    return SpeechUsage(
        text_input=read, audio_input=spoken, text_output=written + usage.thoughts_token_count, audio_output=output
    )


def _of(counts: list[_Count], modality: str) -> int:
    return sum(each.token_count for each in counts if each.modality == modality)


# --- what is sent -----------------------------------------------------------------------------


def setup(address: ProviderAddress, options: SpeechOptions, request: ModelRequest) -> str:
    """Return the first message: model, voice, instructions and functions, with the vendor's turn detection off.

    Raises:
        StageRefused: a function's parameters are not JSON.
    """
    generation: dict[str, Any] = {"responseModalities": ["AUDIO"]}
    if options.voice is not None:
        generation["speechConfig"] = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": options.voice}}}
    if request.max_output_tokens is not None:
        generation["maxOutputTokens"] = request.max_output_tokens
    fields: dict[str, Any] = {
        "model": f"models/{options.model}",
        "generationConfig": generation,
        "realtimeInputConfig": {"automaticActivityDetection": {"disabled": True}},
        "outputAudioTranscription": {},
    }
    if instructions := instructions_of(request):
        fields["systemInstruction"] = {"parts": [{"text": instructions}]}
    if request.functions and request.tool_choice != "none":
        fields["tools"] = [{"functionDeclarations": [declared(address, each) for each in request.functions]}]
    return _encoded("setup", fields)


def content_of(request: ModelRequest, entries: tuple[HistoryEntry, ...], *, complete: bool) -> str:
    """Return the message that adds to the conversation; with `complete` the model answers it."""
    added = ModelRequest(model=request.model, messages=tuple(each.message for each in entries))
    turns = contents(added, ThoughtSignatures())
    return _encoded("clientContent", {"turns": turns, "turnComplete": complete})


def audio_of(pcm: bytes) -> str:
    """Return the message that carries more of the user's audio."""
    audio = {"mimeType": f"audio/pcm;rate={RATE_HZ}", "data": pybase64.b64encode_as_string(pcm)}
    return _encoded("realtimeInput", {"audio": audio})


def results(returned: list[Returned], names: dict[str, str]) -> str:
    """Return the message with the results of functions, which the model answers; `names` are those of their calls."""
    answers = [{"id": each.call_id, "name": names[each.call_id], "response": result_of(each)} for each in returned]
    return _encoded("toolResponse", {"functionResponses": answers})


def _encoded(kind: str, body: dict[str, Any]) -> str:
    return msgspec.json.encode({kind: body}).decode()
