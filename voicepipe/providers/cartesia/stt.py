"""Speech to text by Cartesia's Ink models, in either of its two modes.

Ink 2 detects turns itself (`/stt/turns/websocket`); the core keeps deciding on turns, and the vendor's end of turn
becomes a final text. Ink 2 has no message to finalize its text. So the adapter answers a flush with the text so far
when no end and no expected end comes soon; later words revise it. Ink Whisper, and Ink 2 with `stt_turns = false`, get
`finalize` on `/stt/websocket`. Sources: Cartesia API reference 2026-03-01, "Realtime Speech-to-Text (Auto)" and
"(Manual)", its docs "Audio input", "Configuring turn detection", "Concurrency and WebSocket Limits", "Troubleshooting",
and its own and Pipecat's clients. Facts marked `unverified` are in none of them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from voicepipe.audio.encoding import ALAW, MULAW, AudioEncoding, FormatName
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.cartesia import stt_wire as wire
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.options import Read, flag, json_object, number, query, read, whole
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.stt.continuous_stream import Reader, StreamRules, continuous_stream
from voicepipe.providers.stt.encodings import Encodings, telephone_of
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.stt.segment_assembler import Margins
from voicepipe.registry import ProviderSettings, Spec

VERSION: Final = "2026-03-01"
RATE_HZ: Final = 16_000
"""The sample rate that the vendor recommends; a higher one only costs upload."""

ENCODINGS: Final[Encodings] = {None: AudioEncoding(RATE_HZ), "audio/pcmu": MULAW, "audio/pcma": ALAW}

NAMES: Final[dict[FormatName, str]] = {"audio/pcm": "pcm_s16le", "audio/pcmu": "pcm_mulaw", "audio/pcma": "pcm_alaw"}
"""The vendor's names of encodings. Source: Cartesia docs, "Audio input"."""

WHISPER: Final = "ink-whisper"
"""The family without turn detection, and with many languages."""

KEY_TERMS: Final = 50
KEY_TERM_CHARS: Final = 1_200
"""The first is a limit of this adapter; the vendor takes 100 of 1200 characters together."""

KEEP_ALIVE_MS: Final = 60_000
"""It has no keep-alive message; an idle connection is closed after 3 minutes."""

FLUSH_TIMEOUT_MS: Final = 400
"""Timeout of a flush for the vendor's own end; then the text so far answers it. Ink 2 only."""

FIRST_FLUSH_TIMEOUT_MS: Final = 1_000
"""Timeout of a flush while the utterance has no text."""

