"""Inworld's `/tts/v1/voice:streamBidirectional` on a local socket.

Messages and limits are from Inworld's API reference, "Synthesize speech (WebSocket)": five contexts a connection,
a thousand characters a text, `close_context` speaks flushed text. That an unknown context is reported with the code 5
is from pipecat's client; the texts of the other errors are unverified.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.testing.fakes.cues import InBandError, Status
from voicepipe.testing.fakes.ws_tts import FakeWsSynthesizer, Piece, TtsConnection, TtsContext

KEY = "aW53b3JsZDp0ZXN0"
"""The only valid key: base64, as the portal shows it."""

MAX_CONTEXTS = 5
MAX_CHARACTERS = 1_000
BYTES_PER_S = 48_000


class FakeInworld(FakeWsSynthesizer):
    """A vendor that speaks each flushed text as one clause, with word times."""

    def __init__(self) -> None:
        super().__init__()
        self.wav = False
        """Put a WAV header before the audio of each message, as for `LINEAR16`."""

        self._texts: dict[str, str] = {}

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Basic {KEY}":
            return Status(401, "Unauthenticated")
        return None if path == "/tts/v1/voice:streamBidirectional" else Status(404, "Not Found")

    async def take(self, call: TtsConnection, message: dict[str, Any]) -> None:
        context = message["contextId"]
        if "create" in message:
            await self._create(call, context, message["create"])
        elif context not in call.tts_contexts:
            await call.send(_result(context, code=5, words=f"Context {context} not found"))
        elif "send_text" in message:
            await self._text(call, context, message["send_text"])
        elif "close_context" in message:
            self._close(call, call.tts_contexts[context])

    async def _create(self, call: TtsConnection, context: str, settings: dict[str, Any]) -> None:
        audio = settings["audioConfig"]
        if not settings["voiceId"] or not settings["modelId"] or audio["sampleRateHertz"] != BYTES_PER_S // 2:
            await call.send(_result(context, code=3, words="expected a voice, a model and 24000 Hz"))
        elif len(call.tts_contexts) == MAX_CONTEXTS:
            await call.send(_result(context, code=8, words=f"at most {MAX_CONTEXTS} contexts"))
        else:
            call.begin(context)
            await call.send(_result(context, contextCreated={"voiceId": settings["voiceId"]}))

    async def _text(self, call: TtsConnection, context: str, sent: dict[str, Any]) -> None:
        if len(sent["text"]) > MAX_CHARACTERS:
            call.drop(context)
            await call.send(_result(context, code=3, words=f"at most {MAX_CHARACTERS} characters"))
            return
        self._texts[context] = self._texts.get(context, "") + sent["text"]
        if "flush_context" in sent:
            self.speak(call, context, self._texts.pop(context))

    def _close(self, call: TtsConnection, tts_context: TtsContext) -> None:
        """Speak all flushed text first, whether the context was ended or cancelled."""
        if tts_context.received is not None and not tts_context.received.ended.is_set():
            tts_context.received.gone.set()
        self.finish(call, tts_context.context)

    def sound(self, piece: Piece, tts_context: TtsContext) -> Iterable[str]:
        pcm = (b"RIFF" + bytes(40) if self.wav else b"") + piece.pcm
        chunk = {
            "audioContent": base64.b64encode(pcm).decode(),
            "usage": {"processedCharactersCount": len(piece.text), "modelId": "fake"},
            "timestampInfo": {"wordAlignment": _alignment(piece)},
        }
        return (_result(piece.context, audioChunk=chunk),)

    def clause_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_result(tts_context.context, flushCompleted={}),)

    def context_over(self, tts_context: TtsContext) -> Iterable[str]:
        return (_result(tts_context.context, contextClosed={}),)

    async def fail(self, call: TtsConnection, context: str, fault: InBandError) -> None:
        call.tts_contexts.pop(context, None)
        await call.send(_result(context, code=fault.code or 13, words=fault.message))
        call.notify()


def _alignment(piece: Piece) -> dict[str, Any]:
    """Return the words that begin in a piece, all of equal length, with times from the clause's start."""
    words = piece.text.split()
    step = piece.of_bytes / max(1, len(words))
    ends = piece.from_bytes + len(piece.pcm)
    begun = [(word, i * step) for i, word in enumerate(words) if piece.from_bytes <= i * step < ends]
    return {
        "words": [word for word, _ in begun],
        "wordStartTimeSeconds": [round(at / BYTES_PER_S, 3) for _, at in begun],
        "wordEndTimeSeconds": [round((at + step) / BYTES_PER_S, 3) for _, at in begun],
    }


def _result(context: str, *, code: int = 0, words: str = "", **more: Any) -> str:
    return json.dumps({"result": {"contextId": context, **more, "status": {"code": code, "message": words}}})
