"""Together's realtime transcription on a local socket.

    async with FakeTogetherStt() as vendor:
        ...                                       # open the STT at vendor.base_url
        call = await vendor.nth(0)
        await call.send(delta("book a"))

Events are written from Together's docs, "Streaming transcription" and "Voice activity detection". They name no item,
and a delta replaces the one before it. That an error outside a transcription has OpenAI's shape is pipecat's reading.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

KEY = "tgp-test-0123456789"
"""The only valid key."""

TRANSCRIPTION = "conversation.item.input_audio_transcription"


def delta(text: str) -> str:
    """Return the whole text so far; it replaces the last one."""
    return _event(f"{TRANSCRIPTION}.delta", delta=text)


def completed(text: str) -> str:
    """Return the final text of a segment."""
    return _event(f"{TRANSCRIPTION}.completed", transcript=text)


def failed(words: str, *, code: str | None = None) -> str:
    """Report that a segment has no text, and why."""
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": code}
    return _event(f"{TRANSCRIPTION}.failed", error=error)


class FakeTogetherStt(FakeWsTranscriber):
    """A vendor that transcribes the audio before each commit."""

    base_path = "/v1"
    finalize = "input_audio_buffer.commit"
    bye = "there is no such event"

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Status(401, "Invalid API key provided")
        if path != "/v1/realtime":
            return Status(404, "expected another address")
        if query.get("input_audio_format") != "pcm_s16le_16000" or not query.get("model"):
            return Status(400, "expected pcm_s16le_16000 and a model")
        return None

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        return AudioEncoding(16_000)

    def greeting(self, call: SttConnection) -> Iterable[str]:
        session = {"id": "fake", "object": "realtime.session", "modalities": ["audio"]}
        return [_event("session.created", session=session)]

    def audio_of(self, message: str | bytes) -> bytes | None:
        assert isinstance(message, str)
        event = json.loads(message)
        return base64.b64decode(event["audio"]) if event["type"] == "input_audio_buffer.append" else None

    def complaint(self, call: SttConnection) -> str | None:
        if call.controls and call.controls[-1] != self.finalize:
            return failed(f"unknown event {call.controls[-1]}")
        return None

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        return [completed(cue.text)]

    def error(self, words: str) -> str:
        return failed(words)


def _event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})
