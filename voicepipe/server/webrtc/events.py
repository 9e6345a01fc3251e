"""Adapt the events of both sides to WebRTC: audio travels over RTP, so no event carries it."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import pybase64

from voicepipe.protocol.json_fields import JsonObject

_TYPE: Final = re.compile(rb'\{"type":"([a-z_.]+)"')
AUDIO_DELTAS: Final = frozenset({"response.output_audio.delta", "response.audio.delta"})
"""The agent's audio, in the published and in the older dialect."""

WEBSOCKET_EXTENSIONS: Final = ("binary_audio", "resume")
"""Extensions that only a WebSocket needs."""

_ENCODER: Final = msgspec.json.Encoder()


class AudioDelta(msgspec.Struct, frozen=True):
    """The fields of an audio event that playback needs."""

    response_id: str
    item_id: str
    content_index: int
    delta: str

    def pcm(self) -> bytes:
        """Return the audio: 16-bit PCM, little-endian, 24 kHz."""
        return pybase64.b64decode(self.delta)


class _Response(msgspec.Struct, frozen=True):
    id: str
    status: str


class ResponseDone(msgspec.Struct, frozen=True):
    """The end of a response."""

    response: _Response


_DELTA_DECODER: Final = msgspec.json.Decoder(AudioDelta)
_DONE_DECODER: Final = msgspec.json.Decoder(ResponseDone)


def type_of(frame: bytes) -> str:
    """Return the type of an event of the server, which is its first field; empty if the frame is no event."""
    found = _TYPE.match(frame)
    return found[1].decode() if found else ""


def read_delta(frame: bytes) -> AudioDelta:
    """Return the audio of an event of type `AUDIO_DELTAS`."""
    return _DELTA_DECODER.decode(frame)


def read_done(frame: bytes) -> tuple[str, str]:
    """Return the response's ID and its status, of a `response.done`."""
    done = _DONE_DECODER.decode(frame).response
    return done.id, done.status


def speech_interrupts(session: JsonObject) -> bool:
    """Return whether the user's speech interrupts the agent, by a session object of either dialect."""
    audio = session.get("audio")
    detection = audio.get("input", {}).get("turn_detection") if audio else session.get("turn_detection")
    return detection is not None and detection.get("interrupt_response", True) is not False


def event(kind: str, event_id: str, **fields: object) -> bytes:
    """Return an event, encoded."""
    return _ENCODER.encode({"type": kind, "event_id": event_id, **fields})


def append_event(pcm: bytes) -> bytes:
    """Return the client's event with more of the user's audio, 16-bit PCM, 24 kHz."""
    return b'{"type":"input_audio_buffer.append","audio":"' + pybase64.b64encode(pcm) + b'"}'


def without_formats(session: Any) -> Any:
    """Return a session object without the fields that RTP decides: audio formats, and extensions of the WebSocket.

    Malformed objects are returned unchanged: the session refuses them.
    """
    if not isinstance(session, dict):
        return session
    changed = {key: value for key, value in session.items() if key not in ("input_audio_format", "output_audio_format")}
    if isinstance(audio := changed.get("audio"), dict):
        changed["audio"] = {side: _without(options, ("format",)) for side, options in audio.items()}
    if isinstance(data := changed.get("providerData"), dict) and "voicepipe" in data:
        changed["providerData"] = {**data, "voicepipe": _without(data["voicepipe"], WEBSOCKET_EXTENSIONS)}
    return changed


def _without(value: Any, names: tuple[str, ...]) -> Any:
    return {key: each for key, each in value.items() if key not in names} if isinstance(value, dict) else value


def client_event(raw: str | bytes) -> tuple[str, str | bytes]:
    """Return the type of a client's event, if WebRTC changes that event, and the event for the session.

    Other events and malformed messages are returned unchanged, with an empty type.
    """
    text = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
    is_update = b"session.update" in text
    if not is_update and b"output_audio_buffer.clear" not in text:
        return "", raw
    try:
        read = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return "", raw
    kind = read.get("type") if isinstance(read, dict) else None
    if kind == "output_audio_buffer.clear":
        return kind, raw
    if kind != "session.update":
        return "", raw
    return kind, _ENCODER.encode({**read, "session": without_formats(read.get("session"))})
