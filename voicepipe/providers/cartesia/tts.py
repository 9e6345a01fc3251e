"""Text to speech by Cartesia's Sonic models, over the WebSocket `/tts/websocket`.

A turn is a context, to which each clause is added and flushed: `flush_done` ends its audio. An idle context expires, so
that a later clause begins another one. Sources: Cartesia API reference, "Text to Speech (WebSocket)", version
2026-03-01; docs, "Contexts", "Context Flushing and Flush IDs", "Concurrency and WebSocket Limits"; pipecat's and
LiveKit's clients. Unverified: that a cancelled context is confirmed by `done`; the default voice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, WordTime
from voicepipe.providers.net import failures, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import Note, SharingRules, decoded
from voicepipe.providers.net.ws import SocketRules
from voicepipe.providers.tts.websocket_tts import (
    PONG_MS,
    ClauseOver,
    Sound,
    StreamedSynthesizer,
    TtsEvent,
    Words,
    pcm_of,
)
from voicepipe.registry import ProviderSettings, Spec

VERSION = "2026-03-01"

VOICE = "a0e99841-438c-4a64-b679-ae501e7d6091"
"""Default voice: the voice of the reference's examples."""

VOICE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

SILENT_S = 0.8
"""A context that sent nothing for this time gets no more text: it expires after 1 s ("Contexts")."""

PLAN = SharingRules(
    line=SocketRules(pong_ms=PONG_MS),
    contexts=24,  # "dozens"; one is active, the others are cancelled and not yet confirmed
    idle_ms=240_000,  # closed after 5 minutes ("Concurrency and WebSocket Limits")
)

BUFFER_MS = 3_000
"""The service's own default, sent because older versions have another. Text waits for its flush, which comes soon."""


class _Timed(msgspec.Struct):
    words: list[str] = []
    start: list[float] = []


class _Message(msgspec.Struct):
    type: str
    context_id: str | None = None
    data: str = ""
    word_timestamps: _Timed | None = None


_decoder = msgspec.json.Decoder(_Message)


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    chosen = options.read(
        "cartesia", {"tts_voice": str, "tts_extra": options.json_object()}, spec, settings, stage="tts"
    )
    address = ProviderAddress.of(
        "tts",
        spec,
        settings,
        auth_scheme="",
        key_header="X-API-Key",
        more_headers={"Cartesia-Version": VERSION},
        scheme="ws",
    )
    return StreamedSynthesizer(address, _Wire(address, **chosen))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, *, tts_voice: str = VOICE, tts_extra: str = "") -> None:
        self._address, self._voice, self._extra = address, tts_voice, options.members(tts_extra)

    def path(self, voice: Voice) -> str:
        return "/tts/websocket"

    def read(self, message: str | bytes) -> Iterable[Note[_Message | StageError]]:
        decoded_message = decoded(self._address, _decoder, message)
        if decoded_message.type != "error":
            return (Note(decoded_message.context_id, decoded_message, closes=decoded_message.type == "done"),)
        failure = failures.in_band(self._address, str(message).encode())
        if decoded_message.context_id is None:
            raise failure
        return (Note(decoded_message.context_id, failure, closes=True),)

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        return _TurnCodec(self._address, key, self._fields(voice))

    def _fields(self, voice: Voice) -> dict[str, Any]:
        """Return the fields that all messages of a context must share."""
        named = voice.voice if voice.voice is not None and VOICE_ID.fullmatch(voice.voice) else self._voice
        fields: dict[str, Any] = {
            "model_id": voice.model,
            "voice": {"mode": "id", "id": named},
            "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE_HZ},
            "add_timestamps": True,
            "max_buffer_delay_ms": BUFFER_MS,
        }
        if voice.language:
            fields["language"] = voice.language.partition("-")[0].lower()
        if voice.speed != 1.0:
            fields["generation_config"] = {"speed": voice.speed}
        return fields | self._extra


class _TurnCodec:
    def __init__(self, address: ProviderAddress, key: str, fields: dict[str, Any]) -> None:
        self._address, self._key, self._fields = address, key, fields
        self._n_contexts = self._n_clauses = self._n_over = 0
        self._is_open = self._is_finished = False
        self._sound_bytes = self._clause_bytes = 0
        self._received_s = 0.0

    @property
    def awaits_answer(self) -> bool:
        return self._n_clauses > self._n_over or (self._is_finished and self._is_open)

    def push(self, clause: str) -> Sequence[str]:
        if not self._is_open or (not self.awaits_answer and clock.loop_s() - self._received_s > SILENT_S):
            self._begin_context()
        self._n_clauses += 1
        return self._message(f"{clause} "), self._message(flush=True)

    def finish(self) -> Sequence[str]:
        self._is_finished = True
        return (self._message(goes_on=False),) if self._is_open else ()

    def cancel(self) -> Sequence[str] | None:
        if not self._is_open:
            return None
        return (msgspec.json.encode({"context_id": self._context, "cancel": True}).decode(),)

    def decode(self, body: _Message | StageError) -> Iterable[TtsEvent]:
        if isinstance(body, StageError):
            self._is_open = False
            raise body
        if body.context_id != self._context:
            return  # an idle one that has expired now
        self._received_s = clock.loop_s()
        match body.type:
            case "chunk":
                pcm = pcm_of(self._address, body.data)
                self._sound_bytes += len(pcm)
                yield Sound(pcm)
            case "timestamps" if body.word_timestamps is not None:
                yield self._words(body.word_timestamps)
            case "flush_done":
                yield from self._over(self._n_over + 1)
            case "done":
                self._is_open = False
                yield from self._over(self._n_clauses)

    @property
    def _context(self) -> str:
        return f"{self._key}.{self._n_contexts}"

    def _begin_context(self) -> None:
        self._n_contexts += 1
        self._is_open = True
        self._sound_bytes = self._clause_bytes = 0

    def _over(self, n_over: int) -> Iterable[TtsEvent]:
        for _ in range(self._n_over, min(n_over, self._n_clauses)):
            yield ClauseOver()
        self._n_over = min(n_over, self._n_clauses)
        self._clause_bytes = self._sound_bytes

    def _words(self, timed: _Timed) -> Words:
        """Seconds from the context's beginning to the clause's."""
        before_ms = self._clause_bytes * 500 // RATE_HZ
        pairs = zip(timed.words, timed.start, strict=False)
        return Words(tuple(WordTime(word, max(0, round(start * 1_000) - before_ms)) for word, start in pairs))

    def _message(self, transcript: str = "", *, goes_on: bool = True, flush: bool = False) -> str:
        own = {"context_id": self._context, "transcript": transcript, "continue": goes_on}
        return msgspec.json.encode(self._fields | own | ({"flush": True} if flush else {})).decode()
