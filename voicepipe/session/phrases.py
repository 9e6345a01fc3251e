"""Cache phrases that are repeated often: each is synthesized once, and its audio is then available at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.errors import StageBroken
from voicepipe.ports.model import Finished, ModelEvent, ModelRequest, TextDelta
from voicepipe.ports.provider_events import CachedSpeech, ProviderChanged, UnusedSpeech
from voicepipe.ports.synthesizer import RATE_HZ, SpeechEvent, Spoken, Synthesizer, Voice
from voicepipe.tasks import AsyncEvent
from voicepipe.turn.clauses import ClauseSplitter

MAX_SOUNDS: Final = 64
"""Number of stored clauses, in all voices; when full, the least recently used clause is dropped."""

Paid = Callable[[str, int], None]
"""Takes the provider that got the request, and the number of characters. Returns at once."""

MAX_SAMPLES: Final = 15 * RATE_HZ
"""A longer clause belongs to no phrase; its audio is not stored, so that 64 clauses stay below 50 MB."""


def clauses_of(words: str) -> list[str]:
    """Return the text split into clauses as the synthesizer gets them."""
    splitter = ClauseSplitter()
    return [*splitter.push(words), *splitter.flush()]


class PhraseCache:
    """The phrases of one agent, for all of its sessions."""

    def __init__(
        self, synthesizer: Synthesizer, *, prepared: tuple[str, ...] = (), repeated: tuple[str, ...] = ()
    ) -> None:
        """`prepared`: phrases that are spoken as soon as their voice is known. `repeated`: phrases of many sessions,
        which are stored when they are spoken for the first time."""
        self.prepared, self.repeated = prepared, repeated
        self._synthesizer = synthesizer
        self._sounds: OrderedDict[tuple[Voice, str], Samples] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    @property
    def name(self) -> str:
        """Return the name of the synthesizer's provider."""
        return self._synthesizer.name

    def sound(self, voice: Voice, words: str) -> Samples | None:
        """Return the phrase's audio, int16 at `RATE_HZ`, (n_samples,); None if a part of it was never spoken."""
        clauses = [self._known(voice, clause) for clause in clauses_of(words)]
        known = [samples for samples in clauses if samples is not None]
        return np.concatenate(known) if known and len(known) == len(clauses) else None

    def has(self, voice: Voice, clause: str) -> bool:
        """Return whether the clause was spoken before."""
        return (voice, clause) in self._sounds

    async def make(self, voice: Voice, clause: str, *, paid: Paid | None = None) -> Samples:
        """Return the clause's audio, spoken now if it was not before; then `paid` gets the charge.

        Raises:
            StageError: the synthesizer failed.
        """
        if (known := self._known(voice, clause)) is not None:
            return known  # while another may be being spoken, or hang
        async with self._one_at_a_time:  # sessions that begin together request the same
            samples = self._known(voice, clause)
            if samples is None:
                bill = _PhraseCost(self.name, len(clause))
                try:
                    samples = await self._spoken(voice, clause, bill)
                finally:  # a synthesizer that fails, or whose session ends meanwhile, has charged for the request
                    if paid is not None:
                        bill.charge(paid)
                self._store((voice, clause), samples)
            return samples

    def _known(self, voice: Voice, clause: str) -> Samples | None:
        """Return the audio and mark it as most recently used: voices that are tried once don't push out the usual
        one."""
        samples = self._sounds.get((voice, clause))
        if samples is not None:
            self._sounds.move_to_end((voice, clause))
        return samples

    def _store(self, key: tuple[Voice, str], samples: Samples) -> None:
        if len(samples) <= MAX_SAMPLES:
            self._sounds[key] = samples
        while len(self._sounds) > MAX_SOUNDS:
            self._sounds.popitem(last=False)

    async def _spoken(self, voice: Voice, clause: str, bill: _PhraseCost) -> Samples:
        pieces = list[Samples]()
        async with self._synthesizer.open(voice) as speech:
            speech.push(clause)
            speech.finish()
            async for event in speech:
                if isinstance(event, Spoken):
                    pieces.append(event.samples)
                else:
                    bill.add(event)
        if not pieces:
            raise StageBroken("tts", provider=self.name, why="the TTS sent no audio", retryable=True)
        return np.concatenate(pieces)


class _PhraseCost:
    """The charge for one clause: the provider, and the number of characters."""

    def __init__(self, provider: str, n_chars: int) -> None:
        self._provider = provider
        self._n_chars = {provider: n_chars}

    def add(self, event: SpeechEvent) -> None:
        """Add what a router reports about its synthesizers."""
        match event:
            case ProviderChanged(provider=provider, n_chars=n_chars):
                self._n_chars[provider] = self._n_chars.get(provider, 0) + n_chars
                self._n_chars[self._provider] -= n_chars
                self._provider = provider
            case UnusedSpeech(provider=provider, n_chars=n_chars):
                self._n_chars[provider] = self._n_chars.get(provider, 0) + n_chars
            case CachedSpeech(provider=provider, n_chars=n_chars):
                self._n_chars[provider] = self._n_chars.get(provider, 0) - n_chars

    def charge(self, paid: Paid) -> None:
        """Report the charge."""
        for provider, n_chars in self._n_chars.items():
            if n_chars > 0:
                paid(provider, n_chars)


class CannedModel:
    """A `Model` that answers with a known text."""

    name = "canned"

    def __init__(self, words: str) -> None:
        self._words = words

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer at once, whatever the request."""
        yield self._events()

    async def _events(self) -> AsyncIterator[ModelEvent]:
        yield TextDelta(self._words)
        yield Finished("stop")

    async def warm(self, request: ModelRequest) -> None:
        """Do nothing."""


class PhraseSynthesizer:
    """A `Synthesizer` for text that is in a phrase cache, or will be."""

    def __init__(self, cache: PhraseCache, synthesizer: Synthesizer) -> None:
        self.name, self.voices = synthesizer.name, synthesizer.voices
        self._cache = cache

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def open(self, voice: Voice) -> AbstractAsyncContextManager[_CannedStream]:
        """Begin one turn's speech."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[_CannedStream]:
        yield _CannedStream(self._cache, voice)


class _CannedStream:
    """One turn's speech from a phrase cache. All clauses are queued before playback starts: a `CannedModel` returns
    them at once."""

    def __init__(self, cache: PhraseCache, voice: Voice) -> None:
        self._cache, self._voice = cache, voice
        self._clauses: list[str] = []  # bounded: one phrase of the settings
        self._finished = AsyncEvent()

    def push(self, clause: str) -> None:
        self._clauses.append(clause)

    def finish(self) -> None:
        self._finished.set()

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        await self._finished.wait()
        for number, clause in enumerate(self._clauses):
            if self._cache.has(self._voice, clause):
                yield CachedSpeech(self._cache.name, len(clause))
            yield Spoken(number, await self._cache.make(self._voice, clause))
