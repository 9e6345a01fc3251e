"""A synthesizer that plays repeated clauses from disk, such as openers.

A clause is stored when it was spoken to its end for the second time. The inner synthesizer speaks every clause that is
not there, or not complete; consecutive clauses go to it together, as one turn of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Final

import msgspec
import numpy as np

from voicepipe.ports.provider_events import CachedSpeech
from voicepipe.ports.synthesizer import RATE_HZ, Speech, SpeechEvent, Spoken, Synthesizer, Voice, WordTime
from voicepipe.ports.transcriber import Samples
from voicepipe.router.tts.audio_cache import MAX_SAMPLES, AudioCache, CachedAudio
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.values import replace

PIECE_SAMPLES: Final = RATE_HZ // 5
"""The length of the pieces played from disk, as a synthesizer's would be."""

_FORMAT: Final = f"pcm16/{RATE_HZ}/1"


class CachedSynthesizer:
    """Meets the port `Synthesizer`, by wrapping another."""

    def __init__(self, inner: Synthesizer, store: AudioCache, *, settings: str = "") -> None:
        """`settings`: every other setting that changes the audio of `inner`, beside voice, model and text; any text."""
        self.name, self.voices = inner.name, inner.voices
        self.inner, self.store = inner, store
        self._settings = settings

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Warm up the inner synthesizer: there is no text yet."""
        return self.inner.keep_warm(voice)

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with background_tasks() as owned:
            speech = _CachingSpeech(self, voice, owned)
            try:
                yield speech
            finally:
                speech.close()

    def key(self, voice: Voice, clause: str) -> str:
        """Return the key for a clause's audio."""
        means = [_FORMAT, self.name, self._settings, voice.model, voice.voice, voice.speed, voice.language, clause]
        return hashlib.sha256(msgspec.json.encode(means)).hexdigest()


