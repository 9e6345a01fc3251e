"""Speech to text behind OpenAI's audio transcriptions: OpenAI, Groq, Speaches, vLLM and similar servers.

It keeps the utterance and requests the text of all of it at each flush. Sources of the wire: OpenAI API reference,
"Create transcription" and "Create translation".
"""

from __future__ import annotations

import io
import re
import wave
from contextlib import AbstractAsyncContextManager

import aiohttp
import msgspec
import numpy as np

from voicepipe.audio.timed_words import TimedWord
from voicepipe.ports.transcriber import (
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptionOptions,
    TranscriptStream,
)
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.options import OpenAiOptions
from voicepipe.providers.stt.batch import Transcribed, batch
from voicepipe.registry import ProviderSettings, Spec

RATE_HZ = 16_000
"""The sample rate of Whisper and its successors; a higher one only costs upload time."""

BUFFER_SAMPLES = 120 * RATE_HZ
"""Maximum buffered audio of one utterance: two minutes, 3.8 MB. Vendors take 25 MB."""

MIN_SAMPLES = RATE_HZ // 10
"""OpenAI refuses audio of less than 0.1 s; shorter audio is padded with silence."""

NO_TRANSLATION = re.compile(r"turbo|distil|\.en\b")
"""Whisper models that are not trained to translate, or transcribe English only. Source: their model cards."""

TEXT_BYTES = 1 << 20
"""Maximum size of an answer."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """Return the STT `spec.model` at the server of `settings`.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    address = ProviderAddress.of("stt", spec, settings, auth_scheme=options.auth_scheme)
    return _OpenAiTranscriber(address, options, spec.model)


class _Word(msgspec.Struct):
    word: str
    start: float
    end: float


class _Answer(msgspec.Struct):
    text: str | None = None
    words: list[_Word] | None = None
    error: msgspec.Raw = msgspec.Raw()


class _OpenAiTranscriber:
    def __init__(self, address: ProviderAddress, options: OpenAiOptions, model: str) -> None:
        self.name = address.name
        is_whisper = "whisper" in model
        self.capabilities = TranscriberCapabilities(
            rate_hz=RATE_HZ,
            streams=False,
            reports_language=False,
            translates=options.stt_translations and is_whisper and not NO_TRANSLATION.search(model),
            word_times=is_whisper,  # published for these models only
        )
        self._address = address
        self._extra = msgspec.json.decode(options.stt_extra or "{}", type=dict[str, str])

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        return batch(self.transcribe, transcription, buffer_samples=BUFFER_SAMPLES)

    async def transcribe(self, transcription: TranscriptionOptions, samples: Samples) -> Transcribed:
        """Return the text of `samples`, int16, (n_samples,), at `RATE_HZ`.

        Raises:
            StageError: the vendor refused, stalled or broke.
        """
        form = self._form(transcription, samples)
        path = "/audio/translations" if transcription.to_english else "/audio/transcriptions"
        async with http.post(self._address, path, form=form) as answer:
            body = await answer.body(limit_bytes=TEXT_BYTES)
        try:
            read = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            quoted = failures.quote(self._address, body[:80].decode(errors="replace"))
            raise failures.broken(self._address, f"expected JSON with a text, got {quoted!r}") from None
        if read.text is None:
            raise failures.in_band(self._address, body)
        return Transcribed(read.text.strip(), tuple(TimedWord(w.start, w.end, w.word) for w in read.words or ()))

    def _form(self, transcription: TranscriptionOptions, samples: Samples) -> aiohttp.FormData:
        fields = {"model": transcription.model, "response_format": "json"}
        if transcription.word_times:
            fields |= {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
        if transcription.language and not transcription.to_english:
            fields["language"] = transcription.language.partition("-")[0].lower()  # ISO 639-1 is all that vendors take
        if transcription.prompt:
            fields["prompt"] = transcription.prompt
        if transcription.temperature is not None:
            fields["temperature"] = f"{transcription.temperature:g}"
        form = aiohttp.FormData()
        for name, value in (fields | self._extra).items():
            form.add_field(name, value)
        form.add_field("file", _wav(samples), filename="speech.wav", content_type="audio/wav")
        return form


def _wav(samples: Samples) -> io.BytesIO:
    if len(samples) < MIN_SAMPLES:
        samples = np.concatenate([samples, np.zeros(MIN_SAMPLES - len(samples), dtype=np.int16)])
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE_HZ)
        writer.writeframes(samples.astype("<i2", copy=False).tobytes())
    file.seek(0)
    return file
