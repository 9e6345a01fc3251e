"""Speech to text by AssemblyAI's streaming models over `/v3/ws`, which detect the end of a turn themselves.

All audio of the session is sent. The core keeps deciding on turns: the vendor's end of turn becomes a final text. A
flush makes the vendor end its turn at once (`ForceEndpoint`), which costs nothing, since its texts are never revised.
Sources: AssemblyAI docs, "Streaming API", "Message Sequence", "Turn detection", "Common session errors and closures",
and its api-spec repository; its own and Pipecat's clients for the parameters of the query. Facts marked `unverified`
are in none of them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec

from voicepipe.audio.encoding import MULAW, AudioEncoding, FormatName
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.assemblyai import stt_wire as wire
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.options import Read, json_object, number, query, read, whole
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.stt.continuous_stream import StreamRules, continuous_stream
from voicepipe.providers.stt.encodings import Encodings, telephone_of
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.segment_assembler import Margins
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

RATE_HZ: Final = 16_000
"""The models' sample rate; a higher one only costs upload."""

ENCODINGS: Final[Encodings] = {None: AudioEncoding(RATE_HZ), "audio/pcmu": MULAW}
"""It has no A-law."""

NAMES: Final[dict[FormatName, str]] = {"audio/pcm": "pcm_s16le", "audio/pcmu": "pcm_mulaw"}
"""The vendor's names of encodings. Source: `Encoding` in its own clients."""

EITHER: Final = "universal-streaming"
"""An alias: the English model for English, and the multilingual one otherwise."""

KEY_TERMS: Final = 50
"""A limit of this adapter; the vendor takes 100, unverified."""

LINE: Final = SocketRules(
    buffer_ms=30_000,
    min_ms=50,  # "Input duration violation", 3007: messages of 50 to 1000 ms are taken, and 50 advised
    farewell=wire.TERMINATE,  # an unended session is billed until it expires
)

FORCED_MS: Final = 400
"""Timeout of `ForceEndpoint` while the vendor detects no speech. Unverified: without a turn the vendor probably ignores
it."""

FIRST_FORCED_MS: Final = 1_500
"""Timeout of `ForceEndpoint` while the utterance has no text."""

LIFETIME_MS: Final = (3 * 60 - 5) * 60_000
"""A session expires after three hours; it is ended between two utterances in the last five minutes of them."""

READERS: Final[dict[str, Read]] = {
    "end_of_turn_confidence": number(0.0, 1.0),
    "min_turn_silence_ms": whole(0, 10_000, "milliseconds"),
    "max_turn_silence_ms": whole(0, 60_000, "milliseconds"),
    "extra": json_object(str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyAiOptions:
    """Options below `[providers.NAME.options]`."""

    end_of_turn_confidence: float = 0.4
    """The vendor's confidence needed to end a turn. 0.4 is its own default; 1 leaves the end to silence."""

    min_turn_silence_ms: int = 160
    """The silence that the vendor waits for when it is confident."""

    max_turn_silence_ms: int = 1_280
    """The silence after which the vendor ends its turn at any confidence. 1280 is its own default."""

    extra: str = ""
    """A JSON object of strings, added to the query: `{"format_turns": "true"}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> AssemblyAiOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        return cls(**read("assemblyai", READERS, spec, settings, stage="stt"))

    def query(self, transcription: TranscriptionOptions) -> str:
        """Return the query after `/ws?`. Source: AssemblyAI API reference, "Streaming API"."""
        model, encoding = _model(transcription), ENCODINGS[transcription.telephone]
        pairs = [
            ("speech_model", model),
            ("sample_rate", str(encoding.rate_hz)),
            ("encoding", NAMES[encoding.name]),
            ("end_of_turn_confidence_threshold", f"{self.end_of_turn_confidence:g}"),
            ("min_turn_silence", str(self.min_turn_silence_ms)),
            ("max_turn_silence", str(self.max_turn_silence_ms)),
        ]
        if model.startswith(EITHER):  # later models format text without this option
            pairs.append(("format_turns", "false"))
        if model.endswith("-multilingual"):
            pairs.append(("language_detection", "true"))
        if transcription.speakers:
            pairs.append(("speaker_labels", "true"))
        if expected := terms(transcription.prompt, KEY_TERMS):
            pairs.append(("keyterms_prompt", msgspec.json.encode(expected).decode()))
        return urlencode(query(pairs, self.extra))


def _margins(rate_hz: int) -> Margins:
    return Margins(
        lead=rate_hz // 2,  # voice detection takes 100 to 250 ms; the same again for imprecise word times
        trailing=2 * rate_hz // 5,  # an end is reported at the end of its last word, some silence later
        too_short=rate_hz // 2,
    )


def _model(transcription: TranscriptionOptions) -> str:
    if transcription.model != EITHER:
        return transcription.model
    english = (transcription.language or "").lower().startswith("en")
    return f"{EITHER}-{'english' if english else 'multilingual'}"


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    address = ProviderAddress.of("stt", spec, settings, auth_scheme="", scheme="ws")
    return _AssemblyAi(address, AssemblyAiOptions.of(spec, settings))


class _AssemblyAi:
    def __init__(self, address: ProviderAddress, options: AssemblyAiOptions) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ,
            streams=True,
            partials=True,
            turn_events=True,
            word_times=True,
            speakers=True,
            telephone=telephone_of(ENCODINGS),
        )
        self._address, self._options = address, options

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        encoding = ENCODINGS[transcription.telephone]
        rules = StreamRules(
            line=replace(LINE, encoding=encoding),
            margins=_margins(encoding.rate_hz),
            finalize=wire.FORCE_ENDPOINT,
            flush_timeout_ms=FORCED_MS,
            first_flush_timeout_ms=FIRST_FORCED_MS,
            lifetime_ms=LIFETIME_MS,
            word_rate_hz=encoding.rate_hz if transcription.word_times or transcription.speakers else None,
        )
        path, turns = f"/ws?{self._options.query(transcription)}", wire.Turns(self._address, encoding.rate_hz)
        return continuous_stream(self._address, path, rules, turns)
