"""How to listen with Deepgram: the options of providers of kind `deepgram`, and the query that they become."""

from __future__ import annotations

from dataclasses import dataclass, fields
from urllib.parse import urlencode

import msgspec

from voicepipe.errors import ConfigError
from voicepipe.providers.stt.terms import terms
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Hearing

RATE_HZ = 16_000
"""What the models hear; sending more only costs upload."""

MANY_LANGUAGES = frozenset({"nova-2", "nova-2-general", "nova-3", "nova-3-general", "nova-3-medical"})
"""Models that find out the language with `language=multi`; all models take `en` when they are told none.
Source: Deepgram docs, "Multilingual Codeswitching" and "Models & Languages Overview"."""

KEY_TERMS = 50
"""A bound of our own; Deepgram's limit is 500 tokens for all of them, unverified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepgramOptions:
    """What may be set below `[providers.NAME.options]`."""

    endpointing_ms: int = 10
    """Silence after which Deepgram calls a segment ended (`speech_final`); 0 turns that off. 10 is its own default."""

    smart_format: bool = False
    """Numbers, dates and the like as people write them. Deepgram may then hold words back until it has heard more."""

    extra: str = ""
    """A JSON object of strings, added to the query: `{"mip_opt_out": "true"}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> DeepgramOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        known = [its.name for its in fields(cls)]
        values: dict[str, int | bool | str] = {}
        for name, text in settings.options:
            key = f"providers.{spec.provider}.{name}"
            if name.startswith("tts_"):
                continue  # for the voice: one section serves both
            if name not in known:
                raise ConfigError(f"{key}: unknown; known here are {', '.join(known)}")
            values[name] = _read(key, name, text)
        return cls(**values)  # type: ignore[arg-type]

    def query(self, hearing: Hearing) -> str:
        """What follows `/listen?`. Source: Deepgram API reference, "Live Audio"."""
        pairs = [
            ("model", hearing.model),
            ("encoding", "linear16"),
            ("sample_rate", str(RATE_HZ)),
            ("channels", "1"),
            ("interim_results", "true"),
            ("punctuate", "true"),
            ("smart_format", str(self.smart_format).lower()),
            ("endpointing", str(self.endpointing_ms or "false")),
        ]
        if hearing.language or hearing.model in MANY_LANGUAGES:
            pairs.append(("language", hearing.language or "multi"))
        if hearing.prompt and hearing.model.startswith("nova-3"):  # older models know `keywords`, single words only
            pairs += [("keyterm", term) for term in terms(hearing.prompt, KEY_TERMS)]
        extra = msgspec.json.decode(self.extra or "{}", type=dict[str, str])
        return urlencode([*(pair for pair in pairs if pair[0] not in extra), *extra.items()])


def _read(key: str, name: str, text: str) -> int | bool | str:
    if name == "endpointing_ms":
        if not text.isdecimal() or int(text) > 5_000:
            raise ConfigError(f"{key}: expected milliseconds from 0 to 5000, got {text!r}")
        return int(text)
    if name == "smart_format":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}: expected true or false, got {text!r}")
        return text.lower() == "true"
    try:
        msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{key}: expected a JSON object of strings, got {text!r} ({error})") from None
    return text
