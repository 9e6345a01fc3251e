"""`POST /v1/audio/speech`: the request, read and checked, and the events of a streamed answer.

Source: OpenAI API reference, "Create speech", `speech.audio.delta` and `speech.audio.done`. No I/O.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from voicepipe.errors import ProtocolError
from voicepipe.protocol.chat_request import Name, json_refusal
from voicepipe.protocol.json_fields import JsonObject

MAX_CHARS: Final = 4_096
"""The published maximum length of `input`, in characters."""

IGNORED: Final = ("instructions",)
"""These parameters request a manner of speaking; the spoken words are the same without them."""

Format = Literal["mp3", "opus", "flac", "wav", "pcm"]

_encode: Final = msgspec.json.Encoder().encode


class VoiceId(Struct, frozen=True):
    """A voice by its id, the shape for custom voices."""

    id: Name


class SpeechRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request, its shape checked."""

    model: Name
    input: Annotated[str, Meta(min_length=1, max_length=MAX_CHARS)]
    voice: Name | VoiceId | None = None
    """Required as published; here the agent's own voice is used if it is left out."""

    response_format: Format | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: Any = None

    @property
    def voice_name(self) -> str | None:
        """Return the voice's name from either of its shapes."""
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice

    @property
    def format_name(self) -> Format:
        """Return the format in which the audio is written."""
        return self.response_format or "mp3"

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the parameters that were given and have no effect."""
        return tuple(name for name in IGNORED if getattr(self, name) is not None)


_decode: Final = msgspec.json.Decoder(SpeechRequest).decode


def read_speech_request(body: bytes) -> SpeechRequest:
    """Read a request's body.

    Raises:
        ProtocolError: it is no such request, or it has nothing that can be spoken; `field` names what is wrong.
    """
    try:
        request = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise json_refusal(wrong) from None
    if not any(map(str.isalnum, request.input)):
        raise ProtocolError("Expected a text that can be spoken.", field="input")
    return request


def audio_delta(sound: bytes) -> bytes:
    """Return more of the audio, as a server-sent event."""
    return b"data: " + _encode({"type": "speech.audio.delta", "audio": b64encode(sound).decode()}) + b"\n\n"


def audio_done(extension: JsonObject) -> bytes:
    """Return the final event. The published `usage` counts tokens, which no TTS here reports: `extension` has what is
    known.
    """
    return b"data: " + _encode({"type": "speech.audio.done", "voicepipe": extension}) + b"\n\n"
