"""The events of OpenAI's Realtime transcription, both ways.

Source: OpenAI API reference, "Realtime": client events `input_audio_buffer.*`, server events `input_audio_buffer.*`,
`conversation.item.input_audio_transcription.*` and `error`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
import pybase64

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.net.ws import VendorSocket
from voicepipe.providers.stt.commit_assembler import Committed, Partial, TranscriptPart
from voicepipe.providers.stt.manual_commit import PaddedSegment

COMMIT: Final = '{"type":"input_audio_buffer.commit"}'
CLEAR: Final = '{"type":"input_audio_buffer.clear"}'

MIN_MS: Final = 120
"""A commit of less than 100 ms is refused (`input_audio_buffer_commit_empty`)."""

STATUS: Final = {
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
}
"""The HTTP status that matches an error's code. Unverified for this WebSocket: the codes are those of the API."""

EXPIRED: Final = "session_expired"
"""The code of the error of a session at its maximum age. Unverified: reported by others ("Your session hit the maximum
duration of 60 minutes")."""

ITEMS: Final = 64
"""Maximum number of items whose texts are buffered."""


def append(pcm: bytes) -> str:
    """Return the event that carries more audio."""
    return f'{{"type":"input_audio_buffer.append","audio":"{pybase64.b64encode_as_string(pcm)}"}}'


class _Language(msgspec.Struct):
    code: str = ""


class _Event(msgspec.Struct):
    type: str
    item_id: str = ""
    delta: str | None = None
    transcript: str = ""
    text: str = ""
    languages: list[_Language] | None = None


_event = msgspec.json.Decoder(_Event)


def event_of(address: ProviderAddress, message: str | bytes) -> _Event:
    """Return the event of a message.

    Raises:
        StageError: it is an error, or no event.
    """
    event = decoded(address, _event, message)
    if event.type == "error" or event.type.endswith(".failed"):
        raise failure(address, message.encode() if isinstance(message, str) else message)
    return event


class _Error(msgspec.Struct):
    code: str | None = None


class _Failed(msgspec.Struct):
    error: _Error | str = ""


def failure(address: ProviderAddress, event: bytes) -> StageError:
    """Return the stage error for an error event."""
    try:
        error = msgspec.json.decode(event, type=_Failed).error
    except msgspec.DecodeError:
        error = ""
    code = error.code if isinstance(error, _Error) else None
    if code == EXPIRED:
        return failures.expired(address, failures.vendor_words(event))
    if code in STATUS:
        return failures.refused(address, STATUS[code], event)
    return failures.in_band(address, event)


class OpenAiWire:
    """The events of one stream. Items may be reported in another order than that of their commits."""

    def __init__(self, address: ProviderAddress, socket: VendorSocket) -> None:
        self._address = address
        self._segment = PaddedSegment(socket, MIN_MS)
        # Full: the oldest would be dropped, but no vendor has left this number unanswered.
        self._order: deque[str] = deque(maxlen=ITEMS)
        """The items that are committed and not completed, or not yet reported."""

        self._texts: dict[str, str] = {}
        self._done: dict[str, Committed] = {}

    def audio(self, audio: bytes) -> None:
        self._segment.send(audio)

    def commit(self) -> None:
        self._segment.end(COMMIT)

    def discard(self) -> bool:
        self._segment.end_unpadded(CLEAR)
        return False

    def read(self, message: str | bytes) -> Sequence[TranscriptPart]:
        """Vendors add event types without notice: an unknown type is ignored."""
        event = event_of(self._address, message)
        match event.type:
            case "input_audio_buffer.committed":
                self._order.append(event.item_id)
            case "conversation.item.input_audio_transcription.delta":
                return self._delta(event.item_id, event.delta or "")
            case "conversation.item.input_audio_transcription.completed":
                return self._completed(event)
            case "input_audio_buffer.cleared":
                self._texts = {item: text for item, text in self._texts.items() if item in self._order}
        return ()

    def _delta(self, item: str, delta: str) -> Sequence[TranscriptPart]:
        self._texts[item] = self._texts.get(item, "") + delta
        if self._order and self._order[0] != item:
            return ()
        return (Partial(self._texts[item].strip()),)

    def _completed(self, event: _Event) -> Sequence[TranscriptPart]:
        item, languages = event.item_id, event.languages
        if item not in self._order:
            self._order.append(item)
        self._done[item] = Committed(event.transcript.strip(), languages[0].code or None if languages else None)
        done: list[TranscriptPart] = []
        while self._order and self._order[0] in self._done:
            first = self._order.popleft()
            self._texts.pop(first, None)
            done.append(self._done.pop(first))
        return done
