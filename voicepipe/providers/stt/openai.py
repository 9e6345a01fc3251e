"""Speech to text behind OpenAI's audio transcriptions: OpenAI, Groq, Speaches, vLLM and their like.

A request-style ear: it keeps the utterance and asks for its text, all of it, at each flush.
Source of the wire: OpenAI API reference, "Create transcription".
"""

from __future__ import annotations

import asyncio
import io
import wave
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import msgspec
import numpy as np

from voicepipe.errors import StageError
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.openai import OpenAiOptions
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.stt.texts import Texts
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.stages.helpers import Helpers, helpers
from voicepipe.stages.transcriber import (
    Final,
    Heard,
    Hearing,
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptStream,
)

RATE_HZ = 16_000
"""What Whisper and its successors hear; sending more only costs upload time."""

BUFFER_SAMPLES = 120 * RATE_HZ
"""The most of one utterance that is kept: two minutes, 3.8 MB. Vendors take 25 MB."""

SHORTEST_SAMPLES = RATE_HZ // 10
"""OpenAI refuses sound of less than 0.1 s; silence is added up to it."""

UNREAD_TEXTS = 16
"""The most texts that nobody has read yet; past it the requests' tasks wait with their answers, which are small."""

TEXT_BYTES = 1 << 20
"""The most that is read of an answer."""


def open_transcriber(spec: Spec, settings: ProviderSettings) -> Transcriber:
    """The ear `spec.model` at the server that `settings` name.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    options = OpenAiOptions.of(spec, settings)
    return _OpenAiTranscriber(Peer.of("stt", spec, settings, auth_scheme=options.auth_scheme), options)


class _Answer(msgspec.Struct):
    text: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class _OpenAiTranscriber:
    def __init__(self, peer: Peer, options: OpenAiOptions) -> None:
        self.name = peer.name
        self.capabilities = TranscriberCapabilities(rate_hz=RATE_HZ, streams=False)
        self._peer = peer
        self._extra = msgspec.json.decode(options.stt_extra or "{}", type=dict[str, str])

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        return self._open(hearing)

    @asynccontextmanager
    async def _open(self, hearing: Hearing) -> AsyncIterator[TranscriptStream]:
        async with helpers() as owned:
            stream = _Utterances(self, hearing, owned)
            try:
                yield stream
            finally:
                stream.close()

    async def transcribe(self, hearing: Hearing, samples: Samples) -> str:
        """The text of `samples`, int16, (n_samples,), at `RATE_HZ`.

        Raises:
            StageError: the vendor refused, stalled or broke.
        """
        form = self._form(hearing, samples)
        async with http.post(self._peer, "/audio/transcriptions", form=form) as answer:
            body = await answer.body(limit_bytes=TEXT_BYTES)
        try:
            read = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            said = failures.quote(self._peer, body[:80].decode(errors="replace"))
            raise failures.broken(self._peer, f"expected JSON with a text, got {said!r}") from None
        if read.text is None:
            raise failures.in_band(self._peer, body)
        return read.text.strip()

    def _form(self, hearing: Hearing, samples: Samples) -> aiohttp.FormData:
        fields = {"model": hearing.model, "response_format": "json"}
        if hearing.language:
            fields["language"] = hearing.language.partition("-")[0].lower()  # ISO 639-1 is all that vendors take
        if hearing.prompt:
            fields["prompt"] = hearing.prompt
        if hearing.temperature is not None:
            fields["temperature"] = f"{hearing.temperature:g}"
        form = aiohttp.FormData()
        for name, value in (fields | self._extra).items():
            form.add_field(name, value)
        form.add_field("file", _wav(samples), filename="speech.wav", content_type="audio/wav")
        return form


class _Utterances:
    """One session's ear. Each utterance has at most one request under way, the one of its latest flush."""

    def __init__(self, transcriber: _OpenAiTranscriber, hearing: Hearing, owned: Helpers) -> None:
        self._transcriber, self._hearing, self._owned = transcriber, hearing, owned
        self._utterance = 0
        self._pieces: deque[Samples] = deque()
        self._n_samples = 0
        self.dropped_samples = 0
        """How much was forgotten because one utterance went past `BUFFER_SAMPLES`."""
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._heard = Texts(UNREAD_TEXTS)

    def begin(self, utterance: int) -> None:
        self._utterance, self._n_samples = utterance, 0
        self._pieces.clear()

    def push(self, samples: Samples) -> None:
        self._pieces.append(samples)
        self._n_samples += len(samples)
        while self._n_samples - len(self._pieces[0]) >= BUFFER_SAMPLES:  # drop and count
            oldest = self._pieces.popleft()
            self._n_samples -= len(oldest)
            self.dropped_samples += len(oldest)

    def flush(self, flush: int) -> None:
        earlier = self._asking.get(self._utterance)
        if earlier is not None:
            earlier.cancel()
        samples = np.concatenate(self._pieces) if self._pieces else np.zeros(0, dtype=np.int16)
        work = self._ask(self._utterance, flush, samples)
        task = self._owned.start(work, name=f"stt-{self._utterance}-{flush}")
        self._asking[self._utterance] = task
        task.add_done_callback(self._forget)

    def close(self) -> None:
        self._heard.close()

    def __aiter__(self) -> AsyncIterator[Heard]:
        return self._heard

    async def _ask(self, utterance: int, flush: int, samples: Samples) -> None:
        try:
            # Nothing was pushed: nothing can have been said, and vendors refuse an empty file.
            text = await self._transcriber.transcribe(self._hearing, samples) if len(samples) else ""
            outcome: Final | StageError = Final(utterance, flush, text)
        except StageError as error:
            outcome = error
        await self._heard.put(outcome)

    def _forget(self, task: asyncio.Task[None]) -> None:
        for utterance in [u for u, asking in self._asking.items() if asking is task]:
            del self._asking[utterance]


def _wav(samples: Samples) -> io.BytesIO:
    if len(samples) < SHORTEST_SAMPLES:
        samples = np.concatenate([samples, np.zeros(SHORTEST_SAMPLES - len(samples), dtype=np.int16)])
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE_HZ)
        writer.writeframes(samples.astype("<i2", copy=False).tobytes())
    file.seek(0)
    return file
