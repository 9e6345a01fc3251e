"""Render the parts of a `session` object for clients."""

from __future__ import annotations

import json

from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_types import (
    AudioFormat,
    NoiseReduction,
    SemanticVad,
    ServerVad,
    Transcription,
    TurnDetection,
)
from voicepipe.turn.settings import Tool


def modalities(audible: bool) -> list[str]:
    """Return the modalities of an answer."""
    return ["audio"] if audible else ["text"]


def max_tokens(limit: int | None) -> int | str:
    """Return a limit as clients read it: a number or `inf`."""
    return "inf" if limit is None else limit


def tool_choice_object(choice: str) -> JsonObject | str:
    """Return which function must be called: a mode, or an object that names one."""
    return choice if choice in ("auto", "none", "required") else {"type": "function", "name": choice}


def format_object(form: AudioFormat) -> JsonObject:
    """Return a format; only pcm names its rate."""
    return {"type": form.name, "rate": form.rate_hz} if form.name == "audio/pcm" else {"type": form.name}


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


def noise_reduction_object(kind: NoiseReduction | None) -> JsonObject | None:
    """Return the client's noise reduction; null when it is off."""
    return None if kind is None else {"type": kind}


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
