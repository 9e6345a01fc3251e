"""A TTS without a socket, driven by cues or by the test."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, cast

from voicepipe.errors import StageError
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Voice
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CuePoints, TtsCue
from voicepipe.testing.fakes.faults import Faults
from voicepipe.testing.fakes.script import ReceivedRequest, Script
from voicepipe.testing.fakes.tone import tone


class ReceivedClause(ReceivedRequest):
    """One clause for a `FakeSynthesizer`; `question` is its text. Without a cue the test sends its audio."""

    question: str

    def __init__(self, question: str, voice: Voice, clause: int) -> None:
        super().__init__(question)
        self.voice, self.clause = voice, clause
        # Never full: a test sends a few pieces, and ends.
        self._sent: asyncio.Queue[Samples | StageError | None] = asyncio.Queue()

    def send(self, samples: Samples) -> None:
        """Send more of the clause's audio: int16, (n_samples,), at 24 kHz."""
        self._sent.put_nowait(samples)

    def finish(self) -> None:
        """End the clause's audio."""
        self._sent.put_nowait(None)

    def fail(self, error: StageError) -> None:
        """Raise `error` after the audio sent so far."""
        self._sent.put_nowait(error)

    async def next(self) -> Samples | None:
        """Return the next audio from the test.

        Raises:
            StageError: the test called `fail`.
        """
        sent = await self._sent.get()
        if isinstance(sent, StageError):
            raise sent
        return sent


class FakeSpeech:
    """One turn's synthesis; `clauses` lists its clauses."""

    def __init__(self, synthesizer: FakeSynthesizer, voice: Voice) -> None:
        self.clauses: list[str] = []
        self.finished = False
        self.left = asyncio.Event()
        """Set when the turn closed it."""
        self._synthesizer, self._voice = synthesizer, voice
        self._clauses: deque[tuple[ReceivedClause, TtsCue | None]] = deque()  # a test sends a few clauses
        self._sound: AsyncIterator[Samples] | None = None
        self._changed = asyncio.Event()
        self._failure: StageError | None = None

    def push(self, clause: str) -> None:
        """Synthesize a clause as the next cue requires."""
        script = self._synthesizer.script
        received = script.arrive(ReceivedClause(clause, self._voice, len(self.clauses)))
        self.clauses.append(clause)
        self._clauses.append((received, script.take(clause)))
        self._changed.set()

    def finish(self) -> None:
        """Mark the last clause as sent."""
        self.finished = True
        self._changed.set()

    def close(self) -> None:
        """Record that the turn left the context."""
        for received, _ in self._clauses:
            received.gone.set()
            received.ended.set()
            received.finish()
        self._clauses.clear()
        self.left.set()
        self.finish()

    def __aiter__(self) -> FakeSpeech:
        return self

    async def __anext__(self) -> Spoken:
        while self._failure is None:
            while not self._clauses:
                if self.finished:
                    raise StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
            received, cue = self._clauses[0]
            if self._sound is None:
                self._sound = (
                    _ByHand(received) if cue is None else _ByCue(received.question, cue, self._synthesizer.faults)
                )
            try:
                samples = await anext(self._sound, None)
            except StageError as error:
                received.ended.set()
                self._clauses.popleft()
                self._failure = error
                continue
            if samples is not None:
                return Spoken(received.clause, samples)
            self._sound = None
            received.ended.set()
            if self._clauses:  # empty once the context is left
                self._clauses.popleft()
        raise self._failure


class _ByHand:
    def __init__(self, received: ReceivedClause) -> None:
        self._received = received

    def __aiter__(self) -> _ByHand:
        return self

    async def __anext__(self) -> Samples:
        samples = await self._received.next()
        if samples is None:
            raise StopAsyncIteration
        return samples


class _ByCue:
    def __init__(self, clause: str, cue: TtsCue, faults: Faults) -> None:
        self._cue, self._faults = cue, faults
        self._cue_points = CuePoints(cue.fault, cue.hold)
        self._pieces = _pieces(clause, cue)
        self._position = 0

    def __aiter__(self) -> _ByCue:
        return self

    async def __anext__(self) -> Samples:
        cue = self._cue
        if self._position == 0:
            await self._faults.before(cue.fault)
        await asyncio.sleep((cue.gap_ms if self._position else cue.ttfb_ms) / 1_000)
        await self._faults.reach(self._cue_points, self._position)
        piece = next(self._pieces, None)
        if piece is None:
            if self._cue_points.fault is not None:  # a fault that was due past the end
                raise self._faults.error(self._cue_points.fault)
            raise StopAsyncIteration
        self._position += 2 * len(piece)
        return piece


class FakeSynthesizer:
    """Implements the port `Synthesizer`. With a usual cue of None the test sends the audio of clauses."""

    def __init__(
        self,
        usual: TtsCue | Callable[[str], TtsCue | None] | None = None,
        *,
        name: str = "fake/voice",
        idle_timeout_ms: int = 15_000,
    ) -> None:
        self.name = name
        self.voices: frozenset[str] | None = None
        self.script: Script[TtsCue | None, ReceivedClause] = Script(cast("Callable[[Any], TtsCue | None]", usual))
        self.faults = Faults("tts", name, idle_timeout_ms)
        self.speeches: list[FakeSpeech] = []
        """The syntheses of the turns, in the order in which they were opened."""

        self.warm: list[Voice] = []
        """The voices for which sessions requested a ready connection."""

    @contextmanager
    def keep_warm(self, voice: Voice) -> Iterator[None]:
        """Record in `warm` that a session requests a ready connection for `voice`."""
        self.warm.append(voice)
        try:
            yield
        finally:
            self.warm.remove(voice)

    def open(self, voice: Voice) -> AbstractAsyncContextManager[FakeSpeech]:
        """Begin one turn's speech."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[FakeSpeech]:
        speech = FakeSpeech(self, voice)
        self.speeches.append(speech)
        try:
            yield speech
        finally:
            speech.close()


def _pieces(clause: str, cue: TtsCue) -> Iterator[Samples]:
    """Cut the tone into pieces of the cue's size, with a cut where the fault is due."""
    sound = tone(clause, ms_per_char=cue.ms_per_char, rate_hz=RATE_HZ)
    step = max(1, cue.chunk_bytes // 2)
    places = {0, *range(0, len(sound), step)}
    for due in (cue.fault, cue.hold):
        if due is not None and hasattr(due, "after"):
            places.add(min(due.after // 2, len(sound)))
    ordered = sorted(places)
    for begin, end in zip(ordered, [*ordered[1:], len(sound)], strict=True):
        if end > begin:
            yield sound[begin:end]
