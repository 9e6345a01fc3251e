"""The edges of the user's speech, as the voice activity detector reports them: events in the past tense. The session
core decides whose turn it is.
"""

from __future__ import annotations

from msgspec import Struct


class Instant(Struct, frozen=True):
    """One moment, on both of a session's time scales."""

    stream_ms: int
    """Position in the user's audio, counted in samples from its beginning."""

    session_ms: int
    """Position on the session's clock: when that sample would have arrived without any delay."""


class SpeechStart(Struct, frozen=True):
    """The user began to speak at `onset`."""

    onset: Instant


class SpeechStop(Struct, frozen=True):
    """The user has been silent for a moment."""

    last_voiced: Instant
    """The end of the last voiced audio, to 10 ms. Not the time of detection."""

    silence_ms: int
    """How long the silence has lasted already."""


class SilenceProgress(Struct, frozen=True):
    """The pause continues, now for `silence_ms` since the last voiced audio."""

    silence_ms: int


class SpeechResume(Struct, frozen=True):
    """The user goes on speaking from `onset` on: the pause was not the end."""

    onset: Instant


Edge = SpeechStart | SpeechStop | SilenceProgress | SpeechResume
