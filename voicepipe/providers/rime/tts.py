"""Text to speech by Rime's models, over the JSON WebSocket `/ws3`.

The WebSocket holds one turn at a time. Each clause is flushed under its own name, which identifies its audio. The
service confirms no `clear`, so that a turn that is cancelled during synthesis closes its WebSocket. Sources: Rime docs,
"Websockets JSON" of Coda, Arcana and Mist v3, "Segmentation & Behavior Settings", "Playback speed"; pipecat's and
LiveKit's clients. Unverified: which context a `done` is tagged with when several flushes wait; how long a WebSocket may
be idle; the default voices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

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

VOICE = "astra"
"""Default voice: the speaker of the docs' examples for Coda and Arcana."""

MIST_VOICE = "cove"
"""The same for the Mist models, which have other speakers."""

SLOWER_IS_MORE = frozenset({"mist", "mistv2"})
"""Models for which a `speedAlpha` over 1 is slower; for the others it is faster ("Playback speed")."""

LANGUAGES = {
    "ar": "ara",
    "de": "ger",
    "en": "eng",
    "es": "spa",
    "fr": "fra",
    "he": "heb",
    "hi": "hin",
    "ja": "jpn",
    "pt": "por",
    "ta": "tam",
}
"""Values of `lang`, by the first part of a BCP-47 tag; a language that is not here is not sent."""

PLAN = SharingRules(
    line=SocketRules(farewell='{"operation":"clear"}', pong_ms=PONG_MS),  # waiting text is not charged
    confirms_cancel=False,
    idle_ms=60_000,
)


class _Timed(msgspec.Struct):
    words: list[str] = []
    start: list[float] = []


class _Message(msgspec.Struct):
    type: str
    data: str = ""
    context: str | None = msgspec.field(name="contextId", default=None)
    word_timestamps: _Timed | None = None


_decoder = msgspec.json.Decoder(_Message)


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"tts_voice": str, "tts_extra": options.json_object(str)}
    chosen = options.read("rime", readers, spec, settings, stage="tts")
    address = ProviderAddress.of("tts", spec, settings, scheme="ws")
    return StreamedSynthesizer(address, _Wire(address, **chosen))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, *, tts_voice: str = "", tts_extra: str = "") -> None:
        self._address, self._voice, self._extra = address, tts_voice, options.members(tts_extra, str)

    def path(self, voice: Voice) -> str:
        usual = MIST_VOICE if voice.model.startswith("mist") else VOICE
        fields = {
            "speaker": voice.voice or self._voice or usual,
            "modelId": voice.model,
            "audioFormat": "pcm",
            "samplingRate": str(RATE_HZ),
            "segment": "never",
        }
        if voice.language and (language := LANGUAGES.get(voice.language.partition("-")[0].lower())):
            fields["lang"] = language
        if voice.speed != 1.0:
            fields["speedAlpha"] = f"{1 / voice.speed if voice.model in SLOWER_IS_MORE else voice.speed:g}"
        return f"/ws3?{urlencode(fields | self._extra)}"

    def read(self, message: str | bytes) -> Iterable[Note[_Message]]:
        decoded_message = decoded(self._address, _decoder, message)
        if decoded_message.type == "error":
            raise self._failure(str(message))
        return (Note(decoded_message.context, decoded_message),)

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        return _TurnCodec(self._address, key)

    def _failure(self, message: str) -> StageError:
        return failures.in_band(self._address, message.encode())


class _TurnCodec:
    def __init__(self, address: ProviderAddress, key: str) -> None:
        self._address, self._key = address, key
        self._n_clauses = self._clause = self._n_done = 0

    @property
    def awaits_answer(self) -> bool:
        return self._n_clauses > self._n_done

    def push(self, clause: str) -> Sequence[str]:
        context = f"{self._key}.{self._n_clauses}"
        self._n_clauses += 1
        return _message(text=f"{clause} ", contextId=context), _message(operation="flush")

    def finish(self) -> Sequence[str]:
        return ()

    def cancel(self) -> Sequence[str] | None:
        return () if self.awaits_answer else None  # the WebSocket's closing message does it

    def decode(self, body: _Message) -> Iterable[TtsEvent]:
        clause = self._clause if body.context is None else int(body.context.rpartition(".")[2])
        for _ in range(self._clause, clause):
            yield ClauseOver()
        self._clause = max(self._clause, clause)
        match body.type:
            case "chunk":
                yield Sound(pcm_of(self._address, body.data))
            case "timestamps" if body.word_timestamps is not None:
                pairs = zip(body.word_timestamps.words, body.word_timestamps.start, strict=False)
                yield Words(tuple(WordTime(word, round(start * 1_000)) for word, start in pairs))
            case "done":
                self._n_done = max(self._n_done, clause + 1)


def _message(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()
