"""Options of providers of kind `deepgram`, and the STT query made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from voicepipe.audio.encoding import ALAW, MULAW, AudioEncoding, FormatName
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.providers.net.options import Read, flag, json_object, query, read, whole
from voicepipe.providers.stt.encodings import Encodings
from voicepipe.providers.stt.keyterms import terms
from voicepipe.registry import ProviderSettings, Spec

RATE_HZ = 16_000
"""The models' sample rate; a higher one only costs upload."""

ENCODINGS: Final[Encodings] = {None: AudioEncoding(RATE_HZ), "audio/pcmu": MULAW, "audio/pcma": ALAW}

NAMES: Final[dict[FormatName, str]] = {"audio/pcm": "linear16", "audio/pcmu": "mulaw", "audio/pcma": "alaw"}
"""Deepgram's names of encodings. Source: Deepgram docs, "Encoding"."""

MANY_LANGUAGES = frozenset({"nova-2", "nova-2-general", "nova-3", "nova-3-general", "nova-3-medical"})
"""Models that detect the language with `language=multi`; all models assume `en` by default. Source: Deepgram docs,
"Multilingual Codeswitching" and "Models & Languages Overview"."""

KEY_TERMS = 50
"""A limit of this adapter; Deepgram's limit is 500 tokens for all of them, unverified."""


READERS: Final[dict[str, Read]] = {
    "endpointing_ms": whole(0, 5_000, "milliseconds"),
    "smart_format": flag,
    "extra": json_object(str),
}

OF_FLUX: Final = ("eot_threshold", "eager_eot_threshold", "eot_timeout_ms", "force_end_after_ms")
"""Additional options of the Flux models: one section serves all of Deepgram's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepgramOptions:
    """Options below `[providers.NAME.options]`."""

    endpointing_ms: int = 10
    """Silence after which Deepgram ends a segment (`speech_final`); 0 turns that off. 10 is its own default."""

    smart_format: bool = False
    """Format numbers, dates and the like as in writing. Deepgram may then delay words until it has received more
    audio."""

    extra: str = ""
    """A JSON object of strings, added to the query: `{"mip_opt_out": "true"}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> DeepgramOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        return cls(**read("deepgram", READERS, spec, settings, stage="stt", others=OF_FLUX))

    def query(self, transcription: TranscriptionOptions) -> str:
        """Return the query after `/listen?`. Source: Deepgram API reference, "Live Audio"."""
        encoding = ENCODINGS[transcription.telephone]
        pairs = [
            ("model", transcription.model),
            ("encoding", NAMES[encoding.name]),
            ("sample_rate", str(encoding.rate_hz)),
            ("channels", "1"),
            ("interim_results", "true"),
            ("punctuate", "true"),
            ("smart_format", str(self.smart_format).lower()),
            ("endpointing", str(self.endpointing_ms or "false")),
        ]
        if transcription.speakers:
            pairs.append(("diarize", "true"))
        if transcription.language or transcription.model in MANY_LANGUAGES:
            pairs.append(("language", transcription.language or "multi"))
        if transcription.prompt and transcription.model.startswith(
            "nova-3"
        ):  # older models take `keywords`, single words only
            pairs += [("keyterm", term) for term in terms(transcription.prompt, KEY_TERMS)]
        return urlencode(query(pairs, self.extra))
