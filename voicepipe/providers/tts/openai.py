"""Text to speech behind OpenAI's audio speech: OpenAI, Groq, Kokoro-FastAPI, Speaches and similar servers.

One request for each clause. While a clause's audio is passed on, the next one's request is already in progress. Source
of the wire: OpenAI API reference, "Create speech"; its guide says that `pcm` is 24 kHz, 16 bit, little-endian.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.providers.net import failures, http, warm
from voicepipe.providers.net.openai import OpenAiOptions, extra
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.tts.asking import asking
from voicepipe.providers.tts.sound import NotSpeech, SoundReader
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.synthesizer import Speech, Synthesizer, Voice


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    return _OpenAiSynthesizer(Peer.of("tts", spec, settings, auth_scheme=options.auth_scheme), options)


class _OpenAiSynthesizer:
    def __init__(self, peer: Peer, options: OpenAiOptions) -> None:
        self.name = peer.name
        self.voices: frozenset[str] | None = None
        self._peer, self._options = peer, options
        self._extra = extra(options.tts_extra)

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return warm.touched(self._peer, "/models")

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return asking(self._peer, self.stream, voice)

    async def stream(self, voice: Voice, clause: str, deliver: Callable[[Samples], Awaitable[None]]) -> None:
        """Pass the clause's audio to `deliver` as it arrives: int16, (n_samples,), never empty, at the port's rate.

        Raises:
            StageError: the vendor refused, stalled or broke.
        """
        async with http.post(self._peer, "/audio/speech", json=self._body(voice, clause)) as answer:
            if answer.content_type.endswith("json") or answer.content_type.startswith("text/"):
                raise failures.in_band(self._peer, await answer.body(limit_bytes=http.ERROR_BODY_BYTES))
            try:
                reader = SoundReader(answer.header.get("Content-Type", ""), rate_hz=self._options.speech_rate_hz)
                while chunk := await answer.read():
                    if len(samples := reader.push(chunk)):
                        await deliver(samples)
            except NotSpeech as error:
                raise failures.broken(self._peer, str(error), retryable=False) from None
            if len(samples := reader.finish()):
                await deliver(samples)
            if not reader.n_samples and any(map(str.isalnum, clause)):
                raise failures.broken(self._peer, "the answer held no sound")

    def _body(self, voice: Voice, clause: str) -> bytes:
        fields: dict[str, Any] = {
            "model": voice.model,
            "input": clause,
            "response_format": self._options.speech_format,
        }
        if name := voice.voice or self._options.default_voice:
            fields["voice"] = name
        if voice.speed != 1.0:
            fields["speed"] = voice.speed
        return msgspec.json.encode(fields | self._extra)
