"""The edges of the user's speech, as the voice activity detector reports them: events in the past tense. The session
core decides whose turn it is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, on both of a session's time scales."""

    stream_ms: int
    """Position in the user's audio, counted in samples from its beginning."""

    session_ms: int
    """Position on the session's clock: when that sample would have arrived without any delay."""


@dataclass(frozen=True, slots=True)
class SpeechStart:
    """The user began to speak at `onset`."""

    onset: Instant


@dataclass(frozen=True, slots=True)
class SpeechStop:
    """The user has been silent for a moment."""

    last_voiced: Instant
    """The end of the last voiced audio, to 10 ms. Not the time of detection."""

    silence_ms: int
    """How long the silence has lasted already."""


@dataclass(frozen=True, slots=True)
class SilenceProgress:
    """The pause continues, now for `silence_ms` since the last voiced audio."""

    silence_ms: int


@dataclass(frozen=True, slots=True)
class SpeechResume:
    """The user goes on speaking from `onset` on: the pause was not the end."""

    onset: Instant


Edge = SpeechStart | SpeechStop | SilenceProgress | SpeechResume
