"""Cartesia's two streaming STT APIs on a local socket, driven by cues or by the test.

async with FakeInkTurns() as vendor:
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(turn("eager_end", "hello there"))

Messages are written from Cartesia's API reference 2026-03-01, "Realtime Speech-to-Text (Auto)" and "(Manual)", and from
its own Python client: plain text as commands in the one, JSON in the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Response

from voicepipe.audio.encoding import FormatName
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber, refused

KEY = "sk_car_test0123456789"
"""The only valid key."""


ENCODINGS: Mapping[str, FormatName] = {
    "pcm_s16le": "audio/pcm",
    "pcm_mulaw": "audio/pcmu",
    "pcm_alaw": "audio/pcma",
}
"""Some of those of Cartesia docs, "Audio input"."""


def encoded(kind: str, **fields: Any) -> str:
    """Return a message."""
    return json.dumps({"type": kind, "request_id": "fake", **fields})


def turn(event: str, transcript: str | None = None) -> str:
    """Return a message of a turn: `start` and `resume` have no text."""
    return encoded(f"turn.{event}") if transcript is None else encoded(f"turn.{event}", transcript=transcript)


def transcript(text: str, *, is_final: bool = False, language: str | None = "en") -> str:
    """Return a chunk of text, to be appended unchanged to the final ones before it."""
    return encoded("transcript", text=text, is_final=is_final, duration=1.0, language=language)


class FakeInk(FakeWsTranscriber):
    """A vendor that answers each `finalize` on cue."""

    finalize = "finalize"
    bye = "close"
    error_close = (1011, "")
    path = "/stt/websocket"
    encodings = ENCODINGS

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("X-API-Key") != KEY:
            return Status(401, "Invalid API key")
        if path != self.path or not headers.get("Cartesia-Version"):
            return Status(404, f"expected {self.path} and a version")
        if not query.get("model") or self.encoding_of(query) is None:
            return Status(400, "expected a model, an encoding and its sample_rate")
        return None

    def refused(self, refusal: Status) -> Response:
        body = {
            "title": "Refused",
            "message": refusal.message,
            "error_code": "fake",
            "status_code": refusal.status,
        }
        return refused(refusal, json.dumps(body), {})

    def kind_of(self, text: str) -> str:
        return text

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        half = len(cue.text) // 2
        chunks = [transcript(part, is_final=True, language=cue.language) for part in (cue.text[:half], cue.text[half:])]
        return [*(chunks if cue.text else ()), encoded("flush_done")]

    def error(self, words: str) -> str:
        return encoded("error", title="Fake", message=words, error_code="fake")

    def farewell(self, call: SttConnection) -> Iterable[str]:
        yield encoded("done")


class FakeInkTurns(FakeInk):
    """A vendor that detects turns by itself and answers no request: the test sends the turns."""

    finalize = "no such message"
    path = "/stt/turns/websocket"

    def kind_of(self, text: str) -> str:
        return str(json.loads(text)["type"])

    def greeting(self, call: SttConnection) -> Iterable[str]:
        yield encoded("connected")

    def farewell(self, call: SttConnection) -> Iterable[str]:
        return ()
