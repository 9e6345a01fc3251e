"""Text to speech behind OpenAI's audio speech: OpenAI, Groq, Kokoro-FastAPI, Speaches and similar servers.

One request for each clause. While a clause's audio is passed on, the next one's request is already in progress. Source
of the wire: OpenAI API reference, "Create speech"; by its guide `pcm` is 24 kHz, 16 bit, little-endian.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import msgspec

from voicepipe.audio.samples import Samples
from voicepipe.ports.synthesizer import Speech, Synthesizer, Voice
from voicepipe.providers.net import connection_pool, failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.options import OpenAiOptions, extra
from voicepipe.providers.tts.decode_audio import NotSpeech, SoundReader
from voicepipe.providers.tts.per_clause import per_clause
from voicepipe.registry import ProviderSettings, Spec


def open_synthesizer(spec: Spec, settings: ProviderSettings) -> Synthesizer:
    """Return the TTS `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    return _OpenAiSynthesizer(ProviderAddress.of("tts", spec, settings, auth_scheme=options.auth_scheme), options)


class _OpenAiSynthesizer:
    def __init__(self, address: ProviderAddress, options: OpenAiOptions) -> None:
        self.name = address.name
        self.voices: frozenset[str] | None = None
        self._address, self._options = address, options
        self._extra = extra(options.tts_extra)

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        return connection_pool.preconnected(self._address, "/models")

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        return per_clause(self._address, self.stream, voice)

    async def stream(self, voice: Voice, clause: str, deliver: Callable[[Samples], Awaitable[None]]) -> None:
        """Pass the clause's audio to `deliver` as it arrives: int16, (n_samples,), never empty, at the port's rate.

        Raises:
            StageError: the vendor refused, stalled or broke.
        """
        async with http.post(self._address, "/audio/speech", json=self._body(voice, clause)) as answer:
            if answer.content_type.endswith("json") or answer.content_type.startswith("text/"):
                raise failures.in_band(self._address, await answer.body(limit_bytes=http.ERROR_BODY_BYTES))
            try:
                reader = SoundReader(answer.header.get("Content-Type", ""), rate_hz=self._options.speech_rate_hz)
                while chunk := await answer.read():
                    if len(samples := reader.push(chunk)):
                        await deliver(samples)
            except NotSpeech as error:
                raise failures.broken(self._address, str(error), retryable=False) from None
            if len(samples := reader.finish()):
                await deliver(samples)
            if not reader.n_samples and any(map(str.isalnum, clause)):
                raise failures.broken(self._address, "the answer had no audio")

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
