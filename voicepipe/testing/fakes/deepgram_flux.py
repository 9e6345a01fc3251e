"""Deepgram's `/v2/listen` on a local socket, driven by cues or by the test.

async with FakeFlux() as vendor:
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(turn_info("EagerEndOfTurn", "hello", 0, 900))

Messages are written from Deepgram's API reference, "Turn-based Audio (Flux)", from "Understanding the Flux State
Machine" and "Force End Turn" (a `trigger` on `EndOfTurn`; ignored when no turn is in progress), and from Deepgram's own
Python client (words' times).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from websockets.datastructures import Headers
from websockets.http11 import Response

from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.deepgram_stt import ENCODINGS, KEY, REFUSED_KEY, refused_as_deepgram
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

MODELS = frozenset({"flux-general-en", "flux-general-multi"})


def turn_info(
    event: str,
    text: str,
    start_ms: int,
    end_ms: int,
    *,
    turn: int = 0,
    timed: bool = True,
    trigger: str | None = None,
    languages: list[str] | None = None,
) -> str:
    """Return a `TurnInfo` message; its words share the stretch evenly."""
    spoken = text.split()
    step = (end_ms - start_ms) / 1_000 / max(1, len(spoken))
    words = [{"word": word, "confidence": 0.99} for word in spoken]
    if timed:
        for i, word in enumerate(words):
            word |= {"start": start_ms / 1_000 + i * step, "end": start_ms / 1_000 + (i + 1) * step}
    message = {
        "type": "TurnInfo",
        "request_id": "fake",
        "sequence_id": 0,
        "event": event,
        "turn_index": turn,
        "audio_window_start": start_ms / 1_000,
        "audio_window_end": end_ms / 1_000,
        "transcript": text,
        "words": words,
        "end_of_turn_confidence": 0.9 if "EndOfTurn" in event else 0.1,
    }
    if trigger is not None:
        message["trigger"] = trigger
    if languages is not None:
        message["languages"] = languages
    return json.dumps(message)


class FakeFlux(FakeWsTranscriber):
    """A vendor that reports speech at its first audio, and ends a turn on cue."""

    base_path = "/v2"
    encodings = ENCODINGS
    finalize = "ForceEndTurn"
    error_close = (1011, "NET-0000")

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Token {KEY}":
            return REFUSED_KEY
        if path != "/v2/listen" or query.get("model") not in MODELS:
            return Status(400, "expected /v2/listen and a Flux model")
        if self.encoding_of(query) is None:
            return Status(400, "expected an encoding and its sample_rate")
        return None

    def refused(self, refusal: Status) -> Response:
        return refused_as_deepgram(refusal)

    def greeting(self, call: SttConnection) -> Iterable[str]:
        yield json.dumps({"type": "Connected", "request_id": "fake", "sequence_id": 0})

    def on_audio(self, call: SttConnection) -> Iterable[str]:
        """Report speech at the first audio of a turn. This uses no cue."""
        if not call.speaking and self.script.usual is not None:
            call.speaking = True
            yield turn_info("StartOfTurn", "", 0, 0, turn=call.turns)

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        turn, call.turns, call.speaking = call.turns, call.turns + 1, False
        languages = [cue.language] if cue.language else None
        ended = turn_info("EndOfTurn", cue.text, start_ms, end_ms, turn=turn, trigger="manual", languages=languages)
        return [ended]

    def error(self, words: str) -> str:
        return json.dumps({"type": "Error", "sequence_id": 0, "code": "INTERNAL_SERVER_ERROR", "description": words})
