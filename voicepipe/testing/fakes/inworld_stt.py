"""Inworld's `/stt/v1/transcribe:streamBidirectional` on a local socket.

async with FakeInworldStt() as vendor:
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(transcription("book a"))

Messages are written from Inworld's API reference, "Transcribe audio (WebSocket)"; the shape of an error from its own
examples.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping

from websockets.datastructures import Headers

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

KEY = "aW53b3JsZDp0ZXN0"
"""The only valid key."""


def transcription(text: str, *, final: bool = False) -> str:
    """Return a transcription of the turn: so far, or `final`."""
    result = {"transcription": {"transcript": text, "isFinal": final, "wordTimestamps": []}}
    return json.dumps({"result": result})


def usage() -> str:
    """Return the billing message."""
    return json.dumps({"result": {"usage": {"transcribedAudioMs": 100, "modelId": "inworld/inworld-stt-1"}}})


def error(words: str, code: int) -> str:
    """Return an error with its gRPC code."""
    return json.dumps({"error": {"code": code, "message": words, "details": []}})


class FakeInworldStt(FakeWsTranscriber):
    """A vendor whose turns the client ends."""

    finalize = "endTurn"
    bye = "closeStream"
    error_close = (1000, "")

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Basic {KEY}":
            return Status(401, "unauthorized")
        return None if path == "/stt/v1/transcribe:streamBidirectional" else Status(404, "not found")

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        return AudioEncoding(16_000)

    def audio_of(self, message: str | bytes) -> bytes | None:
        chunk = json.loads(message).get("audioChunk")
        return None if chunk is None else base64.b64decode(chunk["content"])

    def kind_of(self, text: str) -> str:
        (kind,) = json.loads(text)
        return str(kind)

    def complaint(self, call: SttConnection) -> str | None:
        if not call.controls:
            return None
        assert call.controls[0] == "transcribeConfig", "how to listen is said first"
        config = json.loads(call.texts[0])["transcribeConfig"]
        sound = (config["audioEncoding"], config["sampleRateHertz"], config["numberOfChannels"])
        if sound == ("LINEAR16", 16_000, 1) and config["inworldSttV1Config"] == {"vadThreshold": 0}:
            return None
        return error("invalid config", 3)

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        return [transcription(cue.text, final=True)]

    def farewell(self, call: SttConnection) -> Iterable[str]:
        return [usage()]

    def error(self, words: str) -> str:
        return error(words, 13)
