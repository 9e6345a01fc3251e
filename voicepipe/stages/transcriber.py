"""The ear's port: speech in, text out, streaming."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voicepipe.stages.notes import Note

Samples = npt.NDArray[np.int16]
"""Mono PCM, int16, (n_samples,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriberCapabilities:
    """What a speech-to-text provider can do, as data."""

    rate_hz: int
    """The sample rate that `push` takes."""

    streams: bool
    """True: push every frame of the call. False: only the utterance, from `begin` on; the answer comes at `flush`."""

    partials: bool = False
    """Sends `Interim` texts while the caller speaks."""

    finalize: bool = True
    """Answers a `flush` at once, without waiting for its own end of speech."""

    short_words: bool = True
    """Its text of less than a second of speech can be believed. False: it hears words in a hum."""

    turn_events: bool = False
    """Tells by itself that a turn is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """How to listen."""

    model: str
    """The model's name at its provider."""

    language: str | None = None
    """BCP-47, or None to let the provider find out."""

    prompt: str | None = None
    """Words to expect, for providers that take a hint."""

    temperature: float | None = None
    """How freely to guess, 0 to 1, for providers that take it; None leaves it to them."""

    reached: Callable[[int], None] | None = field(default=None, compare=False, repr=False)
    """Called once when a connection that is kept between utterances is there, with how many ms connecting took. Returns
    at once."""

    note: Note | None = field(default=None, compare=False, repr=False)
    """Told when another than the first choice listens. Only a router calls it."""


@dataclass(frozen=True, slots=True)
class Interim:
    """What the utterance sounds like so far; may change."""

    utterance: int
    text: str


@dataclass(frozen=True, slots=True)
class Final:
    """The whole utterance's text, from its `begin` up to the `flush` of that number.

    `flush` 0 means that the provider ended the utterance by itself. An empty text says that
    nothing was heard, and is an answer like any other.
    """

    utterance: int
    flush: int
    text: str
    language: str | None = None


Heard = Interim | Final


class TranscriptStream(Protocol):
    """One session's ear. All verbs but iteration return at once; nothing here waits for a socket."""

    def begin(self, utterance: int) -> None:
        """A new utterance starts with the next `push`; texts are counted from here."""
        ...

    def push(self, samples: Samples) -> None:
        """Hear more of the caller: int16, (n_samples,), at the capabilities' `rate_hz`.

        The buffer behind it is bounded (30 s at least); past that the oldest audio is dropped and counted.
        """
        ...

    def flush(self, flush: int) -> None:
        """Ask for the `Final` of all that was pushed since `begin`. May be asked again after more speech."""
        ...

    def __aiter__(self) -> AsyncIterator[Heard]:
        """Texts as they come, until the context closes.

        Raises:
            StageError: the provider refused, stalled or broke. The stream is over; open another.
        """
        ...


class Transcriber(Protocol):
    """Turns speech into text. One instance serves many sessions at once."""

    name: str
    """The spec that the settings know it by, `local/moonshine-tiny`."""

    capabilities: TranscriberCapabilities

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        """Begin one session's ear.

        Leaving the context frees the provider's side within 100 ms, also when cancelled.

        Raises:
            StageError: the provider could not be reached or refused.
        """
        ...
