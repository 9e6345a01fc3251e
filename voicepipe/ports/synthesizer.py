"""The TTS port: clauses in, streamed speech out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from voicepipe.ports.provider_events import CachedSpeech, ProviderChanged, SynthesizerConnected, UnusedSpeech
from voicepipe.ports.transcriber import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """The parameters of speech."""

    model: str
    """The model's name at its provider."""

    voice: str | None = None
    """The voice's name at its provider, or None for the provider's own choice."""

    speed: float = 1.0
    language: str | None = None

    pronunciations: tuple[tuple[str, str], ...] = ()
    """Written words, and how they are spelled for the synthesizer. Applied to the text before it gets it."""

    session: str = field(default="", compare=False)
    """Opaque and stable within a session, which must keep one voice. Only a router reads it."""


class WordTime(Struct, frozen=True):
    """A word, and when it begins in its clause's audio."""

    word: str
    start_ms: int


class Spoken(Struct, frozen=True):
    """Part of a clause's audio.

    `clause` counts the turn's clauses from 0 in the order of `push`, and never decreases. `samples`: int16,
    (n_samples,), at `RATE_HZ`; any length but 0.
    """

    clause: int
    samples: Samples
    words: tuple[WordTime, ...] = ()
    cached: bool = False
    """Whether it was played from the cache on disk: it does not measure the provider's health or speed."""


SpeechEvent = Spoken | SynthesizerConnected | ProviderChanged | UnusedSpeech | CachedSpeech
"""Audio, and what a provider or a router reports beside it."""

RATE_HZ = 24_000
"""The sample rate of all synthesized speech inside voicepipe; a provider with another rate resamples in its adapter."""


class Speech(Protocol):
    """The speech of one turn."""

    def push(self, clause: str) -> None:
        """Queue a clause after those before it. Returns at once."""
        ...

    def finish(self) -> None:
        """End the input: `__aiter__` ends after the audio of the last clause."""
        ...

    def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        """Yield audio in the order of the clauses, as soon as it arrives. Other events come ahead of audio that waits.

        A consumer that stops iterating makes the provider wait.

        Raises:
            StageError: the provider refused, stalled or broke.
        """
        ...


class Synthesizer(Protocol):
    """Converts clauses to speech. One instance serves many turns at once."""

    name: str
    """The spec from the settings, `local/hibari`."""

    voices: frozenset[str] | None
    """The names of its voices; None when only its provider has them."""

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Keep the resources of `open` ready while a session may need such speech. Returns at once, never fails."""
        ...

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Start one turn's speech.

        Leaving the context releases the provider within 100 ms, also when cancelled.

        Raises:
            StageError: the provider could not be reached or refused.
        """
        ...


def audio_of(speech: Speech) -> AsyncIterator[Spoken]:
    """Return the audio of a turn's speech, without the events beside it. It raises what the speech raises."""
    return _Audio(speech)


class _Audio:
    # No generator: one would end where a read is cancelled.
    def __init__(self, speech: Speech) -> None:
        self._events = aiter(speech)

    def __aiter__(self) -> _Audio:
        return self

    async def __anext__(self) -> Spoken:
        while not isinstance(event := await anext(self._events), Spoken):
            pass
        return event
