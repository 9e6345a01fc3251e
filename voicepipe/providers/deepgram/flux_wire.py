"""Convert Flux's messages (`/v2/listen`) to segments.

Sources: Deepgram API reference, "Turn-based Audio (Flux)" (Connected, TurnInfo, Error); "Understanding the Flux State
    Machine". Deepgram's Python client has the times of words, `Warning` and `ForceEndTurn`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.stt.segment_assembler import Segment, Word

FORCE_END_TURN = '{"type":"ForceEndTurn"}'
CLOSE_STREAM = '{"type":"CloseStream"}'

INTERIM_DELAY_S: Final = 0.4
"""Maximum delay from a spoken word to the text with it, unverified: an earlier empty text does not mean silence."""

_ENDS = ("EagerEndOfTurn", "EndOfTurn")


class _Word(msgspec.Struct):
    word: str
    start: float | None = None
    end: float | None = None


class _Message(msgspec.Struct):
    type: str
    event: str = ""
    turn_index: int = 0
    audio_window_end: float = 0.0
    transcript: str = ""
    end_of_turn_confidence: float | None = None
    words: list[_Word] = []
    languages: list[str] = []
    trigger: str = ""
    code: str = ""
    description: str = ""


_message = msgspec.json.Decoder(_Message)


class Turns:
    """The turns of one stream. Each message has the whole text of its turn, and the position up to which Flux has
    transcribed."""

    def __init__(self, address: ProviderAddress, rate_hz: int) -> None:
        self._address, self._rate_hz = address, rate_hz
        self._turn = self._start = self._end = 0
        self._speaking = False

    @property
    def idle(self) -> bool:
        """Whether no turn is in progress: `ForceEndTurn` would be ignored."""
        return not self._speaking

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        """Return the segment of a message; None for a message without one.

        Vendors add message types without notice: an unknown type is ignored.

        Raises:
            StageError: it is an error, or not a message.
        """
        read = decoded(self._address, _message, message)
        match read.type:
            case "TurnInfo":
                return self._segment(read)
            case "Error":
                raise _failure(self._address, read)
            case _:
                return None

    def _segment(self, read: _Message) -> Segment:
        if read.turn_index != self._turn:
            self._turn, self._start = read.turn_index, self._end
        end = self._end = max(self._end, round(read.audio_window_end * self._rate_hz))
        if read.event == "EndOfTurn":
            self._speaking = False
        elif read.event == "StartOfTurn" or read.transcript:
            self._speaking = True
        if not read.transcript:
            end -= round(INTERIM_DELAY_S * self._rate_hz)
        return Segment(
            start=self._start,
            end=end,
            text=read.transcript.strip(),
            words=self._words(read.words),
            # After an end that is only expected, either the end has the same text, or it is withdrawn first
            # ("TurnResumed").
            final=read.event in _ENDS,
            speech_ended=read.event in _ENDS,
            # While the user speaks it is of the words before the last ones, so that it is low for no reason.
            end_probability=read.end_of_turn_confidence if read.event in _ENDS else None,
            complete=True,
            requested=read.trigger == "manual",
            language=read.languages[0] if read.languages else None,
        )

    def _words(self, words: list[_Word]) -> tuple[Word, ...]:
        """Return the words' positions; none if any word has none."""
        timed = [
            Word(round(w.start * self._rate_hz), round(w.end * self._rate_hz), w.word)
            for w in words
            if w.start is not None and w.end is not None
        ]
        return tuple(timed) if len(timed) == len(words) else ()


def _failure(address: ProviderAddress, error: _Message) -> StageError:
    words = failures.quote(address, error.description or error.code) or "no reason"
    return failures.broken(address, f"the vendor ended its stream with an error ({words})")
