"""The STT port: speech in, streamed text out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from voicepipe.audio.formats import G711_HZ, TelephoneFormat
from voicepipe.audio.timed_words import TimedWord
from voicepipe.ports.provider_events import ProviderChanged, TranscriberConnected

Samples = npt.NDArray[np.int16]
"""Mono PCM, int16, (n_samples,)."""


class TranscriberCapabilities(Struct, frozen=True, kw_only=True):
    """The capabilities of an STT provider, as data."""

    rate_hz: int
    """The sample rate that `push` takes, except of a telephone's audio: see `push_hz`."""

    streams: bool
    """True: push every frame of the session. False: only the utterance, from `begin` on; the text comes at `flush`."""

    partials: bool = False
    """Sends `Interim` texts while the user speaks."""

    finalize: bool = True
    """Answers a `flush` at once, without waiting for its own end of speech."""

    short_words: bool = True
    """Its text is reliable for less than 1 s of speech. False: it transcribes "mhm" as words."""

    turn_events: bool = False
    """Detects the end of a turn by itself."""

    translates: bool = False
    """Returns English text of speech in any language, when `TranscriptionOptions.to_english` is set."""

    word_times: bool = False
    """Its `Final` has `words`, when `TranscriptionOptions.word_times` is set."""

    reports_language: bool = True
    """Its `Final` may name the language that was spoken, if none is set."""

    english_only: bool = False
    """It transcribes English alone."""

    speakers: bool = False
    """These words also name their speakers, when `TranscriptionOptions.speakers` is set."""

    telephone: frozenset[TelephoneFormat] = frozenset()
    """The encodings of a telephone's audio that it takes at 8 kHz, as `TranscriptionOptions.telephone`."""

    def push_hz(self, transcription: TranscriptionOptions) -> int:
        """Return the sample rate that `push` takes from a stream that was opened with these options."""
        return self.rate_hz if transcription.telephone is None else G711_HZ


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions:
    """The parameters of transcription."""

    model: str
    """The model's name at its provider."""

    language: str | None = None
    """BCP-47, or None to let the provider detect it."""

    prompt: str | None = None
    """Expected words, for providers that accept a hint."""

    temperature: float | None = None
    """Sampling temperature, 0 to 1, for providers that accept it; None is the provider's default."""

    to_english: bool = False
    """Return an English translation, in place of the words. Only for a transcriber that `translates`."""

    word_times: bool = False
    """Return the times of words. Only for a transcriber that has them."""

    speakers: bool = False
    """Distinguish speakers, and return the times of words. Only for a transcriber that can."""

    telephone: TelephoneFormat | None = None
    """The user's audio is a telephone's, in this encoding, and is pushed at 8 kHz. Only for a transcriber that takes
    it."""


class Interim(Struct, frozen=True):
    """The text of the utterance so far; may change."""

    utterance: int
    text: str


class Final(Struct, frozen=True):
    """The whole utterance's text, from its `begin` up to the `flush` of that number.

    `flush` 0 means that the provider ended the utterance by itself. An empty text means that there were no words,
    and is a valid result.
    """

    utterance: int
    flush: int
    text: str
    language: str | None = None
    words: tuple[TimedWord, ...] = ()
    """The words with their times after `begin`, where they were requested. A word that was said shortly before `begin`
    has a negative time."""


class EndOfTurn(Struct, frozen=True):
    """The provider's own judgement whether the user has finished, as of its latest text."""

    utterance: int
    probability: float
    """0 to 1. A provider that names none gives the least that its event stands for."""


TranscriptEvent = Interim | Final | EndOfTurn | TranscriberConnected | ProviderChanged
"""A text, or what a provider or a router reports beside it."""


class TranscriptStream(Protocol):
    """The transcription of one session. All methods but iteration return at once; nothing here waits for a socket."""

    def begin(self, utterance: int) -> None:
        """Start a new utterance with the next `push`; the texts cover the audio from here on."""
        ...

    def push(self, samples: Samples) -> None:
        """Send more of the user's audio: int16, (n_samples,), at the capabilities' `push_hz`.

        Its buffer is bounded (at least 30 s); when full, the oldest audio is dropped and counted.
        """
        ...

    def flush(self, flush: int) -> None:
        """Request the `Final` of all audio pushed since `begin`. May be requested again after more speech."""
        ...

    def __aiter__(self) -> AsyncIterator[TranscriptEvent]:
        """Yield texts and other events as they come, until the context closes.

        Raises:
            StageError: the provider refused, stalled or broke. The stream is over; open another.
        """
        ...


class Transcriber(Protocol):
    """Converts speech to text. One instance serves many sessions at once."""

    name: str
    """The spec from the settings, `local/moonshine-tiny`."""

    capabilities: TranscriberCapabilities

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        """Start the transcription of one session.

        Leaving the context releases the provider within 100 ms, also when cancelled.

        Raises:
            StageError: the provider could not be reached or refused.
        """
        ...
