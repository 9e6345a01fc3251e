"""`POST /v1/audio/transcriptions`: the form's fields, read and checked, and the answers in every published format.

Source: OpenAI API reference, "Create transcription", "The transcription object (verbose)", `transcript.text.delta` and
`transcript.text.done`; SubRip as its readers accept it; W3C WebVTT, 4.1. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec

from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import JsonObject, missing, number, one_of, text, wrong_value

AnswerFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]

IGNORED: Final = ("chunking_strategy",)
"""Where speech is cut changes no word of a good answer; long speech is always cut where it is quiet."""

REFUSED: Final = (
    "include",
    "known_speaker_names",
    "known_speaker_references",
    "keywords",
    "languages",
)
"""Fields that would change the answer and are not supported."""

KNOWN: Final = ("model", "language", "prompt", "response_format", "temperature", "stream", "timestamp_granularities")

MOST_PROMPT_CHARS: Final = 4_096
MOST_NAME_CHARS: Final = 256

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionRequest:
    """One request without its file."""

    model: str
    language: str | None
    prompt: str | None
    temperature: float | None
    format: AnswerFormat
    stream: bool
    ignored: tuple[str, ...]
    """The fields that were given and have no effect."""


@dataclass(frozen=True, slots=True)
class TranscriptPiece:
    """A stretch of the audio and its words."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The whole transcript."""

    pieces: Sequence[TranscriptPiece]
    duration_s: float
    language: str | None
    """BCP-47; None: unknown."""

    @property
    def text(self) -> str:
        """Return all words."""
        return " ".join(piece.text for piece in self.pieces)


def read_transcription_fields(form: Mapping[str, Sequence[str]]) -> TranscriptionRequest:
    """Read the form's fields, each with all its values; `name[]` is written `name`.

    Raises:
        ProtocolError: a field is missing, wrong, unknown or not supported; `field` names it.
    """
    for name in form:
        if name in REFUSED:
            raise ProtocolError(
                f"This server can't honour {name!r}. Leave it out.", field=name, code="unsupported_parameter"
            )
        if name not in KNOWN and name not in IGNORED:
            raise ProtocolError(f"Unknown field {name[:64]!r}.", field=name[:64], code="unknown_parameter")
    values = {name: values[-1] for name, values in form.items() if values and values[-1]}
    response_format = one_of(values.get("response_format", "json"), "response_format", get_args(AnswerFormat))
    stream = one_of(values.get("stream", "false").lower(), "stream", ("true", "false")) == "true"
    if stream and response_format not in ("json", "text"):
        raise wrong_value("response_format", '"json" or "text", since stream is true', response_format)
    if "word" in form.get("timestamp_granularities", ()):
        why = "This server has no times of words. Request segments."
        raise ProtocolError(why, field="timestamp_granularities", code="unsupported_parameter")
    for granularity in form.get("timestamp_granularities", ()):
        one_of(granularity, "timestamp_granularities", ("segment", "word"))
    if "model" not in values:
        raise missing("model", "the name of a model")
    return TranscriptionRequest(
        model=text(values["model"], "model", max_chars=MOST_NAME_CHARS),
        language=_optional(values, "language", MOST_NAME_CHARS),
        prompt=_optional(values, "prompt", MOST_PROMPT_CHARS),
        temperature=_temperature(values.get("temperature")),
        format=response_format,
        stream=stream,
        ignored=tuple(name for name in IGNORED if name in values),
    )


def _optional(values: Mapping[str, str], name: str, max_chars: int) -> str | None:
    return text(values[name], name, max_chars=max_chars) if name in values else None


def _temperature(written: str | None) -> float | None:
    if written is None:
        return None
    try:
        value: Any = float(written)
    except ValueError:
        value = written
    return number(value, "temperature", low=0, high=1)


# --- answers --------------------------------------------------------------------------------------


UNDETERMINED: Final = "und"
"""The language of a transcript whose transcriber names none (ISO 639-2)."""


def whole_answer(transcript: Transcript, response_format: AnswerFormat, ours: JsonObject) -> tuple[str, bytes]:
    """Return the answer in one piece: its content type and its body. `ours` is added to the 2 JSON formats."""
    match response_format:
        case "json":
            plain: JsonObject = {"text": transcript.text, "usage": _usage(transcript)}
            return "application/json", _encode(plain | {"voicepipe": ours})
        case "verbose_json":
            return "application/json", _encode(_verbose(transcript) | {"voicepipe": ours})
        case "text":
            return "text/plain", f"{transcript.text}\n".encode()
        case "srt":
            return "application/x-subrip", _srt(transcript.pieces).encode()
        case "vtt":
            return "text/vtt", _vtt(transcript.pieces).encode()


def text_delta(delta: str) -> bytes:
    """Return more of the text, as a server-sent event."""
    return b"data: " + _encode({"type": "transcript.text.delta", "delta": delta}) + b"\n\n"


def text_done(transcript: Transcript, ours: JsonObject) -> bytes:
    """Return the final event of a transcript."""
    done: JsonObject = {"type": "transcript.text.done", "text": transcript.text, "usage": _usage(transcript)}
    return b"data: " + _encode(done | {"voicepipe": ours}) + b"\n\n"


def _usage(transcript: Transcript) -> JsonObject:
    """Return the published variant of `usage` for models that charge for the duration of the audio."""
    return {"type": "duration", "seconds": round(transcript.duration_s, 3)}


def _verbose(transcript: Transcript) -> JsonObject:
    return {
        "task": "transcribe",
        "language": transcript.language or UNDETERMINED,
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
        "segments": [_segment(n, piece) for n, piece in enumerate(transcript.pieces)],
        "usage": _usage(transcript),
    }


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
    cues = (f"{n}\n{_cue(piece, ',')}\n" for n, piece in enumerate(pieces, 1))
    return "\n".join(cues)


def _vtt(pieces: Iterable[TranscriptPiece]) -> str:
    return "\n".join(("WEBVTT\n", *(f"{_cue(piece, '.')}\n" for piece in pieces)))


def _cue(piece: TranscriptPiece, point: str) -> str:
    # An arrow in the words would be read as a timing arrow.
    return f"{_time(piece.start_s, point)} --> {_time(piece.end_s, point)}\n{piece.text.replace('-->', '->')}"


def _time(at_s: float, point: str) -> str:
    minutes, ms = divmod(round(1_000 * at_s), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{ms // 1_000:02}{point}{ms % 1_000:03}"
