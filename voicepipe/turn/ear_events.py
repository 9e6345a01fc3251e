"""The events of the STT and its providers. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EarReached:
    """The STT has its connection, which is kept between utterances."""

    took_ms: int
    """How long connecting took, in ms."""

    hidden_ms: int
    """How much of that was over when the current utterance began, in ms; all of it if there is none."""


@dataclass(frozen=True, slots=True)
class EarChanged:
    """The session's STT provider changed. The new provider also transcribes what was said of the utterance before."""

    utterance: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]
    why: str


@dataclass(frozen=True, slots=True)
class TranscriptGrew:
    """The interim text of the utterance so far; may change."""

    utterance: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptFinished:
    """The utterance's text up to that flush (0: the transcriber ended it by itself)."""

    utterance: int
    flush: int
    text: str
    language: str | None = None
    provider: str = ""
    heard_ms: int = 0
    """How much audio the transcriber was given since its text before, in ms."""


@dataclass(frozen=True, slots=True)
class TranscriberFailed:
    """The STT provider refused, stalled or failed; no more text of this utterance will come."""

    utterance: int
    provider: str
    why: str
