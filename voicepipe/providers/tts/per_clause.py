"""TTS with one request for each clause: the common part of all such vendors.

While a clause's audio is passed on, the next one is already requested. A vendor module adds the request itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from voicepipe.audio.samples import Samples
from voicepipe.errors import StageError, StageRefused
from voicepipe.ports.synthesizer import Speech, Spoken, Voice
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.tasks import BackgroundTasks, background_tasks

AHEAD = 1
"""Clauses that are requested ahead. One hides the next request's latency; more would be wasted at an interruption."""

MAX_CLAUSES = 1_024
"""Maximum number of waiting clauses. A turn has tens."""

Stream = Callable[[Voice, str, Callable[[Samples], Awaitable[None]]], Awaitable[None]]
"""Passes a clause's audio to a function as it arrives: int16, (n_samples,), never empty, at the port's rate.

Raises: StageError: the vendor refused, stalled or broke.
"""


@asynccontextmanager
async def per_clause(address: ProviderAddress, stream: Stream, voice: Voice) -> AsyncIterator[Speech]:
    """Yield one turn's speech."""
    async with background_tasks() as owned:
        speech = _Clauses(address, stream, voice, owned)
        try:
            yield speech
        finally:
            speech.close()


class _Clause:
    """A clause in progress: its request's task fills the queue, and ends it with None or a failure."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self.text = number, text
        # Full means that the turn has 2 s of this clause buffered: the task waits, so the vendor's socket fills.
        self.sound: asyncio.Queue[Samples | StageError | None] = asyncio.Queue(maxsize=10)

    def abandon(self) -> None:
        """Mark the end of the clause's audio."""
        if self.sound.empty():
            self.sound.put_nowait(None)


class _Clauses:
    """The speech of one turn."""

    def __init__(self, address: ProviderAddress, stream: Stream, voice: Voice, owned: BackgroundTasks) -> None:
        self._address, self._stream, self._voice, self._owned = address, stream, voice, owned
        self._n_clauses = 0
        # Full means a turn without end: refuse, and the iterator raises it.
        self._waiting: deque[_Clause] = deque()
        self._requested: deque[_Clause] = deque()  # at most 1 + AHEAD, bounded by _ask
        self._changed = asyncio.Event()
        self._finished = False
        self._failure: StageError | None = None

    def push(self, clause: str) -> None:
        if len(self._waiting) == MAX_CLAUSES:
            why = f"expected at most {MAX_CLAUSES} waiting clauses, got more"
            self._failure = StageRefused(self._address.stage, provider=self._address.name, why=why, retryable=False)
            return
        self._waiting.append(_Clause(self._n_clauses, clause))
        self._n_clauses += 1
        self._request_next()

    def finish(self) -> None:
        self._finished = True
        self._changed.set()

    def close(self) -> None:
        """End the speech; wake the waiting iterator."""
        self._waiting.clear()
        for clause in self._requested:
            clause.abandon()
        self._requested.clear()
        self.finish()

    def __aiter__(self) -> _Clauses:
        return self

    async def __anext__(self) -> Spoken:
        while self._failure is None:
            while not self._requested:
                if self._finished:
                    raise StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
            clause = self._requested[0]
            sound = await clause.sound.get()
            if isinstance(sound, StageError):
                self._failure = sound
            elif sound is not None:
                return Spoken(clause.number, sound)
            elif self._requested:  # empty once the context is left
                self._requested.popleft()
                self._request_next()
        raise self._failure

    def _request_next(self) -> None:
        while self._waiting and len(self._requested) <= AHEAD:
            clause = self._waiting.popleft()
            self._requested.append(clause)
            self._owned.start(self._speak(clause), name=f"tts-clause-{clause.number}")
        self._changed.set()

    async def _speak(self, clause: _Clause) -> None:
        end: StageError | None = None
        try:
            await self._stream(self._voice, clause.text, clause.sound.put)
        except StageError as error:
            end = error
        await clause.sound.put(end)
