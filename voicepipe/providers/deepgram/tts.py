"""Text to speech by Deepgram's Aura voices, over the WebSocket `/speak`.

A WebSocket serves one turn: its messages have no context name, and it takes 20 flushes a minute, about one turn's
clauses. So each turn gets a WebSocket that was opened before, and the end of the turn closes it. A turn that goes on
past the limit has its last clauses flushed as one. Sources: Deepgram API reference, "Continuous Text Stream"; docs,
"Flush", "TTS Troubleshooting WebSocket, NET, and DATA Errors"; issue 617 of its Python client, for the fields of a
warning. Unverified: the range of `speed`; the shape of an error that is sent in the WebSocket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice
from voicepipe.providers.net import failures, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import Note, SharingRules, decoded
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.tts.websocket_tts import PONG_MS, ClauseOver, Sound, StreamedSynthesizer, TtsEvent
from voicepipe.registry import ProviderSettings, Spec

SPEEDS = (0.7, 1.5)
"""Minimum and maximum speed; unverified."""

MAX_FLUSHES = 20
"""Flushes in 60 s, on a WebSocket ("Flush", Limits)."""

EXCESSIVE_FLUSH = "EXCESSIVE_FLUSH"

PLAN = SharingRules(
    line=SocketRules(pong_ms=PONG_MS),
    confirms_cancel=False,  # each turn has its own WebSocket
    idle_ms=240_000,
)

STT_OPTIONS = (
    "endpointing_ms",
    "smart_format",
    "extra",
    "eot_threshold",
    "eager_eot_threshold",
    "eot_timeout_ms",
    "force_end_after_ms",
)
"""Options of STT: one section serves both stages."""


class _Message(msgspec.Struct):
    type: str
    code: str | int = ""
    warn_code: str = ""


_decoder = msgspec.json.Decoder(_Message)
_FLUSH = '{"type":"Flush"}'


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the voice `spec.model`, such as `aura-2-thalia-en`, at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"tts_extra": options.json_object(str)}
    chosen = options.read("deepgram", readers, spec, settings, stage="tts", others=STT_OPTIONS)
    address = ProviderAddress.of("tts", spec, settings, auth_scheme="Token", scheme="ws")
    return StreamedSynthesizer(address, _Wire(address, options.members(chosen.get("tts_extra", ""), str)))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, extra: Mapping[str, str]) -> None:
        self._address, self._extra = address, extra

    def path(self, voice: Voice) -> str:
        """A voice is a model there."""
        named = voice.voice if voice.voice is not None and voice.voice.startswith("aura-") else voice.model
        query = {"model": named, "encoding": "linear16", "sample_rate": str(RATE_HZ)}
        if voice.speed != 1.0:
            query["speed"] = f"{min(max(voice.speed, SPEEDS[0]), SPEEDS[1]):g}"
        return f"/speak?{urlencode(query | dict(self._extra))}"

    def read(self, message: str | bytes) -> Iterable[Note[_Message | bytes]]:
        if isinstance(message, bytes):
            return (Note(None, message),)
        decoded_message = decoded(self._address, _decoder, message)
        if decoded_message.type == "Error":
            raise failures.in_band(self._address, message.encode())
        if decoded_message.type == "Warning" and EXCESSIVE_FLUSH in (decoded_message.code, decoded_message.warn_code):
            raise failures.refused(self._address, 429, message.encode())
        return (Note(None, decoded_message),) if decoded_message.type == "Flushed" else ()

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        return _TurnCodec()


class _TurnCodec:
    def __init__(self) -> None:
        self._n_waiting = self._n_flushes = 0
        self._flushed: deque[int] = deque()  # clauses in each unanswered flush; at most MAX_FLUSHES
        self._has_clause = False

    @property
    def awaits_answer(self) -> bool:
        return bool(self._flushed)

    def push(self, clause: str) -> Sequence[str]:
        self._has_clause = True
        self._n_waiting += 1
        speak = msgspec.json.encode({"type": "Speak", "text": f"{clause} "}).decode()
        return (speak, *self._flush()) if self._n_flushes < MAX_FLUSHES - 1 else (speak,)

    def finish(self) -> Sequence[str]:
        return self._flush() if self._n_waiting else ()

    def cancel(self) -> Sequence[str] | None:
        return () if self._has_clause else None

    def decode(self, body: _Message | bytes) -> Iterable[TtsEvent]:
        if isinstance(body, bytes):
            yield Sound(body)
        elif self._flushed:
            for _ in range(self._flushed.popleft()):
                yield ClauseOver()

    def _flush(self) -> Sequence[str]:
        self._flushed.append(self._n_waiting)
        self._n_flushes, self._n_waiting = self._n_flushes + 1, 0
        return (_FLUSH,)