READERS: Final[dict[str, Read]] = {
    "stt_turns": flag,
    "stt_turn_eager_end_threshold": number(0.3, 0.6),
    "stt_turn_end_threshold": number(0.05, 0.5),
    "stt_turn_end_timeout_ms": whole(640, 11_200, "milliseconds"),
    "stt_extra": json_object(str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CartesiaOptions:
    """Options below `[providers.NAME.options]`."""

    stt_turns: bool = True
    """Let Ink 2 detect turns. False: it gets `finalize` at each flush, as Ink Whisper always does."""

    stt_turn_eager_end_threshold: float = 0.4
    """Maximum probability of more speech at which the end is expected. 0.4 is the vendor's own default."""

    stt_turn_end_threshold: float = 0.2
    """Maximum probability of more speech at which the turn ends. 0.2 is the vendor's own default; it is below the
    other."""

    stt_turn_end_timeout_ms: int = 5_600
    """Silence after which a turn ends at any probability."""

    stt_extra: str = ""
    """A JSON object of strings, added to the query: `{"min_volume": "0.1"}`."""

    @classmethod
    def of(cls, spec: Spec, settings: ProviderSettings) -> CartesiaOptions:
        """Read `settings.options`.

        Raises:
            ConfigError: an option is unknown or has a wrong value.
        """
        options = cls(**read("cartesia", READERS, spec, settings, stage="stt"))
        if options.stt_turn_end_threshold >= options.stt_turn_eager_end_threshold:
            key = f"providers.{spec.provider}.stt_turn_end_threshold"
            below = f"less than the stt_turn_eager_end_threshold of {options.stt_turn_eager_end_threshold}"
            raise ConfigError(f"{key}: expected {below}, got {options.stt_turn_end_threshold}")
        return options

    @property
    def ends(self) -> dict[str, float]:
        """Return the least probability of the end that each end event stands for: the thresholds are of more speech."""
        return {
            "turn.eager_end": 1 - self.stt_turn_eager_end_threshold,
            "turn.end": 1 - self.stt_turn_end_threshold,
        }

    def path(self, transcription: TranscriptionOptions, turns: bool) -> str:
        """Return the path and query of the WebSocket, below the vendor's address."""
        encoding = ENCODINGS[transcription.telephone]
        pairs = [
            ("model", transcription.model),
            ("encoding", NAMES[encoding.name]),
            ("sample_rate", str(encoding.rate_hz)),
        ]
        if turns:
            pairs += [
                ("turn_eager_end_threshold", f"{self.stt_turn_eager_end_threshold:g}"),
                ("turn_end_threshold", f"{self.stt_turn_end_threshold:g}"),
                ("turn_end_timeout_ms", str(self.stt_turn_end_timeout_ms)),
            ]
            pairs += [("keyterm", term) for term in _key_terms(transcription.prompt)]
        elif transcription.language:
            pairs.append(("language", transcription.language.partition("-")[0].lower()))
        # A space in a term must be %20: a plus sign stays a plus sign.
        return f"/stt/{'turns/' if turns else ''}websocket?{urlencode(query(pairs, self.stt_extra), quote_via=quote)}"


def _key_terms(prompt: str | None) -> list[str]:
    chosen: list[str] = []
    for term in terms(prompt, KEY_TERMS):
        if sum(map(len, chosen)) + len(term) <= KEY_TERM_CHARS:
            chosen.append(term)
    return chosen


def _line(encoding: AudioEncoding, farewell: str) -> SocketRules:
    """Return the rules for using the vendor's WebSocket, in either mode."""
    return SocketRules(
        encoding=encoding,
        buffer_ms=30_000,
        keep_alive=encoding.silence(100 * encoding.bytes_per_ms),
        keep_alive_ms=KEEP_ALIVE_MS,
        farewell=farewell,
    )


def _margins(rate_hz: int) -> Margins:
    return Margins(
        lead=rate_hz // 2,  # voice detection takes 100 to 250 ms; the same again, since texts have no positions
        trailing=rate_hz // 10,
        too_short=0,
    )


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    address = ProviderAddress.of(
        "stt",
        spec,
        settings,
        auth_scheme="",
        key_header="X-API-Key",
        more_headers={"Cartesia-Version": VERSION},
        scheme="ws",
    )
    options = CartesiaOptions.of(spec, settings)
    return _Cartesia(address, options, turns=options.stt_turns and not spec.model.startswith(WHISPER))


class _Cartesia:
    def __init__(self, address: ProviderAddress, options: CartesiaOptions, *, turns: bool) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ,
            streams=True,
            partials=True,
            finalize=not turns,
            turn_events=turns,
            telephone=telephone_of(ENCODINGS),
        )
        self._address, self._options, self._turns = address, options, turns

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        encoding = ENCODINGS[transcription.telephone]
        rules = StreamRules(
            line=_line(encoding, wire.CLOSE_TURNS if self._turns else wire.CLOSE),
            margins=_margins(encoding.rate_hz),
            finalize=None if self._turns else wire.FINALIZE,
            flush_timeout_ms=FLUSH_TIMEOUT_MS,
            first_flush_timeout_ms=FIRST_FLUSH_TIMEOUT_MS,
            positions=False,
        )
        reader: Reader = wire.Turns(self._address, self._options.ends) if self._turns else wire.Chunks(self._address)
        path = self._options.path(transcription, self._turns)
        return continuous_stream(self._address, path, rules, reader)
