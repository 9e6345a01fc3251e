"""Text to speech by Inworld, over the WebSocket `/tts/v1/voice:streamBidirectional`.

A turn is a context, to which each clause is added and flushed: `flushCompleted` ends its audio, and word times count
from the flush. Closing a context first synthesizes the flushed text, so that a cancelled turn stays open at the vendor
until it is reported as closed. Sources: Inworld API reference, "Synthesize speech (WebSocket)"; pipecat's and LiveKit's
clients, for errors, `PCM` and the origin of word times. Unverified: which names are a voice's; that an error without a
context ends the WebSocket's use; the status of a handshake's refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, WordTime
from voicepipe.providers.net import grpc_errors, options
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

VOICE = "Ashley"
"""Default voice: the voice of the reference's examples."""

VOICE_ID = re.compile(r"[A-Z].*|.+__.+", re.DOTALL)
"""Inworld's own voices are people's names; cloned voices have their workspace's name. Other vendors' are in lower
case."""

SPEEDS = (0.5, 1.5)
"""Minimum and maximum of `speakingRate`."""

MAX_CHARACTERS = 1_000
"""Maximum characters in one `send_text`."""

WAV_HEADER_BYTES = 44
"""The header before the audio of a message, from models without `PCM`. Source: pipecat's client."""

PLAN = SharingRules(
    line=SocketRules(pong_ms=PONG_MS),
    contexts=5,  # the limit of a WebSocket; a cancelled one counts until it is closed
    idle_ms=540_000,  # closed after 10 minutes without activity
)


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Alignment(msgspec.Struct, rename="camel"):
    words: list[str] = []
    word_start_time_seconds: list[float] = []


class _Timestamps(msgspec.Struct, rename="camel"):
    word_alignment: _Alignment | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    audio_content: str = ""
    timestamp_info: _Timestamps | None = None


class _Result(msgspec.Struct, rename="camel"):
    context_id: str | None = None
    audio_chunk: _Chunk | None = None
    flush_completed: dict[str, Any] | None = None
    context_closed: dict[str, Any] | None = None
    status: _Status | None = None


class _Message(msgspec.Struct):
    result: _Result | None = None
    error: _Status | None = None


_decoder = msgspec.json.Decoder(_Message)


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model`, such as `inworld-tts-2`, at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"tts_voice": str, "tts_extra": options.json_object()}
    chosen = options.read("inworld", readers, spec, settings, stage="tts")
    address = ProviderAddress.of("tts", spec, settings, auth_scheme="Basic", scheme="ws")
    return StreamedSynthesizer(address, _Wire(address, **chosen))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, *, tts_voice: str = VOICE, tts_extra: str = "") -> None:
        self._address, self._voice, self._extra = address, tts_voice, options.members(tts_extra)

    def path(self, voice: Voice) -> str:
        return "/tts/v1/voice:streamBidirectional"

    def read(self, message: str | bytes) -> Iterable[Note[_Result | StageError]]:
        decoded_message = decoded(self._address, _decoder, message)
        result = decoded_message.result or _Result()
        status = decoded_message.error or result.status or _Status()
        if status.code == 0 and decoded_message.error is None:
            return (Note(result.context_id, result, closes=result.context_closed is not None),)
        failure = grpc_errors.failure(self._address, status.code, status.message)
        if result.context_id is None:
            raise failure
        return (Note(result.context_id, failure, closes=True),)

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        return _TurnCodec(self._address, key, self._settings(voice))

    def _settings(self, voice: Voice) -> dict[str, Any]:
        named = voice.voice if voice.voice is not None and VOICE_ID.fullmatch(voice.voice) else self._voice
        audio: dict[str, Any] = {"audioEncoding": "PCM", "sampleRateHertz": RATE_HZ}
        if voice.speed != 1.0:
            audio["speakingRate"] = min(max(voice.speed, SPEEDS[0]), SPEEDS[1])
        settings: dict[str, Any] = {
            "voiceId": named,
            "modelId": voice.model,
            "audioConfig": audio,
            "timestampType": "WORD",
            "timestampTransportStrategy": "SYNC",  # word times come with their audio
            "bufferCharThreshold": MAX_CHARACTERS,  # every text is flushed
        }
        if voice.language:
            settings["language"] = voice.language
        return settings | self._extra


class _TurnCodec:
    def __init__(self, address: ProviderAddress, key: str, settings: dict[str, Any]) -> None:
        self._address, self._key, self._settings = address, key, settings
        self._is_open = self._is_closing = False
        self._parts: list[int] = []  # unanswered flushes of each clause; a turn has tens of clauses
        self._clause_bytes = self._part_bytes = 0

    @property
    def awaits_answer(self) -> bool:
        return bool(self._parts)

    def push(self, clause: str) -> Sequence[str]:
        texts = wrap(clause, MAX_CHARACTERS - 1, break_on_hyphens=False) or [clause]
        self._parts.append(len(texts))
        create = () if self._is_open else (self._message("create", self._settings),)
        self._is_open = True
        return (*create, *(self._message("send_text", {"text": f"{text} ", "flush_context": {}}) for text in texts))

    def finish(self) -> Sequence[str]:
        return self._close() if self._is_open else ()

    def cancel(self) -> Sequence[str] | None:
        if not self._is_open:
            return None
        return () if self._is_closing else self._close()

    def decode(self, body: _Result | StageError) -> Iterable[TtsEvent]:
        if isinstance(body, StageError):
            self._is_open = False
            raise body
        if body.audio_chunk is not None:
            yield from self._chunk(body.audio_chunk)
        if body.flush_completed is not None:
            yield from self._part_over()
        if body.context_closed is not None:
            self._is_open = False
            yield from (ClauseOver() for _ in self._parts)
            self._parts.clear()

    def _chunk(self, chunk: _Chunk) -> Iterable[TtsEvent]:
        timed = chunk.timestamp_info.word_alignment if chunk.timestamp_info is not None else None
        if timed is not None:
            before_ms = self._part_bytes * 500 // RATE_HZ
            pairs = zip(timed.words, timed.word_start_time_seconds, strict=False)
            yield Words(tuple(WordTime(word, before_ms + round(start * 1_000)) for word, start in pairs))
        pcm = pcm_of(self._address, chunk.audio_content)
        pcm = pcm[WAV_HEADER_BYTES:] if pcm.startswith(b"RIFF") else pcm
        self._clause_bytes += len(pcm)
        yield Sound(pcm)

    def _part_over(self) -> Iterable[TtsEvent]:
        if not self._parts:
            return
        self._parts[0] -= 1
        self._part_bytes = self._clause_bytes
        if self._parts[0] == 0:
            del self._parts[0]
            self._clause_bytes = self._part_bytes = 0
            yield ClauseOver()

    def _close(self) -> Sequence[str]:
        self._is_closing = True
        return (self._message("close_context", {}),)

    def _message(self, kind: str, body: dict[str, Any]) -> str:
        return msgspec.json.encode({kind: body, "contextId": self._key}).decode()
