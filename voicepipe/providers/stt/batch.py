"""STT with one request per flush, for the whole utterance: the common part of all such vendors.

A vendor module adds the request itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
from msgspec import Struct

from voicepipe.audio.timed_words import TimedWord
from voicepipe.errors import StageError
from voicepipe.ports.transcriber import Final, Samples, TranscriptEvent, TranscriptionOptions, TranscriptStream
from voicepipe.providers.stt.transcript_queue import TranscriptQueue
from voicepipe.tasks import BackgroundTasks, background_tasks

UNREAD_TEXTS = 16
"""Maximum number of unread texts; beyond it the requests' tasks wait with their answers, which are small."""


class Transcribed(Struct, frozen=True):
    """The answer to one request."""

    text: str
    words: tuple[TimedWord, ...] = ()
    """The words with their times in the samples, where they were requested."""


Transcribe = Callable[[TranscriptionOptions, Samples], Awaitable[Transcribed]]
"""Returns the text of samples, int16, (n_samples,), never empty. Cancelling it cancels the request.

Raises: StageError: the vendor refused, stalled or broke.
"""


@asynccontextmanager
async def batch(
    transcribe: Transcribe, transcription: TranscriptionOptions, *, buffer_samples: int
) -> AsyncIterator[TranscriptStream]:
    """Yield one session's STT stream; the latest `buffer_samples` of an utterance are buffered."""
    async with background_tasks() as owned:
        stream = _Utterances(transcribe, transcription, buffer_samples, owned)
        try:
            yield stream
        finally:
            stream.close()


class _Utterances:
    """The STT stream of one session. Each utterance has at most one running request, that of its latest flush."""

    def __init__(
        self, transcribe: Transcribe, transcription: TranscriptionOptions, buffer_samples: int, owned: BackgroundTasks
    ) -> None:
        self._transcribe, self._transcription, self._owned = transcribe, transcription, owned
        self._buffer_samples = buffer_samples
        self._utterance = 0
        self._pieces: deque[Samples] = deque()
        self._n_samples = 0
        self.dropped_samples = 0
        """Samples dropped because one utterance exceeded `buffer_samples`."""
        self._running: dict[int, asyncio.Task[None]] = {}
        self._texts = TranscriptQueue(UNREAD_TEXTS)

    def begin(self, utterance: int) -> None:
        self._utterance, self._n_samples = utterance, 0
        self._pieces.clear()

    def push(self, samples: Samples) -> None:
        self._pieces.append(samples)
        self._n_samples += len(samples)
        while self._n_samples - len(self._pieces[0]) >= self._buffer_samples:  # drop and count
            oldest = self._pieces.popleft()
            self._n_samples -= len(oldest)
            self.dropped_samples += len(oldest)

    def flush(self, flush: int) -> None:
        earlier = self._running.get(self._utterance)
        if earlier is not None:
            earlier.cancel()
        samples = np.concatenate(self._pieces) if self._pieces else np.zeros(0, dtype=np.int16)
        work = self._transcribe_flush(self._utterance, flush, samples)
        task = self._owned.start(work, name=f"stt-{self._utterance}-{flush}")
        self._running[self._utterance] = task
        task.add_done_callback(self._drop)

    def close(self) -> None:
        self._texts.close()

    def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        return self._texts

    async def _transcribe_flush(self, utterance: int, flush: int, samples: Samples) -> None:
        try:
            # No audio was pushed: there is no speech, and vendors refuse an empty file.
            answer = await self._transcribe(self._transcription, samples) if len(samples) else Transcribed("")
            outcome: Final | StageError = Final(utterance, flush, answer.text, words=answer.words)
        except StageError as error:
            outcome = error
        await self._texts.put(outcome)

    def _drop(self, task: asyncio.Task[None]) -> None:
        for utterance in [u for u, running in self._running.items() if running is task]:
            del self._running[utterance]
