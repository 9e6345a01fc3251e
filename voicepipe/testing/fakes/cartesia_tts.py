"""Cartesia's `/tts/websocket` on a local socket.

Messages and limits are written from Cartesia's API reference, "Text to Speech (WebSocket)", version 2026-03-01, and its
docs "Contexts", "Context Flushing and Flush IDs" and "Concurrency and WebSocket Limits". That a cancelled context is
confirmed by `done` is unverified; audio of earlier text may still arrive.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "sk_car_test0123456789"
"""The only valid key."""

BYTES_PER_S = 48_000
SAME = ("model_id", "voice", "output_format", "language", "generation_config")
"""Fields that must not change within a context ("Contexts": all but the transcript, `continue` and the duration)."""


class FakeCartesia(FakeWsSynthesizer):
    """A vendor that speaks each flushed transcript as one clause."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}
        self._fields: dict[str, dict[str, Any]] = {}
        self._over: set[str] = set()

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("X-API-Key") != KEY:
            return Status(401, "Invalid API key")
        if path != "/tts/websocket" or not headers.get("Cartesia-Version"):
            return Status(400, "expected /tts/websocket and a version")
        return None

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        context = message["context_id"]
        if message.get("cancel"):
            if context in call.tts_contexts:
                tts_context = call.tts_contexts[context]
                call.drop(context)
                self._over.add(context)
                await call.send_all(self.context_over(tts_context))
            return
        if (why := self._fault(context, message)) is not None:
            await call.send(_error(context, 400, "invalid_request", why))
            return
        if context not in call.tts_contexts:
            call.begin(context)
        self._texts[context] = self._texts.get(context, "") + message["transcript"]
        if (message.get("flush") or not message["continue"]) and (text := self._texts.pop(context)).strip():
            self.speak(call, context, text)
        if not message["continue"]:
            self._over.add(context)
            self.finish(call, context)

    def _fault(self, context: str, message: dict[str, Any]) -> str | None:
        form = message["output_format"]
        if (form["container"], form["encoding"], form["sample_rate"]) != ("raw", "pcm_s16le", BYTES_PER_S // 2):
            return f"an output format that was not expected: {form}"
        if message["voice"]["mode"] != "id" or not message["model_id"]:
            return "expected a model and a voice by its id"
        if context in self._over:
            return "Context has closed"
        fields = {name: message.get(name) for name in SAME}
        if self._fields.setdefault(context, fields) != fields:
            return "fields of a context may not change"
        return None

    def expire(self, call: TtsConnection, context: str) -> list[str]:
        """End a context that was silent for a second; return its last messages."""
        last = list(self.context_over(call.tts_contexts[context]))
        call.drop(context)
        self._over.add(context)
        return last

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str]:
        if piece.from_bytes == 0:
            yield self._timestamps(piece, tts_context)
        yield _message(piece.context, "chunk", data=base64.b64encode(piece.pcm).decode(), step_time=1.0)

    def _timestamps(self, piece: Piece, tts_context: TtsContext) -> str:
        words = piece.text.split()
        step_s = piece.of_bytes / BYTES_PER_S / max(1, len(words))
        start = [round(tts_context.n_bytes / BYTES_PER_S + i * step_s, 3) for i in range(len(words))]
        end = [round(at + step_s, 3) for at in start]
        return _message(piece.context, "timestamps", word_timestamps={"words": words, "start": start, "end": end})

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_message(tts_context.context, "flush_done", flush_done=True, flush_id=tts_context.n_clauses),)

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_message(tts_context.context, "done", done=True),)

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        call.tts_contexts.pop(context, None)
        self._over.add(context)
        await call.send(_error(context, fault.code or 500, "fake_error", fault.message))
        call.notify()


def _message(context: str, kind: str, *, done: bool = False, **more: Any) -> str:
    return json.dumps({"type": kind, "done": done, "status_code": 206, "context_id": context, **more})


def _error(context: str, status: int, code: str, why: str) -> str:
    own = {"type": "error", "done": True, "status_code": status, "context_id": context}
    return json.dumps(own | {"title": "Error", "message": why, "error_code": code})
