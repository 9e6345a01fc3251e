"""Together's `/v1/audio/speech/websocket` on a local socket.

Messages are written from Together's docs, "WebSocket API" of text to speech; word times from "Streaming", which has
them for HTTP, and from its guide for coding agents, which has them for this WebSocket. That one `done` answers each
commit is unverified.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "tgp-test-0123456789"
"""The only valid key."""

BYTES_PER_S = 48_000
PREFIX = "conversation.item."


class FakeTogetherTts(FakeWsSynthesizer):
    """A vendor that speaks the text before each commit as one item."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[TtsConnection, str] = {}
        self._n_items: dict[TtsConnection, int] = {}

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Status(401, "Invalid API key provided")
        if path != "/v1/audio/speech/websocket" or not query.get("model") or not query.get("voice"):
            return Status(400, "expected /v1/audio/speech/websocket, a model and a voice")
        if (query.get("response_format"), query.get("sample_rate"), query.get("segment")) != ("pcm", "24000", "never"):
            return Status(400, "expected pcm at 24000 Hz, and segment=never")
        return None

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        match message["type"]:
            case "input_text_buffer.append":
                self._texts[call] = self._texts.get(call, "") + message["text"]
                await call.send(_event("input_text.received", text=message["text"]))
            case "input_text_buffer.commit":
                self._commit(call, self._texts.pop(call, ""))
            case "input_text_buffer.clear":
                self._texts.pop(call, None)
            case unknown:
                await call.send(json.dumps({"type": "error", "error": {"message": f"unknown event {unknown}"}}))

    def _commit(self, call: TtsConnection, text: str) -> None:
        """Speak a committed text after the earlier ones."""
        number = self._n_items[call] = self._n_items.get(call, 0) + 1
        before = [
            tts_context.speaking for tts_context in call.tts_contexts.values() if tts_context.speaking is not None
        ]
        self.speak(call, f"tts_{number}", text, after=before)
        self.finish(call, f"tts_{number}")

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str]:
        if piece.from_bytes == 0:
            yield self._word_times(piece)
        yield _event("audio_output.delta", item_id=piece.context, delta=base64.b64encode(piece.pcm).decode())

    def _word_times(self, piece: Piece) -> str:
        words = piece.text.split()
        step_s = piece.of_bytes / BYTES_PER_S / max(1, len(words))
        starts = [round(i * step_s, 3) for i in range(len(words))]
        ends = [round(at + step_s, 3) for at in starts]
        return _event("word_timestamps", words=words, start_seconds=starts, end_seconds=ends)

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return ()

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_event("audio_output.done", item_id=tts_context.context),)

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        await call.send(_event("tts.failed", error={"message": fault.message, "type": "server_error"}))


def _event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": f"{PREFIX}{kind}", **fields})
