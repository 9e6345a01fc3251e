"""An ear without a socket, driven by cues or by the test's own hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import numpy as np

from voicepipe.errors import StageError
from voicepipe.stages.helpers import Helpers, helpers
from voicepipe.stages.transcriber import Final, Heard, Hearing, Interim, Samples, TranscriberCapabilities
from voicepipe.testing.fakes.cues import Course, SttCue
from voicepipe.testing.fakes.desk import Asked, Desk
from voicepipe.testing.fakes.failing import Failing

REQUEST_STYLE = TranscriberCapabilities(rate_hz=16_000, streams=False)


class AskedEar(Asked):
    """One flush of a `FakeTranscriber`'s stream; `question` is the stream's `Hearing`."""

    question: Hearing

    def __init__(self, question: Hearing, ear: FakeEar, utterance: int, flush: int, samples: Samples) -> None:
        super().__init__(question)
        self.utterance, self.flush, self.samples = utterance, flush, samples
        self._ear = ear

    def settle(self, answering: asyncio.Task[None]) -> None:
        """Note how the answering by cue ended; a task that was cancelled may never have begun."""
        if answering.cancelled():
            self.gone.set()
        self.ended.set()

    def answer(self, text: str, language: str | None = None) -> None:
        """Give the text of what was flushed."""
        self.ended.set()
        self._ear.hear(Final(self.utterance, self.flush, text, language))


class FakeEar:
    """One session's ear. The test may push texts of its own accord with `hear`, and break it with `fail`."""

    def __init__(self, transcriber: FakeTranscriber, hearing: Hearing, owned: Helpers) -> None:
        self.hearing = hearing
        self.utterance = 0
        self.left = asyncio.Event()
        """The session closed the stream."""
        self._transcriber, self._owned = transcriber, owned
        self._pieces: list[Samples] = []
        self._asking: dict[int, asyncio.Task[None]] = {}
        # Never full: a test says what it likes, and ends.
        self._heard: asyncio.Queue[Heard | StageError | None] = asyncio.Queue()
        self._failure: StageError | None = None

    @property
    def samples(self) -> Samples:
        """What was pushed since `begin`: int16, (n_samples,)."""
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, dtype=np.int16)

    def begin(self, utterance: int) -> None:
        """Count from here."""
        self.utterance, self._pieces = utterance, []

    def push(self, samples: Samples) -> None:
        """Keep what was heard, for the test to look at."""
        self._pieces.append(samples)

    def flush(self, flush: int) -> None:
        """Answer as the next cue says, instead of any earlier flush of the utterance that is still unanswered."""
        earlier = self._asking.get(self.utterance)
        if earlier is not None:
            earlier.cancel()
        desk = self._transcriber.desk
        asked = desk.arrive(AskedEar(self.hearing, self, self.utterance, flush, self.samples))
        if (cue := desk.take(asked)) is not None:
            work = self._answer(asked, cue)
            task = self._owned.start(work, name=f"fake-stt-{self.utterance}-{flush}")
            task.add_done_callback(asked.settle)
            self._asking[self.utterance] = task

    def hear(self, heard: Interim | Final) -> None:
        """Give the session a text."""
        self._heard.put_nowait(heard)

    def fail(self, error: StageError) -> None:
        """Break: what iterates raises `error`."""
        self._heard.put_nowait(error)

    def close(self) -> None:
        """The session has left."""
        self.left.set()
        self._heard.put_nowait(None)

    def __aiter__(self) -> FakeEar:
        return self

    async def __anext__(self) -> Heard:
        while self._failure is None and not self.left.is_set():
            heard = await self._heard.get()
            if isinstance(heard, StageError):
                self._failure = heard
            elif heard is not None:
                return heard
        raise self._failure or StopAsyncIteration

    async def _answer(self, asked: AskedEar, cue: SttCue) -> None:
        failing = self._transcriber.failing
        try:
            await failing.before(cue.fault)
            await asyncio.sleep(cue.delay_ms / 1_000)
            await failing.reach(Course(cue.fault, cue.hold), 1_000_000)  # a text is one piece: any position is in it
            asked.answer(cue.text, cue.language)
        except StageError as error:
            self.fail(error)


class FakeTranscriber:
    """Meets the port `Transcriber`. A usual cue of None leaves the answering of flushes to the test."""

    def __init__(
        self,
        usual: SttCue | Callable[[AskedEar], SttCue | None] | None = None,
        *,
        name: str = "fake/ear",
        capabilities: TranscriberCapabilities = REQUEST_STYLE,
        idle_timeout_ms: int = 15_000,
    ) -> None:
        self.name, self.capabilities = name, capabilities
        self.desk: Desk[SttCue | None, AskedEar] = Desk(cast("Callable[[Any], SttCue | None]", usual))
        self.failing = Failing("stt", name, idle_timeout_ms)
        self.ears: list[FakeEar] = []
        """The streams, in the order in which sessions opened them."""

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[FakeEar]:
        """Begin one session's ear."""
        return self._open(hearing)

    @asynccontextmanager
    async def _open(self, hearing: Hearing) -> AsyncIterator[FakeEar]:
        async with helpers() as owned:
            ear = FakeEar(self, hearing, owned)
            self.ears.append(ear)
            try:
                yield ear
            finally:
                ear.close()
