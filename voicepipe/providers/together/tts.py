"""Text to speech by the models that Together hosts, over its WebSocket `/audio/speech/websocket`.

The WebSocket holds one turn at a time, since its events name no turn. Each clause is committed by itself and answered
by one `done`. The service confirms no `clear`, so that a turn that is cancelled during synthesis closes its WebSocket.
Sources: Together docs, "WebSocket API" and "Streaming" of text to speech, and the reference of the WebSocket; its guide
for coding agents, for the parameters of the address; pipecat's client. Unverified: that `segment=never` holds a clause
of several sentences together; that word times begin with each clause; how long a WebSocket may be idle. Models that it
serves without a WebSocket are reached as an API of kind `openai`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

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

VOICES: Final[Mapping[str, str]] = {"hexgrad/Kokoro-82M": "af_heart", "canopylabs/orpheus-3b-0.1-ft": "tara"}
"""Default voices: those of the examples in the docs and in pipecat's client. Other models have none."""

CLEAR: Final = '{"type":"input_text_buffer.clear"}'
COMMIT: Final = '{"type":"input_text_buffer.commit"}'
PREFIX: Final = "conversation.item."

PLAN: Final = SharingRules(line=SocketRules(farewell=CLEAR, pong_ms=PONG_MS), confirms_cancel=False, idle_ms=60_000)


class _Message(msgspec.Struct):
    type: str
    delta: str = ""
    words: list[str] = []
    start_seconds: list[float] = []


_decoder = msgspec.json.Decoder(_Message)


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    readers: dict[str, options.Read] = {"tts_voice": str, "tts_extra": options.json_object(str)}
    chosen = options.read("together", readers, spec, settings, stage="tts")
    address = ProviderAddress.of("tts", spec, settings, scheme="ws")
    return StreamedSynthesizer(address, _Wire(address, **chosen))


class _Wire:
    plan = PLAN

    def __init__(self, address: ProviderAddress, *, tts_voice: str = "", tts_extra: str = "") -> None:
        self._address, self._voice, self._extra = address, tts_voice, options.members(tts_extra, str)

    def path(self, voice: Voice) -> str:
        query = {"model": voice.model}
        if name := voice.voice or self._voice or VOICES.get(voice.model):
            query["voice"] = name
        query |= {"response_format": "pcm", "sample_rate": str(RATE_HZ), "segment": "never", "alignment": "word"}
        if voice.speed != 1.0:
            query["speed"] = f"{voice.speed:g}"
        return f"/audio/speech/websocket?{urlencode(query | self._extra)}"

    def read(self, message: str | bytes) -> Iterable[Note[_Message]]:
        event = decoded(self._address, _decoder, message)
        if event.type in ("error", f"{PREFIX}tts.failed"):
            raise failures.in_band(self._address, str(message).encode())
        return (Note(None, event),)

    def begin(self, key: str, voice: Voice) -> _TurnCodec:
        return _TurnCodec(self._address)


class _TurnCodec:
    def __init__(self, address: ProviderAddress) -> None:
        self._address = address
        self._n_unfinished = 0

    @property
    def awaits_answer(self) -> bool:
        return self._n_unfinished > 0

    def push(self, clause: str) -> Sequence[str]:
        self._n_unfinished += 1
        return _message(type="input_text_buffer.append", text=f"{clause} "), COMMIT

    def finish(self) -> Sequence[str]:
        return ()

    def cancel(self) -> Sequence[str] | None:
        return () if self.awaits_answer else None  # the WebSocket's closing message does it

    def decode(self, body: _Message) -> Iterable[TtsEvent]:
        match body.type.removeprefix(PREFIX):
            case "audio_output.delta":
                yield Sound(pcm_of(self._address, body.delta))
            case "word_timestamps":
                pairs = zip(body.words, body.start_seconds, strict=False)
                yield Words(tuple(WordTime(word, round(start * 1_000)) for word, start in pairs))
            case "audio_output.done" if self._n_unfinished:
                self._n_unfinished -= 1
                yield ClauseOver()


def _message(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()
