"""Deepgram's `/v1/listen` on a local socket, driven by cues or by the test.

async with FakeDeepgram() as vendor:
    vendor.desk.usual = None                      # Finalize stays unanswered, unless the test answers
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.until(lambda: call.heard_ms >= 500)
    await call.send(results("hello", 0, 500, is_final=True, speech_final=True))

Messages are written from Deepgram's API reference, "Live Audio", "Finalize" and "Errors".
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

KEY = "dg-test-0123456789"
"""The only valid key."""

ENCODINGS: Mapping[str, FormatName] = {"linear16": "audio/pcm", "mulaw": "audio/pcmu", "alaw": "audio/pcma"}
"""Some of those of Deepgram docs, "Encoding"."""

REFUSED_KEY = Status(401, "Invalid credentials.")


def results(
    text: str,
    start_ms: int,
    end_ms: int,
    *,
    is_final: bool = False,
    speech_final: bool = False,
    from_finalize: bool = False,
    languages: list[str] | None = None,
    speakers: str = "",
) -> str:
    """Return a `Results` message; its words share the stretch evenly. `speakers` as in a cue, digits."""
    spoken = text.split()
    step = (end_ms - start_ms) / 1_000 / max(1, len(spoken))
    words: list[dict[str, Any]] = [
        {
            "word": word.lower().strip(".,?!"),
            "start": round(start_ms / 1_000 + i * step, 3),
            "end": round(start_ms / 1_000 + (i + 1) * step, 3),
            "confidence": 0.99,
            "punctuated_word": word,
        }
        for i, word in enumerate(spoken)
    ]
    for word, speaker in zip(words, speakers, strict=False):
        if speaker != " ":
            word["speaker"] = int(speaker)
    alternative: dict[str, Any] = {"transcript": text, "confidence": 0.99, "words": words}
    if languages is not None:
        alternative["languages"] = languages
    return json.dumps(
        {
            "type": "Results",
            "channel_index": [0, 1],
            "duration": (end_ms - start_ms) / 1_000,
            "start": start_ms / 1_000,
            "is_final": is_final,
            "speech_final": speech_final,
            "from_finalize": from_finalize,
            "channel": {"alternatives": [alternative]},
            "metadata": {"request_id": "fake", "model_uuid": "fake"},
        }
    )


def refused_as_deepgram(refusal: Status) -> Response:
    """Return a refusal as the docs show it: the text in the body and in the header `dg-error`."""
    code = {400: "Bad Request", 401: "INVALID_AUTH"}.get(refusal.status, "FAKE_ERROR")
    body = json.dumps({"err_code": code, "err_msg": refusal.message, "request_id": "fake"})
    return refused(refusal, body, {"dg-error": refusal.message})


class FakeDeepgram(FakeWsTranscriber):
    """A vendor that answers each `Finalize` on cue."""

    base_path = "/v1"
    encodings = ENCODINGS
    error_close = (1011, "NET-0000")

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Token {KEY}":
            return REFUSED_KEY
        if path != "/v1/listen" or not query.get("model"):
            return Status(400, "expected /v1/listen and a model")
        if self.encoding_of(query) is None:
            return Status(400, "expected an encoding and its sample_rate")
        return None

    def refused(self, refusal: Status) -> Response:
        return refused_as_deepgram(refusal)

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        languages = [cue.language] if cue.language else None
        speakers = cue.speakers if ("diarize", "true") in call.query else ""
        return [
            results(
                cue.text,
                start_ms,
                end_ms,
                is_final=True,
                from_finalize=True,
                languages=languages,
                speakers=speakers,
            )
        ]

    def error(self, words: str) -> str:
        # Its type is known from Deepgram's own clients; the reference shows none.
        return json.dumps({"type": "Error", "description": words, "message": words, "variant": "fake"})

    def farewell(self, call: SttConnection) -> Iterable[str]:
        """Return the closing metadata message."""
        yield json.dumps({"type": "Metadata", "duration": call.received_ms / 1_000})
