"""An STT without a socket, driven by cues or by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import numpy as np

from voicepipe.errors import StageError
from voicepipe.ports.transcriber import (
    EndOfTurn,
    Final,
    Interim,
    Samples,
    TranscriberCapabilities,
    TranscriptEvent,
    TranscriptionOptions,
)
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.testing.fakes.cues import CuePoints, SttCue
from voicepipe.testing.fakes.faults import Faults
from voicepipe.testing.fakes.script import ReceivedRequest, Script

REQUEST_STYLE = TranscriberCapabilities(rate_hz=16_000, streams=False)


class ReceivedFlush(ReceivedRequest):
    """One flush of a `FakeTranscriber`'s stream; `question` is the stream's `TranscriptionOptions`."""

    question: TranscriptionOptions

    def __init__(
        self, question: TranscriptionOptions, stream: FakeTranscriptStream, utterance: int, flush: int, samples: Samples
    ) -> None:
        super().__init__(question)
        self.utterance, self.flush, self.samples = utterance, flush, samples
        self._stream = stream

    def record_end(self, answering: asyncio.Task[None]) -> None:
        """Record how the answer by cue ended; a cancelled task may never have begun."""
        if answering.cancelled():
            self.gone.set()
        self.ended.set()

    def answer(self, text: str, language: str | None = None) -> None:
        """Send the final text of the flush."""
        self.ended.set()
        self._stream.emit(Final(self.utterance, self.flush, text, language))


class FakeTranscriptStream:
    """One session's STT stream. The test may send texts with `emit`, and break the stream with `fail`."""

    def __init__(
        self, transcriber: FakeTranscriber, transcription: TranscriptionOptions, owned: BackgroundTasks
    ) -> None:
        self.transcription = transcription
        self.utterance = 0
        self.left = asyncio.Event()
        """Set when the session closed the stream."""
        self._transcriber, self._owned = transcriber, owned
        self._pieces: list[Samples] = []
        self._answering: dict[int, asyncio.Task[None]] = {}
        # Never full: a test sends a few texts, and ends.
        self._texts: asyncio.Queue[TranscriptEvent | StageError | None] = asyncio.Queue()
        self._failure: StageError | None = None

    @property
    def samples(self) -> Samples:
        """Return the audio since `begin`: int16, (n_samples,)."""
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, dtype=np.int16)

    def begin(self, utterance: int) -> None:
        """Begin an utterance: `samples` restarts here."""
        self.utterance, self._pieces = utterance, []

    def push(self, samples: Samples) -> None:
        """Store the audio for the test."""
        self._pieces.append(samples)

    def flush(self, flush: int) -> None:
        """Answer as the next cue requires; cancel an earlier unanswered flush of the utterance."""
        earlier = self._answering.get(self.utterance)
        if earlier is not None:
            earlier.cancel()
        script = self._transcriber.script
        received = script.arrive(ReceivedFlush(self.transcription, self, self.utterance, flush, self.samples))
        if (cue := script.take(received)) is not None:
            work = self._answer(received, cue)
            task = self._owned.start(work, name=f"fake-stt-{self.utterance}-{flush}")
            task.add_done_callback(received.record_end)
            self._answering[self.utterance] = task

    def emit(self, text: Interim | Final | EndOfTurn) -> None:
        """Send the session a text, or the judgement of an end."""
        self._texts.put_nowait(text)

    def fail(self, error: StageError) -> None:
        """Break the stream: its iteration raises `error`."""
        self._texts.put_nowait(error)

    def close(self) -> None:
        """Record that the session closed the stream."""
        self.left.set()
        self._texts.put_nowait(None)

    def __aiter__(self) -> FakeTranscriptStream:
        return self

    async def __anext__(self) -> TranscriptEvent:
        while self._failure is None and not self.left.is_set():
            text = await self._texts.get()
            if isinstance(text, StageError):
                self._failure = text
            elif text is not None:
                return text
        raise self._failure or StopAsyncIteration

    async def _answer(self, received: ReceivedFlush, cue: SttCue) -> None:
        faults = self._transcriber.faults
        try:
            await faults.before(cue.fault)
            await asyncio.sleep(cue.delay_ms / 1_000)
            await faults.reach(CuePoints(cue.fault, cue.hold), 1_000_000)  # a text is one piece: any position is in it
            received.answer(cue.text, cue.language)
        except StageError as error:
            self.fail(error)


class FakeTranscriber:
    """Implements the port `Transcriber`. With a usual cue of None the test answers flushes."""

    def __init__(
        self,
        usual: SttCue | Callable[[ReceivedFlush], SttCue | None] | None = None,
        *,
        name: str = "fake/stt",
        capabilities: TranscriberCapabilities = REQUEST_STYLE,
        idle_timeout_ms: int = 15_000,
    ) -> None:
        self.name, self.capabilities = name, capabilities
        self.script: Script[SttCue | None, ReceivedFlush] = Script(cast("Callable[[Any], SttCue | None]", usual))
        self.faults = Faults("stt", name, idle_timeout_ms)
        self.streams: list[FakeTranscriptStream] = []
        """The streams, in the order in which sessions opened them."""

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[FakeTranscriptStream]:
        """Open one session's stream."""
        return self._open(transcription)

    @asynccontextmanager
    async def _open(self, transcription: TranscriptionOptions) -> AsyncIterator[FakeTranscriptStream]:
        async with background_tasks() as owned:
            stream = FakeTranscriptStream(self, transcription, owned)
            self.streams.append(stream)
            try:
                yield stream
            finally:
                stream.close()
