"""The older dialect: shapes of `openai.types.beta.realtime`, for clients that were not updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from voicepipe.audio.formats import FormatName
from voicepipe.protocol.dialect import ResponseView
from voicepipe.protocol.ga import (
    item_object,
    max_tokens,
    tool_object,
    transcription_object,
    turn_detection_object,
    usage_object,
)
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.conversation import UNREAD, FunctionCall, InputImage, Item, Message
from voicepipe.values import replace

_NAMES: Final[Mapping[str, str | None]] = {
    "conversation.item.added": "conversation.item.created",
    "conversation.item.done": None,
    "input_audio_buffer.timeout_triggered": None,
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
}
"""The published name -> the older name; None where the older dialect has no such event. All other names are the
same.
"""

_FORMATS: Final[dict[FormatName, str]] = {
    "audio/pcm": "pcm16",
    "audio/pcmu": "g711_ulaw",
    "audio/pcma": "g711_alaw",
}
_LISTENING: Final = "realtime.transcription_session"
_DEFAULT_TEMPERATURE: Final = 0.8
"""The default of the hosted service of that time."""


class Beta:
    """The older names and shapes."""

    announces_conversation = True
    has_server_calls = False

    def event(self, kind: str, fields: JsonObject) -> JsonObject | None:
        """Return the event by its older name, without the `name` that the older arguments.done lacks."""
        name = _NAMES.get(kind, kind)
        if name is None:
            return None
        if kind == "response.function_call_arguments.done":
            fields = {key: value for key, value in fields.items() if key != "name"}
        if kind == "session.updated" and fields["session"]["object"] == _LISTENING:
            name = "transcription_session.updated"
        return {"type": name, **fields}

    def session(self, config: SessionConfig) -> JsonObject:
        """Return the complete, flat `session` object."""
        if config.kind == "transcription":
            return _listening_session(config)
        return {
            "id": config.session_id,
            "object": "realtime.session",
            "model": config.model,
            "modalities": _modalities(config.audible),
            "instructions": config.instructions,
            "voice": config.voice,
            "speed": config.speed,
            "input_audio_format": _FORMATS[config.input_format.name],
            "output_audio_format": _FORMATS[config.output_format.name],
            "input_audio_transcription": transcription_object(config.transcription),
            "input_audio_noise_reduction": None,
            "turn_detection": _turn_detection(config),
            "tools": [tool_object(tool) for tool in config.tools],
            "tool_choice": config.tool_choice,
            "temperature": _DEFAULT_TEMPERATURE if config.temperature is None else config.temperature,
            "max_response_output_tokens": max_tokens(config.max_output_tokens),
            "expires_at": config.expires_at,
        }

    def item(self, item: Item) -> JsonObject:
        """Return an item of the conversation. Images are left out: the older content has no such type."""
        if isinstance(item, Message):
            item = replace(item, parts=tuple(part for part in item.parts if not isinstance(part, InputImage)))
        if isinstance(item, UNREAD) or (isinstance(item, FunctionCall) and item.approval):
            item = Message(item.id, "system", ())
        if isinstance(item, FunctionCall) and item.server_label:
            item = replace(item, server_label="", status="completed")
        return item_object(item, {"output_text": "text", "output_audio": "audio"})

    def response(self, view: ResponseView) -> JsonObject:
        """Return the `response` object with all its keys."""
        temperature = view.reply.temperature
        return {
            "id": view.id,
            "object": "realtime.response",
            "status": view.status,
            "status_details": view.details,
            "output": [self.item(item) for item in view.output],
            "conversation_id": view.conversation_id,
            "modalities": _modalities(view.reply.audible),
            "voice": view.reply.voice,
            "output_audio_format": _FORMATS[view.output_format.name],
            "temperature": _DEFAULT_TEMPERATURE if temperature is None else temperature,
            "max_output_tokens": max_tokens(view.reply.max_output_tokens),
            "usage": _usage(view),
            "metadata": view.metadata or None,
        }


BETA: Final = Beta()


def _listening_session(config: SessionConfig) -> JsonObject:
    """Return a session that only transcribes the user's speech; the older type has few fields."""
    detection = _turn_detection(config)
    known = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")
    return {
        "id": config.session_id,
        "object": _LISTENING,
        "modalities": ["text"],
        "input_audio_format": _FORMATS[config.input_format.name],
        "input_audio_transcription": transcription_object(config.transcription),
        "turn_detection": detection and {key: detection[key] for key in known if key in detection},
        "expires_at": config.expires_at,
    }


def _modalities(audible: bool) -> list[str]:
    """Return the modalities: an audio answer also has its text here."""
    return ["text", "audio"] if audible else ["text"]


def _turn_detection(config: SessionConfig) -> JsonObject | None:
    rendered = turn_detection_object(config.turn_detection)
    return rendered and {key: value for key, value in rendered.items() if key != "idle_timeout_ms"}


def _usage(view: ResponseView) -> JsonObject | None:
    """Return the usage without images, and without the cached tokens by kind."""
    rendered = usage_object(view.usage)
    if rendered is None:
        return None
    known = ("cached_tokens", "text_tokens", "audio_tokens")
    return {**rendered, "input_token_details": {key: rendered["input_token_details"][key] for key in known}}
