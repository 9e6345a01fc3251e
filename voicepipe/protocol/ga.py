"""The published dialect: shapes of `openai.types.realtime`, as clients of 2026 read them.

A null is sent only where strict readers allow one; elsewhere the key is left out.
"""

from __future__ import annotations

from typing import Final

from voicepipe.protocol.dialect import ResponseView, Usage
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_wire import format_object, max_tokens, modalities
from voicepipe.turn.conversation import (
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputImage,
    InputText,
    Item,
    Message,
    OutputAudio,
    OutputText,
    Part,
)

MAX_IMAGE_URL_CHARS: Final = 65_536
"""A longer image is acknowledged without its `image_url`: some clients close on a frame above 1 MiB."""


class Ga:
    """The published names and shapes."""

    announces_conversation = False

    def event(self, kind: str, fields: JsonObject) -> JsonObject | None:
        """Return the event: all published names exist here."""
        return {"type": kind, **fields}

    def session(self, config: SessionConfig) -> JsonObject:
        """Return the complete `session` object."""
        return config.to_wire()

    def item(self, item: Item) -> JsonObject:
        """Return an item of the conversation, without the bytes of its audio."""
        return item_object(item, {"output_text": "output_text", "output_audio": "output_audio"})

    def response(self, view: ResponseView) -> JsonObject:
        """Return the `response` object with all its keys."""
        return {
            "id": view.id,
            "object": "realtime.response",
            "status": view.status,
            "status_details": view.details,
            "output": [self.item(item) for item in view.output],
            "conversation_id": view.conversation_id,
            "output_modalities": modalities(view.reply.audible),
            "max_output_tokens": max_tokens(view.reply.max_output_tokens),
            "audio": {"output": {"format": format_object(view.output_format), "voice": view.reply.voice}},
            "usage": usage_object(view.usage),
            "metadata": view.metadata or None,
        }


GA: Final = Ga()


def item_object(item: Item, names: dict[str, str]) -> JsonObject:
    """Return an item, with the agent's parts named as in `names`."""
    head = {"id": item.id, "object": "realtime.item", "status": item.status}
    match item:
        case Message():
            content = [_part(part, item.role == "assistant", names) for part in item.parts]
            return {**head, "type": "message", "role": item.role, "content": content}
        case FunctionCall():
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {**head, "type": "function_call", **call}
        case FunctionOutput():
            return {**head, "type": "function_call_output", "call_id": item.call_id, "output": item.output}


def _part(part: Part, by_agent: bool, names: dict[str, str]) -> JsonObject:
    match part:
        case InputText(text) | OutputText(text):
            return {"type": names["output_text"] if by_agent else "input_text", "text": text}
        case InputAudio(transcript) | OutputAudio(transcript):
            # The key must be there, null until it is known: a client fails without it.
            return {"type": names["output_audio"] if by_agent else "input_audio", "transcript": transcript}
        case InputImage(url, detail):
            rendered = {"image_url": url} if len(url) <= MAX_IMAGE_URL_CHARS else {}
            return {"type": "input_image", **rendered, "detail": detail}


def usage_object(usage: Usage | None) -> JsonObject | None:
    """Return the tokens by kind; all of ours are text."""
    if usage is None:
        return None
    cached = {"text_tokens": usage.cached_tokens, "audio_tokens": 0, "image_tokens": 0}
    return {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": cached,
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }
