"""AssemblyAI's streaming messages, `/v3/ws`, as segments.

Source: AssemblyAI docs, "Message Sequence" (Begin, SpeechStarted, Turn, Termination), "Common session errors and
closures" (Error), "Streaming Diarization and Multichannel" (speakers), and its api-spec repository for the fields of a
`Turn`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.stt.segment_assembler import Segment, Word

FORCE_ENDPOINT = '{"type":"ForceEndpoint"}'
TERMINATE = '{"type":"Terminate"}'

STATUSES: Final = {1008: 401, 3006: 400, 3009: 429}
"""The HTTP statuses that match errors: not authorized; an invalid message; too many sessions. The others are temporary:
3005 a vendor fault, 3007 audio too fast."""

EXPIRED: Final = 3008
"""The session has reached its maximum age."""


UNKNOWN_SPEAKER: Final = "UNKNOWN"
"""The label of speech that is too short to have a speaker assigned."""


class _Word(msgspec.Struct):
    text: str
    start: int
    end: int
    speaker: str | None = None


class _Message(msgspec.Struct):
    type: str
    turn_order: int = 0
    transcript: str = ""
    utterance: str = ""
    end_of_turn: bool = False
    end_of_turn_confidence: float | None = None
    words: list[_Word] = []
    language_code: str | None = None
    speaker_label: str | None = None
    error_code: int = 0
    error: str = ""


_message = msgspec.json.Decoder(_Message)


class Turns:
    """The turns of one stream. Each message has the whole text of its turn; words are never revised."""

    def __init__(self, address: ProviderAddress, rate_hz: int) -> None:
        self._address, self._samples_per_ms = address, rate_hz // 1_000
        self._turn = self._start = self._end = 0
        self._speaking = self._ended = False

    @property
    def idle(self) -> bool:
        """Whether no turn is in progress, so that there is none to end."""
        return not self._speaking

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        """Return the segment of a message; None for a message without one.

        Vendors add message types without notice: an unknown type is ignored.

        Raises:
            StageError: it is an error, or not a message.
        """
        read = decoded(self._address, _message, message)
        match read.type:
            case "Turn":
                return self._segment(read)
            case "SpeechStarted":
                self._speaking = True
                return None
            case "Error":
                raise _failure(self._address, read)
            case _:
                return None

    def _segment(self, read: _Message) -> Segment:
        if read.turn_order != self._turn:
            self._turn, self._start, self._ended = read.turn_order, self._end, False
        words = tuple(self._word(word, read) for word in read.words)
        self._end = max(self._end, words[-1].end if words else 0)
        # A turn that has ended may be sent again, with commas and capitals: that answers no flush.
        ends = read.end_of_turn and not self._ended
        self._ended = self._ended or read.end_of_turn
        self._speaking = not self._ended and (self._speaking or bool(words))
        return Segment(
            start=self._start,
            end=self._end,
            # The transcript lacks the latest word until it is final.
            text=read.transcript if read.end_of_turn else " ".join(word.text for word in words),
            words=words,
            # An utterance is sent when the user has paused, before the turn is certainly over.
            final=read.end_of_turn or bool(read.utterance),
            speech_ended=read.end_of_turn or bool(read.utterance),
            requested=ends,
            end_probability=read.end_of_turn_confidence if ends else None,
            language=read.language_code,
        )

    def _word(self, word: _Word, turn: _Message) -> Word:
        speaker = word.speaker or turn.speaker_label
        start, end = word.start * self._samples_per_ms, word.end * self._samples_per_ms
        return Word(start, end, word.text, None if speaker == UNKNOWN_SPEAKER else speaker)


def _failure(address: ProviderAddress, error: _Message) -> StageError:
    if status := STATUSES.get(error.error_code):
        return failures.refused(address, status, msgspec.json.encode({"message": error.error}))
    if error.error_code == EXPIRED:
        return failures.expired(address, error.error)
    words = failures.quote(address, error.error) or "no reason"
    return failures.broken(address, f"the vendor ended its stream with an error ({error.error_code}: {words})")
