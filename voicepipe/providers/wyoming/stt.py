"""Speech to text by servers of the user's own network that speak Wyoming, such as faster-whisper's.

An utterance is sent at each flush, on its own connection: there is no other way to cancel a request. Source: the README
of the package `wyoming`, "Speech to Text". Servers that send their text in pieces (`transcript-chunk`) finally send all
of it, too.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from voicepipe.ports.transcriber import (
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptionOptions,
    TranscriptStream,
)
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.stt.batch import Transcribed, batch
from voicepipe.providers.stt.keyterms import terms
from voicepipe.providers.wyoming import protocol
from voicepipe.registry import ProviderSettings, Spec

RATE_HZ: Final = 16_000

BUFFER_SAMPLES: Final = 120 * RATE_HZ
"""Maximum buffered audio of one utterance: two minutes, 3.8 MB."""

PIECE_SAMPLES: Final = RATE_HZ
"""Audio in one event."""

KEY_TERMS: Final = 50
"""A limit of this adapter."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`; the model `default` is the server's own choice.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    return _WyomingTranscriber(protocol.peer_of("stt", spec, settings))


class _WyomingTranscriber:
    def __init__(self, address: ProviderAddress) -> None:
        self.name = address.name
        self.capabilities = TranscriberCapabilities(rate_hz=RATE_HZ, streams=False)
        self._address = address

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        return batch(self._transcribe, transcription, buffer_samples=BUFFER_SAMPLES)

    async def _transcribe(self, transcription: TranscriptionOptions, samples: Samples) -> Transcribed:
        sound = protocol.sound(RATE_HZ)
        async with protocol.connected(self._address) as line:
            await line.write("transcribe", _question(transcription))
            await line.write("audio-start", sound)
            for at in range(0, len(samples), PIECE_SAMPLES):
                piece = samples[at : at + PIECE_SAMPLES].astype("<i2", copy=False)
                await line.write("audio-chunk", sound, piece.tobytes())
            await line.write("audio-stop", {"timestamp": None})
            while (event := await line.read()).type != "transcript":
                pass  # pieces of the text, and the server's description
        text = event.data.get("text")
        if not isinstance(text, str):
            raise failures.broken(self._address, "expected a transcript with a text")
        return Transcribed(text.strip())


def _question(transcription: TranscriptionOptions) -> dict[str, Any]:
    question: dict[str, Any] = {}
    if transcription.model != "default":
        question["name"] = transcription.model
    if transcription.language:
        question["language"] = transcription.language.partition("-")[0].lower()
    if words := terms(transcription.prompt, KEY_TERMS):
        question["transcript_terms"] = words
    return question
