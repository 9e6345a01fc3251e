"""A transcript or a translation of a recording, in every published format.

Source: OpenAI API reference, "The transcription object (verbose)", "The transcription object (diarized)", "The
translation object (verbose)", `transcript.text.delta`, `transcript.text.segment` and `transcript.text.done`; SubRip as
its readers accept it; W3C WebVTT, 4.1. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from voicepipe.audio.timed_words import TimedWord
from voicepipe.protocol.audio_rest_diarized import SpeakerSegment
from voicepipe.protocol.json_fields import JsonObject

AnswerFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
"""The formats of a translation."""

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
"""The formats of a transcript."""

_encode: Final = msgspec.json.Encoder().encode


class TranscriptPiece(msgspec.Struct, frozen=True):
    """A stretch of the audio and its words."""

    start_s: float
    end_s: float
    text: str
    language: str | None = None
    """BCP-47; None: unknown."""

    words: tuple[TimedWord, ...] = ()
    """Its words with their times in the recording, where they were requested."""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The whole transcript."""

    pieces: Sequence[TranscriptPiece]
    duration_s: float
    language: str | None
    """BCP-47; None: unknown."""

    task: Literal["transcribe", "translate"] = "transcribe"
    segments: Sequence[SpeakerSegment] = ()
    """The stretches of its speakers, where they were requested."""

    with_words: bool = False
    """Whether `verbose_json` has the times of words."""

    with_pieces: bool = True
    """Whether `verbose_json` has the pieces, as its segments."""

    @property
    def text(self) -> str:
        """Return all words."""
        return " ".join(piece.text for piece in self.pieces)


UNDETERMINED: Final = "und"
"""The language of a transcript whose transcriber names none (ISO 639-2)."""


def whole_answer(transcript: Transcript, response_format: TranscriptFormat, extension: JsonObject) -> tuple[str, bytes]:
    """Return the answer in one piece: its content type and its body. `extension` is added to the 3 JSON formats."""
    match response_format:
        case "json":
            plain: JsonObject = {"text": transcript.text}
            return "application/json", _encode(plain | _usage(transcript) | {"voicepipe": extension})
        case "verbose_json":
            return "application/json", _encode(_verbose(transcript) | {"voicepipe": extension})
        case "diarized_json":
            return "application/json", _encode(_diarized(transcript) | {"voicepipe": extension})
        case "text":
            return "text/plain", f"{transcript.text}\n".encode()
        case "srt":
            return "application/x-subrip", _srt(transcript.pieces).encode()
        case "vtt":
            return "text/vtt", _vtt(transcript.pieces).encode()


def text_delta(delta: str, segment_id: str | None = None) -> bytes:
    """Return more of the text, as a server-sent event; `segment_id`: of the speaker's segment."""
    event: JsonObject = {"type": "transcript.text.delta", "delta": delta}
    return _event(event if segment_id is None else event | {"segment_id": segment_id})


def segment_done(segment: SpeakerSegment) -> bytes:
    """Return a speaker's segment, as a server-sent event."""
    return _event(_speaker_segment(segment))


def text_done(transcript: Transcript, extension: JsonObject) -> bytes:
    """Return the final event of a transcript."""
    done: JsonObject = {"type": "transcript.text.done", "text": transcript.text}
    return _event(done | _usage(transcript) | {"voicepipe": extension})


def _event(event: JsonObject) -> bytes:
    return b"data: " + _encode(event) + b"\n\n"


def _usage(transcript: Transcript) -> JsonObject:
    """Return the published variant of `usage` for models that charge for the duration of the audio. A translation has
    no such field.
    """
    if transcript.task == "translate":
        return {}
    return {"usage": {"type": "duration", "seconds": round(transcript.duration_s, 3)}}


def _verbose(transcript: Transcript) -> JsonObject:
    verbose: JsonObject = {
        "task": transcript.task,
        "language": transcript.language or UNDETERMINED,
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
    }
    if transcript.with_pieces:
        verbose["segments"] = [_segment(n, piece) for n, piece in enumerate(transcript.pieces)]
    if transcript.with_words:
        verbose["words"] = [_word(word) for piece in transcript.pieces for word in piece.words]
    return verbose | _usage(transcript)


def _diarized(transcript: Transcript) -> JsonObject:
    diarized: JsonObject = {
        "task": transcript.task,
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
        "segments": [_speaker_segment(segment) for segment in transcript.segments],
    }
    return diarized | _usage(transcript)


def _speaker_segment(segment: SpeakerSegment) -> JsonObject:
    return {
        "type": "transcript.text.segment",
        "id": segment.id,
        "start": round(segment.start_s, 3),
        "end": round(segment.end_s, 3),
        "text": segment.text,
        "speaker": segment.speaker,
    }


def _word(word: TimedWord) -> JsonObject:
    return {"word": word.text, "start": round(word.start_s, 3), "end": round(word.end_s, 3)}


_INTERNALS: Final[JsonObject] = {
    "seek": 0,
    "tokens": [],
    "temperature": 0.0,
    "avg_logprob": 0.0,
    "compression_ratio": 1.0,
    "no_speech_prob": 0.0,
}


def _segment(n: int, piece: TranscriptPiece) -> JsonObject:
    """Return a segment. The published fields on one model's internals have the values that change nothing: other
    transcribers do not report them, and clients calculate with them.
    """
    known = {"id": n, "start": round(piece.start_s, 3), "end": round(piece.end_s, 3), "text": piece.text}
    return known | _INTERNALS


def _srt(pieces: Iterable[TranscriptPiece]) -> str:
    cues = (f"{n}\n{_cue(piece, ',', piece.text)}\n" for n, piece in enumerate(pieces, 1))
    return "\n".join(cues)


def _vtt(pieces: Iterable[TranscriptPiece]) -> str:
    # "<" would begin a tag, and "&" a character reference (W3C WebVTT, 6.4): what follows would not be shown.
    cues = (f"{_cue(piece, '.', piece.text.replace('&', '&amp;').replace('<', '&lt;'))}\n" for piece in pieces)
    return "\n".join(("WEBVTT\n", *cues))


def _cue(piece: TranscriptPiece, point: str, text: str) -> str:
    # An arrow in the words would be read as a timing arrow, and an empty line as the end of the cue.
    lines = "\n".join(line for line in text.replace("-->", "->").splitlines() if line.strip())
    return f"{_time(piece.start_s, point)} --> {_time(piece.end_s, point)}\n{lines}"


def _time(at_s: float, point: str) -> str:
    minutes, ms = divmod(round(1_000 * at_s), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{ms // 1_000:02}{point}{ms % 1_000:03}"
