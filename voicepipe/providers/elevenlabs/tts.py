"""Text to speech by ElevenLabs, over the WebSocket `/text-to-speech/VOICE/multi-stream-input`.

A turn is a context, to which each clause is added and flushed. No message marks the end of a clause's audio; the
character times that come with the audio do, and word times are read from them. Sources: ElevenLabs API reference,
"Multi-Context WebSocket"; docs, "Multi-Context Websocket"; pipecat's and LiveKit's clients, and their issues for the
errors. Unverified: the status of a handshake's refusal; errors other than those of `STATUS`; the default voice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, WordTime
from voicepipe.providers.net import failures, options
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.failures import LASTING_WS_CODES
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

VOICE = "JBFqnCBsd6RMkjVDRZzb"
"""Default voice: the voice of the examples in ElevenLabs' own client."""

VOICE_ID = re.compile(r"[A-Za-z0-9]{20}")

SPEEDS = (0.7, 1.2)
"""Minimum and maximum of `voice_settings.speed`."""

LANGUAGE_CODE_MODELS = frozenset({"eleven_flash_v2_5", "eleven_turbo_v2_5"})
"""Models that take a `language_code`; the others detect it, or speak only one. Source: pipecat's client."""

INACTIVITY_S = 180
"""The longest time of a context without text; longer than the usual 20 s, since tools take time."""

PLAN = SharingRules(
    line=SocketRules(
        # Names no context: the vendor refuses a context whose first message has no settings. pipecat's client does the
        # same.
        keep_alive='{"text":""}',
        keep_alive_ms=10_000,
        farewell='{"close_socket":true}',
        pong_ms=PONG_MS,
    ),
    contexts=5,  # the limit of a WebSocket; a cancelled context counts until it is reported as final
)

STATUS = {
    "max_active_conversations": 429,
    "quota_exceeded": 402,
    "detected_unusual_activity": 403,
    "invalid_api_key": 401,
    "voice_id_does_not_exist": 404,
    "model_not_found": 404,
}
"""Errors that are sent in the WebSocket, as the matching HTTP statuses."""

PASSING = frozenset({"input_timeout_exceeded"})
"""Errors with the permanent code 1008 after which another attempt may succeed."""


class _Alignment(msgspec.Struct, rename="camel"):
    chars: list[str] = []
    char_start_times_ms: list[float] = []


class _Message(msgspec.Struct, rename="camel"):
    audio: str | None = None
    is_final: bool | None = None
    context_id: str | None = None
    alignment: _Alignment | None = None
    error: str | None = None
    message: str = ""
    code: int = 0


_decoder = msgspec.json.Decoder(_Message)


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"tts_voice": str, "tts_voice_settings": options.json_object()}
    chosen = options.read("elevenlabs", readers, spec, settings, stage="tts")
    address = ProviderAddress.of("tts", spec, settings, auth_scheme="", key_header="xi-api-key", scheme="ws")
    return StreamedSynthesizer(address, _Wire(address, **chosen))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, *, tts_voice: str = VOICE, tts_voice_settings: str = "") -> None:
        self._address, self._voice, self._settings = address, tts_voice, options.members(tts_voice_settings)

    def path(self, voice: Voice) -> str:
        named = voice.voice if voice.voice is not None and VOICE_ID.fullmatch(voice.voice) else self._voice
        pairs = [
            ("model_id", voice.model),
            ("output_format", f"pcm_{RATE_HZ}"),
            ("auto_mode", "true"),  # clauses are whole phrases: the vendor need not buffer text
            ("inactivity_timeout", str(INACTIVITY_S)),
            ("sync_alignment", "true"),
        ]
        if voice.language and voice.model in LANGUAGE_CODE_MODELS:
            pairs.append(("language_code", voice.language.partition("-")[0].lower()))
        return f"/text-to-speech/{quote(named, safe='')}/multi-stream-input?{urlencode(pairs)}"

    def read(self, message: str | bytes) -> Iterable[Note[_Message]]:
        decoded_message = decoded(self._address, _decoder, message)
        if decoded_message.error is not None:
            raise self._failure(decoded_message)
        if decoded_message.context_id is None:
            return ()
        return (Note(decoded_message.context_id, decoded_message, closes=bool(decoded_message.is_final)),)

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        settings: dict[str, Any] = {}
        if voice.speed != 1.0:
            settings["speed"] = min(max(voice.speed, SPEEDS[0]), SPEEDS[1])
        return _TurnCodec(self._address, key, settings | self._settings)

    def _failure(self, decoded_message: _Message) -> StageError:
        """Return the error that ends the WebSocket, and with it every context."""
        words = decoded_message.message or decoded_message.error or ""
        status = STATUS.get(decoded_message.error or "")
        if status is not None:
            return failures.refused(self._address, status, msgspec.json.encode({"message": words}))
        retryable = decoded_message.error in PASSING or decoded_message.code not in LASTING_WS_CODES
        return failures.broken(
            self._address,
            f"the vendor ended its answer with an error ({failures.quote(self._address, words)})",
            retryable=retryable,
        )


