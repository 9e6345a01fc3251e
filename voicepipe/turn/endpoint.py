"""End-of-turn detection: how long a silence must last before the turn is over, and before work on its answer begins.

Other systems decide with one threshold and two waits. Here the wait is one continuous function of what is known: how
the speech ended, how the words end, how long this user's pauses are. A little more evidence changes the wait by a
little.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.words import unfinished

_FALLEN_ST: Final = -4.0
"""Final pitch, in semitones from the middle of the user's range, below which the pitch has fallen: the user sounds
finished.

A pitch that stays near the middle is held, which is how people keep their turn while they pause (Gravano and
Hirschberg, Turn-taking cues in task-oriented dialogue, Computer Speech and Language 25, 2011). On the labelled clips
`held` separates inner pauses of half a second from ends. Its AUC is 0.94 where people look for words and 0.66 where
they read.
"""

_RISEN_ST: Final = 4.0
"""A pitch that rises by this much may be a question's, or an octave error of the measurement: it counts as no evidence.
"""

_CANT_TELL: Final = 0.5

_DRAWN_OUT_MS: Final = 320
"""Speech that goes on unbroken for this long, two syllables, is held; the longer the last stretch, the more.

At the end of a turn speech creaks or turns to breath, so that little of it is unbroken (voice quality: Gravano and
Hirschberg, as above). A hesitation lengthens the last syllable. It counts as much as the pitch. With half of each the
AUCs become 0.65 on natural turns (with the pitch alone 0.53), 0.85 where people look for words (0.83), 0.68 at inserted
pauses (0.60).
"""

_CLOSED_SHARE: Final = 0.2
"""Complete words shorten the wait by up to this share of it, ..."""

_OPEN_HOLD: Final = 0.7
_BEYOND_HOLD: Final = 0.4
"""... missing words weigh as much as a held pitch, and the two together more than either."""

_HOLD_SHARE: Final = 0.5
"""How much a held ending adds to the wait; cubed, so that only strong evidence adds much. Without evidence the wait
stays as it was set.
"""

_PACE_SHARE: Final = 1.25
"""A user who went on after a pause may pause as long the next time. The wait covers that up to this share of what was
set: one long thought does not make a slow user.
"""

_PAUSES: Final = 8
"""Number of the user's latest pauses that count."""

_START_MS: Final = 80
_START_HELD_MS: Final = 160
_START_SHARE: Final = 0.4
"""Share of the wait after which work on the answer begins at the latest.

Work begins no sooner than after 80 ms, later by up to 160 ms when the speech was held. Of the pauses after held speech
more are only pauses, and each of them would waste a start.
"""

TRANSCRIBER_SILENCE_MS: Final = 120
"""The silence, in ms, that the STT's end-of-speech event counts as before the VAD has detected one: enough to begin
when the speech gives no evidence.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence during a pause of whether the user has finished. The defaults are no evidence."""

    final_pitch_st: float | None = None
    """How far the last syllable lay above the middle of the user's pitch range, in semitones."""

    final_voiced_ms: int | None = None
    """How long the speech went on without a break up to its last period, in ms; None: not measured."""

    unfinished: float = 0.0
    """How unfinished the words sound, -1 to 1 (`words.unfinished`)."""

    longest_pause_ms: int = 0
    """The longest of the user's recent pauses that were not the end, in ms."""


NOTHING: Final = Evidence()


def held(final_pitch_st: float | None, final_voiced_ms: int | None = None) -> float:
    """Return how much the end of the speech sounds as if more will come: 0 fallen and broken, 1 held, 0.5 unknown."""
    if final_voiced_ms is None:
        return _level(final_pitch_st)
    return (_level(final_pitch_st) + min(1.0, final_voiced_ms / _DRAWN_OUT_MS)) / 2


def _level(final_pitch_st: float | None) -> float:
    """Return how much the pitch stayed level."""
    if final_pitch_st is None:
        return _CANT_TELL
    if final_pitch_st < 0:
        return max(0.0, 1 - final_pitch_st / _FALLEN_ST)
    return max(_CANT_TELL, 1 - (1 - _CANT_TELL) * final_pitch_st / _RISEN_ST)


def _hold(evidence: Evidence) -> float:
    """Return the same with the evidence of the words: 0 to 1.4."""
    missing = max(0.0, evidence.unfinished)
    voice = held(evidence.final_pitch_st, evidence.final_voiced_ms)
    return min(voice + _OPEN_HOLD * missing, 1 + _BEYOND_HOLD * missing**2)


def wait_ms(settings: TurnSettings, evidence: Evidence = NOTHING) -> int:
    """Return the silence, in ms since the last voiced sample, that ends a turn.

    Not adaptive: what the client set, whatever the evidence. Adaptive: between 0.74 and 2.31 of that.
    """
    if not settings.adaptive:
        return settings.silence_ms
    factor = 1 + _HOLD_SHARE * (_hold(evidence) ** 3 - _CANT_TELL**3) + _CLOSED_SHARE * min(0.0, evidence.unfinished)
    pace = min(_PACE_SHARE * settings.silence_ms, evidence.longest_pause_ms)
    return round(max(factor * settings.silence_ms, pace))


def longest_wait_ms(settings: TurnSettings) -> int:
    """Return the longest possible wait in ms, whatever the evidence."""
    return wait_ms(settings, Evidence(final_pitch_st=0.0, unfinished=1.0))


def start_ms(settings: TurnSettings, evidence: Evidence = NOTHING, answer_ms: int | None = None) -> int:
    """Return the silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    `answer_ms`: how long an answer takes from the LLM request to its first audio. An answer that is ready before the
    turn is over is held. Starting earlier than `answer_ms` before the end of the wait therefore saves nothing, and
    wastes a start each time the user goes on. None: not known, and taken for long.
    """
    wait = wait_ms(settings, evidence)
    soonest_ms = min(_START_MS + _START_HELD_MS * _hold(evidence) ** 2, _START_SHARE * wait)
    return round(soonest_ms if answer_ms is None else max(soonest_ms, wait - answer_ms))


class Pauses:
    """The pauses of one user, in order: collects the evidence for the current pause."""

    def __init__(self) -> None:
        # Bounded: the oldest pause is dropped.
        self._resumed_ms: deque[int] = deque([0], maxlen=_PAUSES)
        self.evidence = NOTHING

    def began(self, final_pitch_st: float | None, final_voiced_ms: int | None = None) -> None:
        """Record that the user fell silent."""
        self.evidence = Evidence(
            final_pitch_st=final_pitch_st,
            final_voiced_ms=final_voiced_ms,
            longest_pause_ms=max(self._resumed_ms),
        )

    def heard(self, text: str, language: str | None = None, *, asked: bool = False) -> None:
        """Record the words up to this pause."""
        self.evidence = replace(self.evidence, unfinished=unfinished(text, language, asked=asked))

    def resumed(self, pause_ms: int) -> None:
        """Record that the user went on after `pause_ms`: it was a pause and not the end."""
        self._resumed_ms.append(pause_ms)
        self.evidence = NOTHING
