"""ElevenLabs' Scribe, `/v1/speech-to-text/realtime`, on a local socket.

async with FakeScribe() as vendor:
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(partial("book a"))

Messages are written from ElevenLabs' API reference, "Realtime", and "Realtime event reference". Public reports add
three facts: a wrong key is reported on an open socket; a commit of less than 0.3 s ends the session; each committed
text is repeated as a partial one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.audio.encoding import MULAW, AudioEncoding
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

KEY = "xi-test-0123456789"
"""The only valid key."""

FORMATS = {
    "pcm_8000": AudioEncoding(8_000),
    "pcm_16000": AudioEncoding(16_000),
    "ulaw_8000": MULAW,
}
"""Some values of `audio_format`."""

MIN_MS = 300
"""The shortest segment that may be committed."""


def partial(text: str) -> str:
    """Return a `partial_transcript`."""
    return json.dumps({"message_type": "partial_transcript", "text": text})


def committed(text: str, *, language: str | None = None) -> str:
    """Return a `committed_transcript`; with its language if given."""
    more = {} if language is None else {"language_code": language}
    return json.dumps({"message_type": "committed_transcript", "text": text, **more})


def failed(kind: str, words: str) -> str:
    """Return an error of that type."""
    return json.dumps({"message_type": kind, "error": words})


class FakeScribe(FakeWsTranscriber):
    """A vendor whose segments the client commits."""

    base_path = "/v1"
    finalize = "commit"
    bye = "there is no such message"
    error_close = (1000, "")

    def __init__(self) -> None:
        super().__init__()
        self._committed_bytes: dict[SttConnection, int] = {}

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if path != "/v1/speech-to-text/realtime" or not query.get("model_id"):
            return Status(400, "expected /v1/speech-to-text/realtime and a model_id")
        if self.encoding_of(query) is None or query.get("commit_strategy") != "manual":
            return Status(400, "expected an audio_format, committed by the user")
        return None

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        return FORMATS.get(query.get("audio_format", ""))

    def audio_of(self, message: str | bytes) -> bytes | None:
        chunk = self._chunk(message)
        return None if chunk["commit"] else base64.b64decode(chunk["audio_base_64"])

    def kind_of(self, text: str) -> str:
        assert self._chunk(text)["audio_base_64"] == ""
        return self.finalize

    def _chunk(self, message: str | bytes) -> dict[str, Any]:
        chunk: dict[str, Any] = json.loads(message)
        assert chunk.keys() == {"message_type", "audio_base_64", "commit", "sample_rate"}
        assert chunk["message_type"] == "input_audio_chunk"
        return chunk

    def complaint(self, call: SttConnection) -> str | None:
        if call.headers.get("xi-api-key") != KEY:
            return failed("auth_error", "You must be authenticated to use this endpoint.")
        if not call.controls:
            return None
        if self._chunk(call.texts[-1])["sample_rate"] != call.encoding.rate_hz:
            return failed("invalid_request", "The sample_rate is not that of the audio_format.")
        came_bytes = sum(call.message_bytes)
        new_ms = (came_bytes - self._committed_bytes.get(call, 0)) // call.encoding.bytes_per_ms
        self._committed_bytes[call] = came_bytes
        if new_ms >= MIN_MS:
            return None
        return failed("commit_throttled", f"Commit request ignored: only {new_ms / 1_000:.2f}s of uncommitted audio.")

    def greeting(self, call: SttConnection) -> Iterable[str]:
        return [json.dumps({"message_type": "session_started", "session_id": "fake", "config": {}})]

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        return [committed(cue.text, language=cue.language)]

    def error(self, words: str) -> str:
        return failed("transcriber_error", words)
