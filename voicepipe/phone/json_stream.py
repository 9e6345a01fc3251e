"""Read and write a media stream in JSON with base64 audio, as several carriers have it."""

from __future__ import annotations

import binascii
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from voicepipe.phone.carrier import (
    AudioReceived,
    DigitPressed,
    IgnoredMessage,
    MarkPlayed,
    StreamEvent,
    StreamStarted,
    StreamStopped,
)

DIGITS: Final = frozenset("0123456789*#ABCD")
"""The keys of DTMF."""

Text = Annotated[str, msgspec.Meta(max_length=256)]


class MediaFormat(msgspec.Struct, frozen=True):
    """The encoding of the user's audio."""

    encoding: Text = ""


class StreamStart(msgspec.Struct, frozen=True):
    """The IDs of a stream, under the names of each carrier."""

    callSid: Text = ""  # noqa: N815 (Twilio's name)
    call_control_id: Text = ""
    """Telnyx's name."""

    callId: Text = ""  # noqa: N815 (Plivo's name, as the next one)
    streamId: Text = ""  # noqa: N815
    media_format: MediaFormat = MediaFormat()


class Media(msgspec.Struct, frozen=True):
    """A piece of audio."""

    payload: str
    track: str = "inbound"
    chunk: int | Text = 0
    """The number of the piece; some carriers send it as a text."""


class _Dtmf(msgspec.Struct, frozen=True):
    digit: Text


class _Mark(msgspec.Struct, frozen=True):
    name: Text


class CarrierMessage(msgspec.Struct, frozen=True):
    """Any message of a carrier: `event` names the field that the message has."""

    event: Text
    streamSid: Text = ""  # noqa: N815 (Twilio's name)
    name: Text = ""
    start: StreamStart | None = None
    media: Media | None = None
    dtmf: _Dtmf | None = None
    mark: _Mark | None = None


_DECODER: Final = msgspec.json.Decoder(CarrierMessage)


class JsonStreamSerializer(ABC):
    """Implements `StreamSerializer` except for the IDs in `start` and the events that only one carrier has."""

    queue_ms = None

    STREAM_FIELD = ""
    """The field of the stream's ID in messages to the carrier; empty: there is none."""

    def __init__(self) -> None:
        self.stream_id = ""
        self._is_started = False

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return the event of a message."""
        try:
            return self._event(_DECODER.decode(raw))
        except (ValueError, RecursionError):  # not JSON, not UTF-8, another shape, or no base64
            return IgnoredMessage(is_invalid=True)

    def _event(self, message: CarrierMessage) -> StreamEvent:
        match message:
            case CarrierMessage(event="media", media=Media() as media):
                return self.media_event(media) if media.track == "inbound" else IgnoredMessage()
            case CarrierMessage(event="dtmf", dtmf=_Dtmf(digit=digit)) if digit in DIGITS:
                return DigitPressed(digit)
            case CarrierMessage(event="mark", mark=_Mark(name=name)):
                return MarkPlayed(name)
            case CarrierMessage(event="start", start=StreamStart() as start) if not self._is_started:
                return self._start_event(message, start)
            case CarrierMessage(event="stop"):
                return StreamStopped()
        return self.other_event(message)

    def media_event(self, media: Media) -> StreamEvent:
        """Return the user's audio in a `media` message."""
        return AudioReceived(decode_base64(media.payload))

    def _start_event(self, message: CarrierMessage, start: StreamStart) -> StreamEvent:
        call_id, self.stream_id = self.ids(message, start)
        self._is_started = bool(call_id)
        return StreamStarted(call_id=call_id) if call_id else IgnoredMessage(is_invalid=True)

    @abstractmethod
    def ids(self, message: CarrierMessage, start: StreamStart) -> tuple[str, str]:
        """Return the IDs of the call and of the stream in a `start` message; an empty ID of the call: it is invalid."""

    def other_event(self, message: CarrierMessage) -> StreamEvent:
        """Return the event of a message that only some carriers send."""
        return IgnoredMessage(is_invalid=message.event != "connected")

    def message(self, event: str, **fields: Any) -> bytes:
        """Return a message to the carrier."""
        stream = {self.STREAM_FIELD: self.stream_id} if self.STREAM_FIELD else {}
        return msgspec.json.encode({"event": event, **stream, **fields})

    def audio(self, audio: bytes) -> Sequence[bytes]:
        """Return a `media` message."""
        return (self.message("media", media={"payload": b64encode(audio).decode()}),)

    def flush(self) -> Sequence[bytes]:
        """Return no messages: `audio` buffers nothing."""
        return ()

    def mark(self, name: str) -> Sequence[bytes]:
        """Return a `mark` message."""
        return (self.message("mark", mark={"name": name}),)

    def clear(self) -> bytes:
        """Return a `clear` message."""
        return self.message("clear")


def decode_base64(payload: str) -> bytes:
    """Return the bytes of a base64 text.

    Raises:
        ValueError: the text is no base64.
    """
    try:
        return b64decode(payload, validate=True)
    except binascii.Error as why:
        raise ValueError("expected base64") from why
