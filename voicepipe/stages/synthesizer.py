"""The voice's port: clauses in, speech out, streaming."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from voicepipe.stages.notes import VoiceNote
from voicepipe.stages.transcriber import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """How to speak."""

    model: str
    """The model's name at its provider."""

    voice: str | None = None
    """The voice's name at its provider, or None for the provider's own choice."""

    speed: float = 1.0
    language: str | None = None

    reached: Callable[[int], None] | None = field(default=None, compare=False, repr=False)
    """Called once when a connection that is kept between turns is there, with how many ms of connecting were over when
    the turn began. Returns at once."""

    session: str = field(default="", compare=False)
    """Opaque and stable through a session, which is to hear one voice. Only a router reads it."""

    note: VoiceNote | None = field(default=None, compare=False, repr=False)
    """Told when another than the first choice speaks, and what was said for nothing, in either sense. Only a router
    calls it."""


@dataclass(frozen=True, slots=True)
class WordTime:
    """A word, and when it begins in its clause's audio."""

    word: str
    start_ms: int


@dataclass(frozen=True, slots=True)
class Spoken:
    """Some of a clause's sound.

    `clause` counts the turn's clauses from 0 in the order of `say`, and never goes back.
    `samples`: int16, (n_samples,), at `RATE_HZ`; any length but 0.
    """

    clause: int
    samples: Samples
    words: tuple[WordTime, ...] = ()


RATE_HZ = 24_000
"""The rate of all synthesized speech inside voicepipe; a provider with another rate resamples at its edge."""


class Speech(Protocol):
    """One turn's voice."""

    def say(self, clause: str) -> None:
        """Speak this clause after those before it. Returns at once."""
        ...

    def finish(self) -> None:
        """No clause follows: `__aiter__` ends after the sound of the last one."""
        ...

    def __aiter__(self) -> AsyncIterator[Spoken]:
        """Sound, in the order of the clauses, as soon as it is there.

        A consumer that stops iterating makes the provider wait.

        Raises:
            StageError: the provider refused, stalled or broke.
        """
        ...


class Synthesizer(Protocol):
    """Turns clauses into speech. One instance serves many turns at once."""

    name: str
    """The spec that the settings know it by, `local/hibari`."""

    voices: frozenset[str] | None
    """The names that it takes as a voice; None when only its provider knows them."""

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Have what `open` needs ready for as long as a session may want to speak so. Returns at once, never fails."""
        ...

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech.

        Leaving the context frees the provider's side within 100 ms, also when cancelled.

        Raises:
            StageError: the provider could not be reached or refused.
        """
        ...
