"""Speech to text by Deepgram's Flux models over `/v2/listen`, which detect the end of a turn themselves.

All audio of the session is sent. The core keeps deciding on turns: Flux's end of turn becomes a final text. A flush is
answered by the next message that covers its audio, or by Flux's expected end. Only if none comes within
`force_end_after_ms`, Flux gets `ForceEndTurn`, since that splits its context. Sources: Deepgram docs, "Turn-based Audio
(Flux)", "Understanding the Flux State Machine", "End-of-Turn Detection Parameters", "Force End Turn", "Bring Your Own
Turn Detection", "Close Stream", "Encoding". Facts marked `unverified` are in none of them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.deepgram import flux_wire as wire
from voicepipe.providers.deepgram.stt_options import ENCODINGS, KEY_TERMS, NAMES, RATE_HZ
from voicepipe.providers.deepgram.stt_options import READERS as OF_NOVA
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.options import Read, json_object, number, query, read, whole
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.stt.continuous_stream import StreamRules, continuous_stream
from voicepipe.providers.stt.encodings import telephone_of
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.segment_assembler import Margins
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

MANY_LANGUAGES: Final = "flux-general-multi"
"""The model that takes language hints; the others transcribe English. Source: "Language Prompting"."""

KEEP_ALIVE_MS: Final = 4_000
"""Unverified: Flux has no KeepAlive, and a stream without audio is assumed to end after 10 s as on `/v1/listen`."""

FORCED_MS: Final = 400
"""Timeout of `ForceEndTurn` while Flux detects no speech: without a turn in progress Flux ignores it."""

FIRST_FORCED_MS: Final = 1_000
"""Timeout of `ForceEndTurn` while the utterance has no text."""

READERS: Final[dict[str, Read]] = {
    "eot_threshold": number(0.5, 1.0),
    "eager_eot_threshold": number(0.0, 0.9),
    "eot_timeout_ms": whole(500, 60_000, "milliseconds"),
    "force_end_after_ms": whole(0, 5_000, "milliseconds"),
    "extra": json_object(str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FluxOptions:
    """Options below `[providers.NAME.options]`."""

    eot_threshold: float = 0.7
    """Flux's confidence needed to end its turn. 0.7 is its own default; 1 never ends one."""

    eager_eot_threshold: float = 0.5
    """Confidence needed to expect the end (0.3 to 0.9, at most the other): a speculative reply may start then. 0 turns
    that off."""

    eot_timeout_ms: int = 5_000
    """Silence after which Flux ends its turn at any confidence."""

    force_end_after_ms: int = 300
    """Wait of a flush for Flux's own message, before the adapter ends the turn. An `Update` comes every 250 ms."""

    extra: str = ""
    """A JSON object of strings, added to the query: `{"mip_opt_out": "true"}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> FluxOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        options = cls(**read("flux", READERS, spec, settings, stage="stt", others=OF_NOVA))
        eager = options.eager_eot_threshold
        if eager and not 0.3 <= eager <= options.eot_threshold:
            key = f"providers.{spec.provider}.eager_eot_threshold"
            raise ConfigError(f"{key}: expected 0, or 0.3 to the eot_threshold of {options.eot_threshold}, got {eager}")
        return options

    def query(self, transcription: TranscriptionOptions) -> str:
        """Return the query after `/listen?`. Source: Deepgram API reference, "Turn-based Audio (Flux)"."""
        encoding = ENCODINGS[transcription.telephone]
        pairs = [
            ("model", transcription.model),
            ("encoding", NAMES[encoding.name]),
            ("sample_rate", str(encoding.rate_hz)),
            ("eot_threshold", f"{self.eot_threshold:g}"),
            ("eot_timeout_ms", str(self.eot_timeout_ms)),
        ]
        if self.eager_eot_threshold:
            pairs.append(("eager_eot_threshold", f"{self.eager_eot_threshold:g}"))
        if transcription.language and transcription.model == MANY_LANGUAGES:
            pairs.append(("language_hint", transcription.language.partition("-")[0].lower()))
        pairs += [("keyterm", term) for term in terms(transcription.prompt, KEY_TERMS)]
        return urlencode(query(pairs, self.extra))


def _line(encoding: AudioEncoding) -> SocketRules:
    return SocketRules(
        encoding=encoding,
        buffer_ms=30_000,
        keep_alive=encoding.silence(100 * encoding.bytes_per_ms),
        keep_alive_ms=KEEP_ALIVE_MS,
        farewell=wire.CLOSE_STREAM,
    )


def _margins(rate_hz: int) -> Margins:
    return Margins(
        lead=rate_hz // 2,  # voice detection takes 100 to 250 ms; the same again for imprecise word times
        trailing=rate_hz // 5,  # a pause is flushed some 100 ms after the last voiced sample
        too_short=rate_hz // 5,
    )


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`; `/v1` at the end of a `base_url` becomes `/v2`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    address = ProviderAddress.of("stt", spec, settings, auth_scheme="Token", scheme="ws")
    if address.base_url.endswith("/v1"):
        address = replace(address, base_url=address.base_url[: -len("/v1")] + "/v2")
    return _Flux(address, FluxOptions.of(spec, settings), spec.model)


class _Flux:
    def __init__(self, address: ProviderAddress, options: FluxOptions, model: str) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ,
            streams=True,
            partials=True,
            turn_events=True,
            english_only=model != MANY_LANGUAGES,
            telephone=telephone_of(ENCODINGS),
        )
        self._address, self._options = address, options

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        encoding = ENCODINGS[transcription.telephone]
        rules = StreamRules(
            line=_line(encoding),
            margins=_margins(encoding.rate_hz),
            finalize=wire.FORCE_END_TURN,
            hold_ms=self._options.force_end_after_ms,
            flush_timeout_ms=FORCED_MS,
            first_flush_timeout_ms=FIRST_FORCED_MS,
        )
        reader = wire.Turns(self._address, encoding.rate_hz)
        path = f"/listen?{self._options.query(transcription)}"
        return continuous_stream(self._address, path, rules, reader)
