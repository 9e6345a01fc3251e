"""OpenAI's Realtime transcription on a local socket, and Speaches' and vLLM's.

async with FakeRealtimeStt() as vendor:           # or FakeSpeachesStt, FakeVllmStt
    ...                                           # open the STT at vendor.base_url
    call = await vendor.nth(0)
    await call.send(delta("item_1", "book a"))

Events are written from OpenAI's API reference, "Realtime", as its own Python package types them. The differences of
Speaches and vLLM are from their code (`realtime/input_audio_buffer_event_router.py`; `realtime/connection.py`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Response

from voicepipe.audio.encoding import ALAW, MULAW, AudioEncoding
from voicepipe.testing.fakes.cues import Status, SttCue
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber, refused

KEY = "sk-test-0123456789"
"""The only valid key."""

MIN_MS = 100
"""The shortest segment that may be committed."""


def event(kind: str, **fields: Any) -> str:
    """Return a server's event."""
    return json.dumps({"type": kind, "event_id": "event_fake", **fields})


def committed(item: str) -> str:
    """Report that audio became an item."""
    return event("input_audio_buffer.committed", item_id=item, previous_item_id=None)


def delta(item: str, text: str) -> str:
    """Return more of an item's text."""
    return event("conversation.item.input_audio_transcription.delta", item_id=item, content_index=0, delta=text)


def completed(item: str, text: str, *, languages: list[str] | None = None) -> str:
    """Return the whole text of an item."""
    more = {} if languages is None else {"languages": [{"code": code} for code in languages]}
    usage = {"type": "duration", "seconds": 1}
    kind = "conversation.item.input_audio_transcription.completed"
    return event(kind, item_id=item, content_index=0, transcript=text, usage=usage, **more)


def failed(item: str, words: str) -> str:
    """Report that an item has no text, and why."""
    error = {"type": "server_error", "code": "transcription_failed", "message": words}
    return event("conversation.item.input_audio_transcription.failed", item_id=item, content_index=0, error=error)


def error(words: str, *, kind: str = "server_error", code: str | None = None) -> str:
    """Return an error that is not about an item."""
    return event("error", error={"type": kind, "code": code, "message": words, "param": None, "event_id": None})


FORMATS: list[tuple[dict[str, Any], AudioEncoding]] = [
    ({"type": "audio/pcm", "rate": 24_000}, AudioEncoding(24_000)),
    ({"type": "audio/pcmu"}, MULAW),
    ({"type": "audio/pcma"}, ALAW),
]
"""The values of `audio.input.format`."""


class FakeRealtimeStt(FakeWsTranscriber):
    """OpenAI. Items are named in the order of their commits, `item_1` and so on."""

    base_path = "/v1"
    finalize = "input_audio_buffer.commit"
    bye = "there is no such event"

    def __init__(self) -> None:
        super().__init__()
        self._seen_bytes: dict[SttConnection, int] = {}
        self._items: dict[SttConnection, int] = {}

    # --- the handshake ------------------------------------------------------------------------

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        if headers.get("Authorization") != f"Bearer {KEY}":
            return Status(401, f"Incorrect API key provided: {KEY[:6]}***.")
        if path != "/v1/realtime" or not self.takes(query):
            return Status(404, "expected another address")
        return None

    def takes(self, query: Mapping[str, str]) -> bool:
        """Return whether the server accepts that query."""
        return query == {"intent": "transcription"}

    def refused(self, refusal: Status) -> Response:
        return refused(refusal, json.dumps({"error": {"message": refusal.message, "type": "fake"}}), {})

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        return AudioEncoding(24_000)

    # --- a call -------------------------------------------------------------------------------

    def greeting(self, call: SttConnection) -> Iterable[str]:
        return [event("session.created", session={"type": "transcription", "id": "sess_fake"})]

    def audio_of(self, message: str | bytes) -> bytes | None:
        assert isinstance(message, str)
        received = json.loads(message)
        return base64.b64decode(received["audio"]) if received["type"] == "input_audio_buffer.append" else None

    def complaint(self, call: SttConnection) -> str | None:
        if not call.controls:
            return None
        assert call.controls[0] == "session.update", "how to listen is said first"
        new_ms = self._new_ms(call)
        match call.controls[-1]:
            case "session.update":
                return self.objection(call, json.loads(call.texts[-1]))
            case "input_audio_buffer.clear":
                self._seen_bytes[call] = sum(call.message_bytes)
            case "input_audio_buffer.commit" if new_ms < MIN_MS:
                words = f"Expected at least 100ms of audio, but buffer only has {new_ms:.2f}ms of audio."
                return error(words, kind="invalid_request_error", code="input_audio_buffer_commit_empty")
            case "input_audio_buffer.commit":
                self._seen_bytes[call] = sum(call.message_bytes)
        return None

    def objection(self, call: SttConnection, update: dict[str, Any]) -> str | None:
        """Return the fault of a `session.update`, as an error; note the encoding of the audio."""
        session = update["session"]
        sound = session["audio"]["input"]
        encoding = next((each for form, each in FORMATS if form == sound["format"]), None)
        if session["type"] == "transcription" and encoding is not None and sound["turn_detection"] is None:
            call.encoding = encoding
            return None
        return error("Invalid session.", kind="invalid_request_error", code="invalid_value")

    def _new_ms(self, call: SttConnection) -> int:
        return (sum(call.message_bytes) - self._seen_bytes.get(call, 0)) // call.encoding.bytes_per_ms

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        self._items[call] = self._items.get(call, 0) + 1
        item = f"item_{self._items[call]}"
        languages = [cue.language] if cue.language else None
        return [committed(item), completed(item, cue.text, languages=languages)]

    def error(self, words: str) -> str:
        return error(words)