class _TurnCodec:
    def __init__(self, address: ProviderAddress, key: str, settings: dict[str, Any]) -> None:
        self._address, self._key, self._settings = address, key, settings
        self._is_open = self._is_finished = False
        self._n_without_audio = 0
        """Clauses without audio so far, when nothing has arrived since they were sent."""

        self._ends: list[int] = []
        """Ends of the clauses in all sent text, in letters: characters that are not space."""

        self._n_over = self._n_letters = 0
        self._received_ms = self._clause_ms = 0.0
        self._word, self._word_ms = "", 0.0

    @property
    def awaits_answer(self) -> bool:
        if self._is_finished:
            return self._is_open
        return self._n_without_audio > 0 or (0 < self._n_letters < (self._ends or [0])[-1])

    def push(self, clause: str) -> Sequence[str]:
        messages = [] if self._is_open else [self._message(text=" ", voice_settings=self._settings)]
        self._is_open = True
        self._n_without_audio += 1
        self._ends.append((self._ends or [0])[-1] + _letters(clause))
        return *messages, self._message(text=f"{clause} ", flush=True)

    def finish(self) -> Sequence[str]:
        self._is_finished = True
        return (self._message(close_context=True),) if self._is_open else ()

    def cancel(self) -> Sequence[str] | None:
        if not self._is_open:
            return None
        return () if self._is_finished else (self._message(close_context=True),)

    def decode(self, body: _Message) -> Iterable[TtsEvent]:
        if body.audio:
            self._n_without_audio = 0
            yield from self._sound(pcm_of(self._address, body.audio), body.alignment or _Alignment())
        if body.is_final:
            self._is_open = False

    def _sound(self, pcm: bytes, times: _Alignment) -> Iterable[TtsEvent]:
        """Return audio whose characters have their own start times: words, and the boundaries between clauses."""
        given = 0
        words: list[WordTime] = []
        for char, start_ms in zip(times.chars, times.char_start_times_ms, strict=False):
            if char.isspace():
                words += self._word_over()
                continue
            if self._n_letters >= self._next_end:
                words += self._word_over()
                end = 2 * min(round(start_ms * RATE_HZ / 1_000), len(pcm) // 2)
                yield Words(tuple(words))
                yield Sound(pcm[given : max(given, end)])
                yield ClauseOver()
                given, words = max(given, end), []
                self._n_over += 1
                self._clause_ms = self._received_ms + start_ms
            if not self._word:
                self._word_ms = max(0.0, self._received_ms + start_ms - self._clause_ms)
            self._word += char
            self._n_letters += 1
        yield Words(tuple(words))
        yield Sound(pcm[given:])
        self._received_ms += len(pcm) / 2 * 1_000 / RATE_HZ

    @property
    def _next_end(self) -> float:
        """The letter with which the next clause begins; none does after the last."""
        return self._ends[self._n_over] if self._n_over < len(self._ends) - 1 else float("inf")

    def _word_over(self) -> list[WordTime]:
        word, self._word = self._word, ""
        return [WordTime(word, round(self._word_ms))] if word else []

    def _message(self, **fields: Any) -> str:
        return msgspec.json.encode({"context_id": self._key, **fields}).decode()


def _letters(text: str) -> int:
    return sum(not char.isspace() for char in text)