class _Run:
    """Consecutive clauses, all from disk (then it is one) or all from the synthesizer."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.keys: list[str] = []
        self.texts: list[str] = []
        self.speech: Speech | None = None
        self.is_finished = False
        # Full means that the turn has audio in hand: the synthesizer waits, and so does its vendor.
        self.sound: asyncio.Queue[SpeechEvent | Exception | None] = asyncio.Queue(maxsize=10)

    def push(self, key: str, clause: str) -> None:
        self.keys.append(key)
        self.texts.append(clause)
        if self.speech is not None:
            self.speech.push(clause)

    def finish(self) -> None:
        self.is_finished = True
        if self.speech is not None:
            self.speech.finish()


class _CachingSpeech:
    """The speech of one turn."""

    def __init__(self, stored: CachedSynthesizer, voice: Voice, owned: BackgroundTasks) -> None:
        self._stored, self._voice, self._owned = stored, voice, owned
        self._runs: deque[_Run] = deque()  # a turn has tens of clauses
        self._events: deque[SpeechEvent] = deque()  # likewise, and some for each of the synthesizer's runs
        self._last: _Run | None = None
        self._n_clauses = 0
        self._finished = self._left = False
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._recording = _Recording()

    # --- the turn -----------------------------------------------------------------------------

    def push(self, clause: str) -> None:
        key = self._stored.key(self._voice, clause)
        is_stored = key in self._stored.store
        if is_stored or self._last is None:
            run = self._begin()
            run.push(key, clause)
            work = self._play_cached(run) if is_stored else self._speak(run)
            self._owned.start(work, name=f"tts-{self._n_clauses}")
            self._last = None if is_stored else run
        else:
            self._last.push(key, clause)
        self._n_clauses += 1

    def finish(self) -> None:
        if self._last is not None:
            self._last.finish()
        self._finished = True
        self._changed.set()

    def close(self) -> None:
        """End the speech; wakes a waiting consumer."""
        self._left = True
        for run in self._runs:
            if run.sound.empty():
                run.sound.put_nowait(None)
        self._changed.set()

    def __aiter__(self) -> _CachingSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        while self._failure is None:
            if self._events and not self._left:
                return self._events.popleft()
            if self._left or (self._finished and not self._runs):
                raise StopAsyncIteration
            if not self._runs:
                self._changed.clear()
                await self._changed.wait()
                continue
            run = self._runs[0]
            piece = await run.sound.get()
            if isinstance(piece, Exception):
                self._failure = piece
            elif piece is None:
                self._keep(run, self._recording.end())
                self._runs.popleft()
            elif not isinstance(piece, Spoken):
                return piece
            else:
                self._keep(run, self._recording.take(piece))
                return replace(piece, clause=run.first + piece.clause)
        raise self._failure

    def _begin(self) -> _Run:
        if self._last is not None:
            self._last.finish()
        run = _Run(self._n_clauses)
        self._runs.append(run)
        self._changed.set()
        return run

    # --- where audio comes from ---------------------------------------------------------------

    async def _play_cached(self, run: _Run) -> None:
        """Play a clause from disk, or let it be spoken if it can't be played."""
        run.is_finished = True
        stored = await self._stored.store.read(run.keys[0])
        if stored is None:
            await self._speak(run)
            return
        self._stored.store.hits += 1
        self._report(CachedSpeech(self._stored.name, len(run.texts[0])))
        run.keys.clear()  # it is stored already
        words = stored.words
        for begin in range(0, len(stored.samples), PIECE_SAMPLES):
            await run.sound.put(Spoken(0, stored.samples[begin : begin + PIECE_SAMPLES], words, cached=True))
            words = ()
        await run.sound.put(None)

    async def _speak(self, run: _Run) -> None:
        end: Exception | None = None
        try:
            async with self._stored.inner.open(self._voice) as speech:
                run.speech = speech
                for text in run.texts:
                    speech.push(text)
                if run.is_finished:
                    speech.finish()
                async for event in speech:
                    if isinstance(event, Spoken):
                        await run.sound.put(event)
                    else:
                        self._report(event)
        except Exception as failure:  # passed on to the consumer, as if there were nothing in between
            end = failure
        self._stored.store.misses += len(run.texts)
        await run.sound.put(end)

    def _report(self, event: SpeechEvent) -> None:
        """Give an event to the consumer, ahead of the audio that waits."""
        first = self._runs[0].sound
        if first.empty():
            first.put_nowait(event)  # the consumer waits here
        else:
            self._events.append(event)

    def _keep(self, run: _Run, whole: tuple[int, CachedAudio] | None) -> None:
        if whole is None or self._left:
            return
        clause, sound = whole
        if clause < len(run.keys) and self._stored.store.was_requested(run.keys[clause]):
            self._stored.store.keep(run.keys[clause], sound)


class _Recording:
    """The audio of the clause that is being recorded."""

    def __init__(self) -> None:
        self._clause = 0
        self._pieces: list[Samples] = []  # below MAX_SAMPLES, and one piece
        self._words: list[WordTime] = []
        self._n_samples = 0

    def take(self, spoken: Spoken) -> tuple[int, CachedAudio] | None:
        """Record a piece; return the clause before, with its number, if this piece belongs to the next one."""
        whole = self.end() if spoken.clause != self._clause else None
        self._clause = spoken.clause
        self._n_samples += len(spoken.samples)
        if self._n_samples <= MAX_SAMPLES:
            self._pieces.append(spoken.samples)
            self._words += spoken.words
        return whole

    def end(self) -> tuple[int, CachedAudio] | None:
        """End the clause; None if it had no audio, or too much."""
        fits = 0 < self._n_samples <= MAX_SAMPLES
        whole = (self._clause, CachedAudio(np.concatenate(self._pieces), tuple(self._words))) if fits else None
        self._clause, self._n_samples = 0, 0
        self._pieces, self._words = [], []
        return whole
