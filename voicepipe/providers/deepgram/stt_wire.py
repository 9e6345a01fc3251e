"""Deepgram's live messages, `/v1/listen`, as plain values.

Source: Deepgram API reference, "Live Audio" (Results, Metadata, UtteranceEnd, SpeechStarted), and its own clients for
the shape of an `Error`, which the reference lacks.
"""

from __future__ import annotations

import msgspec

from voicepipe.errors import StageError
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.stt.segment_assembler import Segment, Word

FINALIZE = '{"type":"Finalize"}'
KEEP_ALIVE = '{"type":"KeepAlive"}'
CLOSE_STREAM = '{"type":"CloseStream"}'


class _Kind(msgspec.Struct):
    type: str


class _Word(msgspec.Struct):
    word: str
    start: float
    end: float
    punctuated_word: str | None = None
    speaker: int | None = None


class _Alternative(msgspec.Struct):
    transcript: str
    words: list[_Word] = []
    languages: list[str] = []


class _Channel(msgspec.Struct):
    alternatives: list[_Alternative]


class _Results(msgspec.Struct):
    channel: _Channel
    start: float
    duration: float
    is_final: bool = False
    speech_final: bool = False
    from_finalize: bool = False


class _Error(msgspec.Struct):
    description: str = ""
    message: str = ""
    err_msg: str = ""


_kind = msgspec.json.Decoder(_Kind)
_results = msgspec.json.Decoder(_Results)
_error = msgspec.json.Decoder(_Error)


def read(address: ProviderAddress, message: str | bytes, rate_hz: int) -> Segment | None:
    """Return the segment of a message, positions in samples at `rate_hz`; None for a message without one.

    Vendors add message types without notice: an unknown type is ignored.

    Raises:
        StageError: it is an error, or not a message.
    """
    match decoded(address, _kind, message).type:
        case "Results":
            return _segment(decoded(address, _results, message), rate_hz)
        case "Error":
            raise _failure(address, decoded(address, _error, message))
        case _:
            return None


def _segment(results: _Results, rate_hz: int) -> Segment:
    best = results.channel.alternatives[0] if results.channel.alternatives else _Alternative("")
    return Segment(
        start=round(results.start * rate_hz),
        end=round((results.start + results.duration) * rate_hz),
        text=best.transcript.strip(),
        words=tuple(_word(word, rate_hz) for word in best.words),
        final=results.is_final,
        speech_ended=results.speech_final,
        requested=results.from_finalize,
        language=best.languages[0] if best.languages else None,
    )


def _word(word: _Word, rate_hz: int) -> Word:
    speaker = None if word.speaker is None else str(word.speaker)
    return Word(round(word.start * rate_hz), round(word.end * rate_hz), word.punctuated_word or word.word, speaker)


def _failure(address: ProviderAddress, error: _Error) -> StageError:
    words = failures.quote(address, error.description or error.message or error.err_msg) or "no reason"
    return failures.broken(address, f"the vendor ended its stream with an error ({words})")
