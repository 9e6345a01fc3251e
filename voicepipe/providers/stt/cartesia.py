"""Speech to text by Cartesia's Ink models, in either of its two ways.

Ink 2 finds turns by itself (`/stt/turns/websocket`): whoever listens stays the master of them, and what the vendor says
is a text with nothing after it. It can't be told to make final what it has heard, so a flush is answered with what is
known when neither an end nor the end that is expected comes soon; later words revise it. Ink Whisper, and Ink 2 with
`stt_turns = false`, are told (`finalize` on `/stt/websocket`).
Sources: Cartesia API reference 2026-03-01, "Realtime Speech-to-Text (Auto)" and "(Manual)", its docs "Configuring turn
detection", "Concurrency and WebSocket Limits", "Troubleshooting", and its own and Pipecat's clients. Marked
`unverified` is what they do not say.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from voicepipe.errors import ConfigError
from voicepipe.providers.net.options import Read, flag, json_object, number, query, read, whole
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.net.ws import Line
from voicepipe.providers.stt import cartesia_wire as wire
from voicepipe.providers.stt.live import Manner, Reader, listening
from voicepipe.providers.stt.segments import Margins
from voicepipe.providers.stt.terms import terms
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.transcriber import Hearing, Transcriber, TranscriberCapabilities, TranscriptStream

VERSION: Final = "2026-03-01"
RATE_HZ: Final = 16_000
"""What the vendor advises; sending more only costs upload."""

WHISPER: Final = "ink-whisper"
"""The family that knows no turns, and many languages."""

KEY_TERMS: Final = 50
KEY_TERM_CHARS: Final = 1_200
"""The first is a bound of our own; the vendor takes 100 of 1200 characters together."""

MARGINS: Final = Margins(
    lead=RATE_HZ // 2,  # noticing a voice takes 100 to 250 ms; as much again, since texts have no places
    trailing=RATE_HZ // 10,
    scant=0,
)

PATIENCE_MS: Final = 400
"""How long a flush waits for the vendor's own end, before it is answered with what is known. Ink 2 only."""

FIRST_PATIENCE_MS: Final = 1_000
"""The same while nothing is known of the utterance."""

READERS: Final[dict[str, Read]] = {
    "stt_turns": flag,
    "stt_turn_eager_end_threshold": number(0.3, 0.6),
    "stt_turn_end_threshold": number(0.05, 0.5),
    "stt_turn_end_timeout_ms": whole(640, 11_200, "milliseconds"),
    "stt_extra": json_object(str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CartesiaOptions:
    """What may be set below `[providers.NAME.options]`."""

    stt_turns: bool = True
    """Let Ink 2 find turns. False: it is told when to make final what it has heard, as Ink Whisper always is."""

    stt_turn_eager_end_threshold: float = 0.4
    """How likely more speech may be for the end to be expected. 0.4 is the vendor's own default."""

    stt_turn_end_threshold: float = 0.2
    """How likely more speech may be for the turn to end. 0.2 is the vendor's own default; it is below the other."""

    stt_turn_end_timeout_ms: int = 5_600
    """Silence after which a turn ends however unsure the vendor is."""

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

    def path(self, hearing: Hearing, turns: bool) -> str:
        """Where to listen, and how: below the vendor's address."""
        pairs = [("model", hearing.model), ("encoding", "pcm_s16le"), ("sample_rate", str(RATE_HZ))]
        if turns:
            pairs += [
                ("turn_eager_end_threshold", f"{self.stt_turn_eager_end_threshold:g}"),
                ("turn_end_threshold", f"{self.stt_turn_end_threshold:g}"),
                ("turn_end_timeout_ms", str(self.stt_turn_end_timeout_ms)),
            ]
            pairs += [("keyterm", term) for term in _key_terms(hearing.prompt)]
        elif hearing.language:
            pairs.append(("language", hearing.language.partition("-")[0].lower()))
        # A space in a term must be %20: a plus stays one.
        return f"/stt/{'turns/' if turns else ''}websocket?{urlencode(query(pairs, self.stt_extra), quote_via=quote)}"


def _key_terms(prompt: str | None) -> list[str]:
    chosen: list[str] = []
    for term in terms(prompt, KEY_TERMS):
        if sum(map(len, chosen)) + len(term) <= KEY_TERM_CHARS:
            chosen.append(term)
    return chosen


def _line(farewell: str) -> Line:
    """How the vendor wants its socket to be used, either way."""
    return Line(
        audio_bytes_per_ms=2 * RATE_HZ // 1_000,
        buffer_ms=30_000,
        # It knows no message for it; a connection to which nothing is sent is closed after 3 minutes.
        keep_alive=bytes(2 * RATE_HZ // 10),
        keep_alive_ms=60_000,
        farewell=farewell,
    )


LINES: Final = {True: _line(wire.CLOSE_TURNS), False: _line(wire.CLOSE)}
"""With turns, and without."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """The ear `spec.model` at the server that `settings` name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    peer = Peer.of(
        "stt",
        spec,
        settings,
        auth_scheme="",
        key_header="X-API-Key",
        more_headers={"Cartesia-Version": VERSION},
        scheme="ws",
    )
    options = CartesiaOptions.of(spec, settings)
    return _Cartesia(peer, options, turns=options.stt_turns and not spec.model.startswith(WHISPER))


class _Cartesia:
    def __init__(self, peer: Peer, options: CartesiaOptions, *, turns: bool) -> None:
        self.name = peer.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ, streams=True, partials=True, finalize=not turns, turn_events=turns
        )
        self._peer, self._options, self._turns = peer, options, turns

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        manner = Manner(
            line=LINES[self._turns],
            margins=MARGINS,
            finalize=None if self._turns else wire.FINALIZE,
            patience_ms=PATIENCE_MS,
            first_patience_ms=FIRST_PATIENCE_MS,
            positions=False,
        )
        reader: Reader = wire.Turns(self._peer) if self._turns else wire.Chunks(self._peer)
        path = self._options.path(hearing, self._turns)
        return listening(self._peer, path, manner, reader, reached=hearing.reached)
