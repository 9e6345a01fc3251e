"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: the form's fields, read and checked.

Source: OpenAI API reference, "Create transcription" and "Create translation". No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from msgspec import Struct

from voicepipe.errors import ProtocolError
from voicepipe.protocol.audio_rest_transcript import AnswerFormat, TranscriptFormat
from voicepipe.protocol.json_fields import missing, number, one_of, text, wrong_value

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

TRANSLATION_KNOWN: Final = ("model", "language", "prompt", "response_format", "temperature")

MAX_PROMPT_CHARS: Final = 4_096
MAX_NAME_CHARS: Final = 256


class TranscriptionRequest(Struct, frozen=True, kw_only=True):
    """One request without its file."""

    model: str
    language: str | None
    prompt: str | None
    temperature: float | None
    format: TranscriptFormat
    stream: bool
    granularities: frozenset[str] = frozenset({"segment"})
    """What `verbose_json` has times of: `segment`, `word`."""

    ignored: tuple[str, ...]
    """The fields that were given and have no effect."""


def read_transcription_fields(form: Mapping[str, Sequence[str]]) -> TranscriptionRequest:
    """Read the form's fields, each with all its values; `name[]` is written `name`.

    Raises:
        ProtocolError: a field is missing, wrong, unknown or not supported; `field` names it.
    """
    _check_names(form, KNOWN + IGNORED)
    values = _last_values(form)
    response_format: TranscriptFormat = one_of(
        values.get("response_format", "json"), "response_format", get_args(TranscriptFormat)
    )
    stream = one_of(values.get("stream", "false").lower(), "stream", ("true", "false")) == "true"
    if stream and response_format not in ("json", "text", "diarized_json"):
        raise wrong_value("response_format", '"json", "text" or "diarized_json", since stream is true', response_format)
    return TranscriptionRequest(
        model=_model(values),
        language=_optional(values, "language", MAX_NAME_CHARS),
        prompt=_optional(values, "prompt", MAX_PROMPT_CHARS),
        temperature=_temperature(values.get("temperature")),
        format=response_format,
        stream=stream,
        granularities=_granularities(form, response_format),
        ignored=tuple(name for name in IGNORED if name in values),
    )


def read_translation_fields(form: Mapping[str, Sequence[str]]) -> TranscriptionRequest:
    """Read the form's fields of a translation, likewise. `language`, which is not published, is that of the speech.

    Raises:
        ProtocolError: as above.
    """
    _check_names(form, TRANSLATION_KNOWN)
    values = _last_values(form)
    return TranscriptionRequest(
        model=_model(values),
        language=_optional(values, "language", MAX_NAME_CHARS),
        prompt=_optional(values, "prompt", MAX_PROMPT_CHARS),
        temperature=_temperature(values.get("temperature")),
        format=_format(values),
        stream=False,
        ignored=(),
    )


def _check_names(form: Mapping[str, Sequence[str]], known: Sequence[str]) -> None:
    for name in form:
        if name in known:
            continue
        if name in REFUSED:
            raise ProtocolError(
                f"This server can't honour {name!r}. Leave it out.", field=name, code="unsupported_parameter"
            )
        raise ProtocolError(f"Unknown field {name[:64]!r}.", field=name[:64], code="unknown_parameter")


def _last_values(form: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: values[-1] for name, values in form.items() if values and values[-1]}


def _model(values: Mapping[str, str]) -> str:
    if "model" not in values:
        raise missing("model", "the name of a model")
    return text(values["model"], "model", max_chars=MAX_NAME_CHARS)


def _format(values: Mapping[str, str]) -> AnswerFormat:
    return one_of(values.get("response_format", "json"), "response_format", get_args(AnswerFormat))


def _granularities(form: Mapping[str, Sequence[str]], response_format: TranscriptFormat) -> frozenset[str]:
    given = form.get("timestamp_granularities", ())
    granularities = frozenset(one_of(each, "timestamp_granularities", ("segment", "word")) for each in given)
    if "word" in granularities and response_format != "verbose_json":
        raise wrong_value("response_format", '"verbose_json", for times of words', response_format)
    return granularities or frozenset({"segment"})


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
