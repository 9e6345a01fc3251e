"""The facts about what was heard of the caller, and by whom. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EarReached:
    """The ear has its connection, which is kept between utterances."""

    took_ms: int
    """How long connecting took."""

    hidden_ms: int
    """How much of that was over when the utterance that is being heard began; all of it if none is."""


@dataclass(frozen=True, slots=True)
class EarChanged:
    """Of several ears another hears from here on, what was said of the utterance before among it."""

    utterance: int
    provider: str
    role: Literal["hedge", "replacement", "continuation"]
    why: str


@dataclass(frozen=True, slots=True)
class TranscriptGrew:
    """What the utterance sounds like so far; may change."""

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
    """How much sound the transcriber was given since its text before."""


@dataclass(frozen=True, slots=True)
class TranscriberFailed:
    """The ear's provider refused, stalled or broke; no more text of this utterance will come."""

    utterance: int
    provider: str
    why: str
