"""Rime's `/ws3` on a local socket.

Messages and limits are written from Rime's docs, "Websockets JSON" of Coda, Arcana and Mist v3, and "Segmentation &
Behavior Settings" for `segment=never`: text waits for a flush, flushes wait for one another, `clear` discards both.
That `done` comes once for each flush, with the context of its text, is unverified.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "rime_test_0123456789"
"""The only valid key."""

BYTES_PER_S = 48_000


class FakeRime(FakeWsSynthesizer):
    """A vendor that speaks each flushed text as one clause."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[TtsConnection, str] = {}
        self._context: dict[TtsConnection, str] = {}

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Status(401, "Unauthorized")
        if path != "/ws3" or not query.get("speaker") or not query.get("modelId"):
            return Status(400, "expected /ws3, a speaker and a model")
        if (query.get("audioFormat"), query.get("samplingRate"), query.get("segment")) != ("pcm", "24000", "never"):
            return Status(400, "expected pcm at 24000 Hz, and segment=never")
        return None

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        match message.get("operation"):
            case None:
                self._texts[call] = self._texts.get(call, "") + message["text"]
                self._context[call] = message["contextId"]
            case "flush":
                if (text := self._texts.pop(call, "")).strip():
                    self._flush(call, text)
            case "clear":
                self._texts.pop(call, None)
                for context in list(call.tts_contexts):
                    call.drop(context)
            case unknown:
                await call.send(json.dumps({"type": "error", "message": f"unknown operation {unknown}"}))

    def _flush(self, call: TtsConnection, text: str) -> None:
        """Speak a flushed text after the earlier ones: the clause's worker waits for theirs."""
        context = self._context[call]
        before = [
            tts_context.speaking for tts_context in call.tts_contexts.values() if tts_context.speaking is not None
        ]
        self.speak(call, context, text, after=before)
        self.finish(call, context)

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str]:
        if piece.from_bytes == 0:
            yield self._timestamps(piece)
        yield _message("chunk", piece.context, data=base64.b64encode(piece.pcm).decode())

    def _timestamps(self, piece: Piece) -> str:
        words = piece.text.split()
        step_s = piece.of_bytes / BYTES_PER_S / max(1, len(words))
        start = [round(i * step_s, 3) for i in range(len(words))]
        end = [round(at + step_s, 3) for at in start]
        return _message("timestamps", piece.context, word_timestamps={"words": words, "start": start, "end": end})

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return ()

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_message("done", tts_context.context),)

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        await call.send(json.dumps({"type": "error", "message": fault.message}))


def _message(kind: str, context: str, **more: Any) -> str:
    return json.dumps({"type": kind, "contextId": context, **more})