class FakeSpeachesStt(FakeRealtimeStt):
    """Speaches: no key, the model in the URL, and the older shape of a session."""

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        return None if path == "/v1/realtime" and self.takes(query) else Status(404, "expected another address")

    def takes(self, query: Mapping[str, str]) -> bool:
        return query.get("intent") == "transcription" and bool(query.get("model"))

    def objection(self, call: SttConnection, update: dict[str, Any]) -> str | None:
        session = update["session"]
        if session["turn_detection"] is None and session["input_audio_transcription"]["model"]:
            return None
        return error("Specifying another session is not supported.", kind="invalid_request_error")


class FakeVllmStt(FakeWsTranscriber):
    """vLLM: a commit begins a segment, a final one ends it, and audio that arrives before its text is lost."""

    base_path = "/v1"
    finalize = "end"
    bye = "there is no such event"

    def __init__(self) -> None:
        super().__init__()
        self._state: dict[SttConnection, str] = {}

    def refusal_of(self, path: str, query: Mapping[str, str], headers: Headers) -> Status | None:
        return None if path == "/v1/realtime" else Status(403, "expected another address")

    def encoding_of(self, query: Mapping[str, str]) -> AudioEncoding | None:
        return AudioEncoding(16_000)

    def greeting(self, call: SttConnection) -> Iterable[str]:
        return [json.dumps({"type": "session.created", "id": "sess-fake", "created": 0})]

    def audio_of(self, message: str | bytes) -> bytes | None:
        assert isinstance(message, str)
        received = json.loads(message)
        return base64.b64decode(received["audio"]) if received["type"] == "input_audio_buffer.append" else None

    def on_audio(self, call: SttConnection) -> Iterable[str]:
        return [] if self._state.get(call) == "receiving" else [self.error("the audio of no segment")]

    def kind_of(self, text: str) -> str:
        received = json.loads(text)
        if received["type"] == "session.update":
            return "model" if received["model"] else "no model"
        assert received["type"] == "input_audio_buffer.commit"
        return "end" if received["final"] else "begin"

    def complaint(self, call: SttConnection) -> str | None:
        kind = call.controls[-1] if call.controls else ""
        state = self._state.get(call, "")
        self._state[call] = {"begin": "receiving", "end": "owing", "model": "ready"}.get(kind, state)
        expected_state = {"": "", "model": "", "begin": "ready", "end": "receiving"}
        if expected_state.get(kind) == state:
            return None
        return json.dumps({"type": "error", "error": f"{kind} while {state}", "code": "processing_error"})

    def answer(self, call: SttConnection, cue: SttCue, start_ms: int, end_ms: int) -> list[str]:
        self._state[call] = "ready"
        done = {"type": "transcription.done", "text": cue.text, "usage": {"total_tokens": 1}}
        return [json.dumps({"type": "transcription.delta", "delta": cue.text}), json.dumps(done)]

    def error(self, words: str) -> str:
        return json.dumps({"type": "error", "error": words, "code": "processing_error"})
