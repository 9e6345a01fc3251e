"""ElevenLabs' multi-context text to speech on a local socket.

Messages and limits are written from ElevenLabs' API reference, "Multi-Context WebSocket", and its docs, "Multi-Context
Websocket" (five contexts a socket). The errors' names and texts are from issues of LiveKit and pipecat:
`max_active_conversations`, `input_timeout_exceeded`, with the close code 1008. The handshake's refusals are unverified.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "el_test_0123456789"
"""The only valid key."""

MAX_CONTEXTS = 5
BYTES_PER_MS = 48


class FakeElevenLabs(FakeWsSynthesizer):
    """A vendor that speaks each flushed text as one clause, with character times."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}
        self._closing: set[str] = set()

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("xi-api-key") != KEY:
            return Status(401, "Invalid API key")
        parts = path.strip("/").split("/")
        if len(parts) != 4 or parts[:2] != ["v1", "text-to-speech"] or parts[3] != "multi-stream-input":
            return Status(404, "Not found")
        if query.get("output_format") != "pcm_24000" or not query.get("model_id"):
            return Status(400, "expected a model and pcm_24000")
        return None

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        if message.get("close_socket"):
            await call.hang_up()
            return
        if "context_id" not in message and message.get("text") == "":
            return  # a keep-alive
        context = message["context_id"]
        is_new = context not in call.tts_contexts
        if is_new and (message.get("close_context") or not await self._begin_context(call, message)):
            return
        if context not in self._closing:
            self._texts[context] = self._texts.get(context, "") + message.get("text", "")
        if message.get("flush") and (text := self._texts.pop(context, "")).strip():
            self.speak(call, context, text)
        if message.get("close_context"):
            self._close(call, call.tts_contexts[context])

    async def _begin_context(self, call: TtsConnection, message: dict[str, Any]) -> bool:
        if message.get("text") != " " or "voice_settings" not in message:
            await self._end(call, "invalid_request", "The first message of a context must be its settings.")
            return False
        if len(call.tts_contexts) == MAX_CONTEXTS:
            words = f"Maximum simultaneous contexts per WebSocket connection exceeded ({MAX_CONTEXTS})."
            await self._end(call, "max_active_conversations", words)
            return False
        call.begin(message["context_id"])
        return True

    def _close(self, call: TtsConnection, tts_context: TtsContext) -> None:
        """Speak all flushed text to its end, on an end as on a cancel, and then send the final message."""
        if tts_context.context in self._closing:
            return
        self._closing.add(tts_context.context)
        if tts_context.received is not None and not tts_context.received.ended.is_set():
            tts_context.received.gone.set()
        self.finish(call, tts_context.context)

    async def _end(self, call: TtsConnection, error: str, words: str) -> None:
        await call.send(json.dumps({"message": words, "error": error, "code": 1008}))
        await call.hang_up(1008, words[:100])

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str]:
        yield json.dumps(
            {
                "audio": base64.b64encode(piece.pcm).decode(),
                "isFinal": None,
                "contextId": piece.context,
                "alignment": _alignment(piece),
                "normalizedAlignment": None,
            }
        )

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return ()

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (json.dumps({"isFinal": True, "contextId": tts_context.context}),)

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        names = {429: "max_active_conversations", 402: "quota_exceeded"}
        await self._end(call, names.get(fault.code or 0, "fake_error"), fault.message)


def _alignment(piece: Piece) -> dict[str, Any]:
    """Return the characters that begin in a piece, all of equal length, with times from the piece's start."""
    step_ms = piece.of_bytes / BYTES_PER_MS / len(piece.text)
    from_ms, to_ms = piece.from_bytes / BYTES_PER_MS, (piece.from_bytes + len(piece.pcm)) / BYTES_PER_MS
    places = [(char, i * step_ms - from_ms) for i, char in enumerate(piece.text) if from_ms <= i * step_ms < to_ms]
    return {
        "chars": [char for char, _ in places],
        "charStartTimesMs": [round(at) for _, at in places],
        "charDurationsMs": [round(step_ms) for _ in places],
    }
