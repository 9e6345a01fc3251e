"""What the ear tells: edges of the caller's voice. Facts in the past tense; whose turn it is, others decide."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, on both of a session's time scales."""

    stream_ms: int
    """Position in the caller's audio, counted in samples from its beginning."""

    session_ms: int
    """The same on the session's clock: when that sample would have arrived, had nothing delayed it."""


@dataclass(frozen=True, slots=True)
class VoiceStarted:
    """The caller began to speak at `onset`."""

    onset: Instant


@dataclass(frozen=True, slots=True)
class VoicePaused:
    """The caller has been silent for a moment."""

    last_voiced: Instant
    """The end of the last voiced sound, to 10 ms. Not when it was noticed."""

    silence_ms: int
    """How long the silence has lasted already."""

    final_pitch_st: float | None = None
    """How far the last syllable lay over the middle of the voice's range, in semitones; None: can't be told."""

    final_voiced_ms: int | None = None
    """How long the voice went on without a break up to its last period; None: not measured."""


@dataclass(frozen=True, slots=True)
class QuietGrew:
    """The pause lasts, now for `silence_ms` since the last voiced sound."""

    silence_ms: int


@dataclass(frozen=True, slots=True)
class VoiceResumed:
    """The caller goes on speaking, from `onset` on; what paused had not ended."""

    onset: Instant


Edge = VoiceStarted | VoicePaused | QuietGrew | VoiceResumed
