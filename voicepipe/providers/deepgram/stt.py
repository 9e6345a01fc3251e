"""Speech to text by Deepgram's nova models, streaming, over its `/v1/listen` WebSocket.

All audio of the session is sent. The vendor's final texts are joined to the text of an utterance. A flush requests the
rest at once (`Finalize`), unless the vendor has already reported the end of speech. Sources: Deepgram docs, "Live
Audio", "Finalize", "Audio Keep Alive", "Endpointing", "Diarization", "Errors", and "STT Troubleshooting WebSocket, NET,
and DATA Errors". Facts marked `unverified` are in none of them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from voicepipe.ports.transcriber import Transcriber, TranscriberCapabilities, TranscriptionOptions, TranscriptStream
from voicepipe.providers.deepgram import flux
from voicepipe.providers.deepgram import stt_wire as wire
from voicepipe.providers.deepgram.stt_options import ENCODINGS, RATE_HZ, DeepgramOptions
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.stt.continuous_stream import StreamRules, continuous_stream
from voicepipe.providers.stt.encodings import telephone_of
from voicepipe.providers.stt.segment_assembler import Margins, Segment
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.values import replace

LINE = SocketRules(
    buffer_ms=30_000,
    # 10 s without audio or this message ends the stream with NET-0001; the docs require one every 3 to 5 s ("Audio Keep
    # Alive").
    keep_alive=wire.KEEP_ALIVE,
    keep_alive_ms=4_000,
    farewell=wire.CLOSE_STREAM,
)

FINALIZE_MS = 400
"""Timeout of a `Finalize` with little audio left, since the docs guarantee no answer then. Unverified:
an answer takes 50 to 300 ms."""

FIRST_FINALIZE_MS = 1_500
"""Timeout of a `Finalize` while the utterance has no text: an empty text is only right without speech."""


def _margins(rate_hz: int) -> Margins:
    return Margins(
        lead=rate_hz // 2,  # voice detection takes 100 to 250 ms; the same again for imprecise word times
        trailing=rate_hz // 5,  # a pause is flushed some 100 ms after the last voiced sample
        too_short=rate_hz // 2,  # unverified: the docs have "no significant amount of audio", without a figure
    )


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`; a Flux model has its own protocol.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    if spec.model.startswith("flux"):
        return flux.open_transcriber(spec, settings)
    options = DeepgramOptions.of(spec, settings)
    return _Deepgram(ProviderAddress.of("stt", spec, settings, auth_scheme="Token", scheme="ws"), options)


class _Deepgram:
    def __init__(self, address: ProviderAddress, options: DeepgramOptions) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ,
            streams=True,
            partials=True,
            finalize=True,
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
            finalize=wire.FINALIZE,
            flush_timeout_ms=FINALIZE_MS,
            first_flush_timeout_ms=FIRST_FINALIZE_MS,
            word_rate_hz=encoding.rate_hz if transcription.word_times or transcription.speakers else None,
        )
        path = f"/listen?{self._options.query(transcription)}"
        return continuous_stream(self._address, path, rules, _Reader(self._address, encoding.rate_hz))


class _Reader:
    """Deepgram's messages need no state."""

    idle = False
    """`Finalize` is answered even without speech, unless almost no audio was sent."""

    def __init__(self, address: ProviderAddress, rate_hz: int) -> None:
        self._address, self._rate_hz = address, rate_hz

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        return wire.read(self._address, message, self._rate_hz)
