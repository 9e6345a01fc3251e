"""The published dialect: shapes of `openai.types.realtime`, as clients of 2026 read them.

A null is sent only where strict readers allow one; elsewhere the key is left out.
"""

from __future__ import annotations

import json
from typing import Final

from voicepipe.protocol.dialect import ResponseUsage, ResponseView
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.mcp import choice_object, mcp_object
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import (
    PCM_HZ,
    AudioFormat,
    SemanticVad,
    ServerVad,
    Transcription,
    TurnDetection,
)
from voicepipe.turn.conversation import (
    ApprovalAnswer,
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
    ToolList,
)
from voicepipe.turn.settings import Tool

MAX_IMAGE_URL_CHARS: Final = 65_536
"""A longer image is acknowledged without its `image_url`: some clients close on a frame above 1 MiB."""


class Ga:
    """The published names and shapes."""

    announces_conversation = False
    has_server_calls = True

    def event(self, kind: str, fields: JsonObject) -> JsonObject | None:
        """Return the event: all published names exist here."""
        return {"type": kind, **fields}

    def session(self, config: SessionConfig) -> JsonObject:
        """Return the complete `session` object."""
        return session_object(config)

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


# --- the session ------------------------------------------------------------------------------


def session_object(config: SessionConfig) -> JsonObject:
    """Return the complete `session` object.

    Every key is there, null where nothing is set: clients compute from this echo.
    """
    audio_input = {
        "format": format_object(config.input_format),
        "transcription": transcription_object(config.transcription),
        "noise_reduction": None,
        "turn_detection": turn_detection_object(config.turn_detection),
    }
    if config.kind == "transcription":
        return _named(config, "realtime.transcription_session", {"audio": {"input": audio_input}})
    audio_output = {"format": format_object(config.output_format), "voice": config.voice, "speed": config.speed}
    rendered = {
        "model": config.model,
        "output_modalities": modalities(config.audible),
        "instructions": config.instructions,
        "audio": {"input": audio_input, "output": audio_output},
        "tools": [*map(tool_object, config.tools), *map(mcp_object, config.mcp)],
        "tool_choice": tool_choice_object(config.tool_choice, config.tool_server),
        "max_output_tokens": max_tokens(config.max_output_tokens),
        "tracing": None,
        "truncation": truncation_object(config),
        "prompt": prompt_object(config),
    }
    return _named(config, "realtime.session", rendered)


def _named(config: SessionConfig, kind: str, rendered: JsonObject) -> JsonObject:
    head = {"type": config.kind, "object": kind, "id": config.session_id}
    return {**head, **rendered, "include": None, "expires_at": config.expires_at}


def prompt_object(config: SessionConfig) -> JsonObject | None:
    """Return the client's prompt with all variables that the client has set; null when it has set none."""
    prompt = config.prompt
    if prompt is None or not prompt.variables:
        return None
    now = dict(config.variables)
    return {"id": prompt.id, "variables": {name: now[name] for name, _ in prompt.variables}}


def modalities(audible: bool) -> list[str]:
    """Return the modalities of an answer."""
    return ["audio"] if audible else ["text"]


def truncation_object(config: SessionConfig) -> JsonObject | str:
    """Return how a long conversation is cut, as it is in force: no more tokens than the agent's window has."""
    truncation = config.truncation
    if truncation.kind != "retention_ratio":
        return truncation.kind
    rendered: JsonObject = {"type": "retention_ratio", "retention_ratio": truncation.retention_ratio}
    if (limit := truncation.post_instructions) is not None:
        rendered["token_limits"] = {"post_instructions": min(limit, config.context_tokens or limit)}
    return rendered


def max_tokens(limit: int | None) -> int | str:
    """Return a limit as clients read it: a number or `inf`."""
    return "inf" if limit is None else limit


def tool_choice_object(choice: str, server: str = "") -> JsonObject | str:
    """Return which function must be called: a mode, or an object that names one, or tools of an MCP server."""
    if server:
        return choice_object(choice, server)
    return choice if choice in ("auto", "none", "required") else {"type": "function", "name": choice}


def format_object(form: AudioFormat) -> JsonObject:
    """Return a format; only pcm names its rate."""
    return {"type": form.name, "rate": PCM_HZ} if form.name == "audio/pcm" else {"type": form.name}


def tool_object(tool: Tool) -> JsonObject:
    """Return a function that the agent may call, without any other fields that the client wrote."""
    parameters = json.loads(tool.parameters_json)
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": parameters}


def transcription_object(transcription: Transcription | None) -> JsonObject | None:
    """Return the client's transcription settings; null when it is off."""
    if transcription is None:
        return None
    given = {"model": transcription.model, "language": transcription.language, "prompt": transcription.prompt}
    return {key: value for key, value in given.items() if value is not None}


def turn_detection_object(detection: TurnDetection | None) -> JsonObject | None:
    """Return how turns are detected, always with both flags: whether a client cancels by itself depends on an explicit
    true.
    """
    match detection:
        case None:
            return None
        case ServerVad():
            kind: JsonObject = {
                "type": "server_vad",
                "threshold": detection.threshold,
                "prefix_padding_ms": detection.prefix_padding_ms,
                "silence_duration_ms": detection.silence_duration_ms,
                "idle_timeout_ms": detection.idle_timeout_ms,
            }
        case SemanticVad():
            kind = {"type": "semantic_vad", "eagerness": detection.eagerness}
    return {
        **kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }


# --- items and usage --------------------------------------------------------------------------


def item_object(item: Item, names: dict[str, str]) -> JsonObject:
    """Return an item, with the agent's parts named as in `names`."""
    head = {"id": item.id, "object": "realtime.item", "status": item.status}
    match item:
        case Message():
            content = [_part(part, item.role == "assistant", names) for part in item.parts]
            return {**head, "type": "message", "role": item.role, "content": content}
        case FunctionCall(server_label=label, approval=approval) if label and approval:
            call = {"name": item.name, "arguments": item.arguments}
            return {"id": item.id, "type": "mcp_approval_request", "server_label": label, **call}
        case FunctionCall(server_label=label) if label:
            return server_call_object(item)
        case FunctionCall():
            call = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            return {**head, "type": "function_call", **call}
        case ToolList():
            about = {"id": item.id, "type": "mcp_list_tools", "server_label": item.server_label}
            return {**about, "tools": json.loads(item.output)}
        case ApprovalAnswer():
            answer = {"approval_request_id": item.request_id, "approve": item.approve, "reason": item.reason or None}
            return {"id": item.id, "type": "mcp_approval_response", **answer}
        case FunctionOutput():
            return {**head, "type": "function_call_output", "call_id": item.call_id, "output": item.output}


def server_call_object(call: FunctionCall) -> JsonObject:
    """Return a call that the server runs: published for calls that need no answer of the client."""
    head = {"id": call.id, "type": "mcp_call", "server_label": call.server_label}
    found: JsonObject = {
        **head,
        "name": call.name,
        "arguments": call.arguments,
        "approval_request_id": call.approval_request_id or None,
    }
    failed = {"type": "tool_execution_error", "message": call.output} if call.failed else None
    return {**found, "output": None if call.failed else call.output, "error": failed}


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


def usage_object(usage: ResponseUsage | None) -> JsonObject | None:
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
