"""Deepgram's `/v1/speak` on a local socket.

Messages and limits are written from Deepgram's API reference, "Continuous Text Stream", and its docs "Flush" (twenty a
minute), "Clear" and "Close". The fields of the warning are those of issue 617 of Deepgram's Python client; an error
inside the socket is unverified, and shaped as its other messages are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "dg-test-0123456789"
"""The only valid key."""

MAX_FLUSHES = 20
RATES_HZ = frozenset({"8000", "16000", "24000", "32000", "48000"})
CONTEXT = "the only one"
"""The key of a socket's only context, since Deepgram's have no name."""


class FakeAura(FakeWsSynthesizer):
    """A vendor that speaks the text before each flush as one clause."""

    base_path = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[TtsConnection, str] = {}
        self._n_flushes: dict[TtsConnection, int] = {}  # a test's calls last less than a minute

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Token {KEY}":
            return Status(401, "Invalid credentials.")
        if path != "/v1/speak" or not query.get("model", "").startswith("aura-"):
            return Status(400, "expected /v1/speak and a model")
        if query.get("encoding") != "linear16" or query.get("sample_rate") not in RATES_HZ:
            return Status(400, "expected linear16 and its sample_rate")
        return None

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        match message["type"]:
            case "Speak":
                self._texts[call] = self._texts.get(call, "") + message["text"]
            case "Flush":
                await self._flush(call)
            case "Clear":
                self._texts.pop(call, None)
                call.drop(CONTEXT)
                await call.send(_sequenced("Cleared", 0))
            case "Close":
                await call.hang_up()

    async def _flush(self, call: TtsConnection) -> None:
        self._n_flushes[call] = self._n_flushes.get(call, 0) + 1
        if self._n_flushes[call] > MAX_FLUSHES:
            words = "Rate limit exceeded for flushes. Please try again later."
            await call.send(json.dumps({"type": "Warning", "warn_code": "EXCESSIVE_FLUSH", "warn_msg": words}))
            return
        self.speak(call, CONTEXT, self._texts.pop(call, ""))

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[bytes]:
        return (piece.pcm,)

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_sequenced("Flushed", tts_context.n_clauses - 1),)

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return ()

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        error = {"type": "Error", "description": fault.message, "message": fault.message}
        await call.send(json.dumps(error | ({"code": fault.code} if fault.code else {})))
        await call.hang_up(1011, "NET-0000")


def _sequenced(kind: str, sequence: int) -> str:
    return json.dumps({"type": kind, "sequence_id": sequence})
