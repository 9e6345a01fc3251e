"""AssemblyAI's `/v3/ws` on a local socket, driven by cues or by the test.

async with FakeAssemblyAi() as vendor:
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(turn("hello there", 0, 900, end_of_turn=True))

Messages are written from AssemblyAI's docs: "Message Sequence" (Begin, SpeechStarted, Turn, Termination), "Turn
detection" (ForceEndpoint) and "Common session errors and closures" (Error, sent before the socket is closed with the
same code; audio messages of 50 to 1000 ms).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers

from voicepipe.audio.encoding import FormatName
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

KEY = "aai-test-0123456789"
"""The only valid key."""


ENCODINGS: Mapping[str, FormatName] = {"pcm_s16le": "audio/pcm", "pcm_mulaw": "audio/pcmu"}


def turn(
    text: str,
    start_ms: int,
    end_ms: int,
    *,
    order: int = 0,
    end_of_turn: bool = False,
    formatted: bool = False,
    utterance: str = "",
    language: str | None = None,
    speakers: str = "",
) -> str:
    """Return a `Turn` message; its words share the stretch evenly, and the last one is certain only at the end.

    `speakers` as in a cue: capital letters, the first one that of the turn.
    """
    spoken = text.split()
    step = (end_ms - start_ms) // max(1, len(spoken))
    words: list[dict[str, Any]] = [
        {
            "start": start_ms + i * step,
            "end": start_ms + (i + 1) * step,
            "text": word,
            "confidence": 0.99,
            "word_is_final": end_of_turn or i < len(spoken) - 1,
        }
        for i, word in enumerate(spoken)
    ]
    for word, speaker in zip(words, speakers, strict=False):
        if speaker != " ":
            word["speaker"] = speaker
    message = {
        "turn_order": order,
        "turn_is_formatted": formatted,
        "end_of_turn": end_of_turn,
        "transcript": " ".join(spoken if end_of_turn else spoken[:-1]),
        "end_of_turn_confidence": 0.9 if end_of_turn else 0.01,
        "words": words,
        "utterance": utterance,
        "type": "Turn",
    }
    if speakers:
        message["speaker_label"] = speakers[0] if speakers[0] != " " else "UNKNOWN"
    if language is not None:
        message |= {"language_code": language, "language_confidence": 0.99}
    return json.dumps(message)


def error(code: int, words: str) -> str:
    """Return an `Error` message."""
    return json.dumps({"type": "Error", "error_code": code, "error": words})


class FakeAssemblyAi(FakeWsTranscriber):
    """A vendor that reports speech at its first audio, and ends a turn on cue."""

    base_path = "/v3"
    encodings = ENCODINGS
    finalize = "ForceEndpoint"
    bye = "Terminate"
    error_close = (3005, "Session Cancelled: An error occurred")

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if path != "/v3/ws" or not query.get("speech_model"):
            return Status(400, "expected /v3/ws and a speech_model")
        if self.encoding_of(query) is None:
            return Status(400, "expected an encoding and its sample_rate")
        return None

    def turned_away(self, call: SttConnection) -> tuple[str, int, str] | None:
        """Report a wrong key once the socket is open."""
        if call.headers.get("Authorization") == KEY:
            return None
        words = "Unauthorized Connection: Missing Authorization header"
        return error(1008, words), 1008, words

    def greeting(self, call: SttConnection) -> Iterable[str]:
        yield json.dumps({"type": "Begin", "id": "fake", "expires_at": 1_900_000_000})

    def on_audio(self, call: SttConnection) -> Iterable[str]:
        if not call.speaking and self.script.usual is not None:
            call.speaking = True
            yield json.dumps({"type": "SpeechStarted", "timestamp": call.received_ms})

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        order, call.turns, call.speaking = call.turns, call.turns + 1, False
        speakers = cue.speakers if ("speaker_labels", "true") in call.query else ""
        return [
            turn(
                cue.text,
                start_ms,
                end_ms,
                order=order,
                end_of_turn=True,
                language=cue.language,
                speakers=speakers,
            )
        ]

    def error(self, words: str) -> str:
        return error(3005, words)

    def farewell(self, call: SttConnection) -> Iterable[str]:
        seconds = call.received_ms / 1_000
        yield json.dumps(
            {"type": "Termination", "audio_duration_seconds": seconds, "session_duration_seconds": seconds}
        )
