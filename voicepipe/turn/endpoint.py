"""Has the caller finished? How long a silence must last before the turn is over, and before work on its answer begins.

Peers decide with one threshold and two waits. Here the wait is one continuous function of what is known: how the voice
ended, how the words end, how long this caller's pauses are. A little more evidence moves it by a little.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.words import unfinished

_FALLEN_ST: Final = -4.0
"""A final pitch that far under the middle of the voice's range has fallen: the caller sounds done. One that stays near
the middle is held, which is how people keep the floor while they pause (Gravano and Hirschberg, Turn-taking cues in
task-oriented dialogue, Computer Speech and Language 25, 2011). On the labelled clips `held` tells inner pauses of half
a second from ends with an AUC of 0.94 where people look for words and 0.66 where they read."""

_RISEN_ST: Final = 4.0
"""One that rises by that much may be a question's, or a slip of the measure by an octave: it tells nothing."""

_CANT_TELL: Final = 0.5

_DRAWN_OUT_MS: Final = 320
"""A voice that goes on unbroken for that long, two syllables, is held; the longer the last stretch, the more. At the
end of a turn it creaks or turns to breath, so that little of it is unbroken (voice quality: Gravano and Hirschberg, as
above), and a hesitation draws the last sound out. It counts as much as the pitch: with half of each the AUCs become
0.65 on natural turns (with the pitch alone 0.53), 0.85 where people look for words (0.83), 0.68 at inserted pauses
(0.60)."""

_CLOSED_SHARE: Final = 0.2
"""Whole words shorten the wait by up to this share of it, ..."""

_OPEN_HOLD: Final = 0.7
_BEYOND_HOLD: Final = 0.4
"""... missing ones weigh as much as a held pitch, and the two together more than either."""

_HOLD_SHARE: Final = 0.5
"""How much a held voice adds to the wait; cubed, so that it takes sure evidence to add much. A voice that tells nothing
leaves the wait as it was set."""

_PACE_SHARE: Final = 1.25
"""Who went on after a pause may pause as long the next time, so that is waited for, up to this share of what was set:
one long thought doesn't make a slow caller."""

_PAUSES: Final = 8
"""So many of the caller's latest pauses count."""

_START_MS: Final = 80
_START_HELD_MS: Final = 160
_START_SHARE: Final = 0.4
"""Work on the answer begins no sooner than after 80 ms, later by up to 160 when the voice was held: of the pauses after
a held voice more are only pauses, and each of them would waste a start. This alone makes it no later than this share
of the wait."""

TRANSCRIBER_SILENCE_MS: Final = 120
"""What a transcriber's word that the caller has stopped counts as, before the ear has heard them stop: what it takes to
begin when the voice tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known, while a pause lasts, of whether the caller has finished. The defaults know nothing."""

    final_pitch_st: float | None = None
    """How far the last syllable lay over the middle of the voice's range, in semitones."""

    final_voiced_ms: int | None = None
    """How long the voice went on without a break up to its last period; None: not measured."""

    unfinished: float = 0.0
    """How unfinished the words sound, -1 to 1 (`words.unfinished`)."""

    longest_pause_ms: int = 0
    """The longest of the caller's recent pauses that were not the end."""


NOTHING: Final = Evidence()


def held(final_pitch_st: float | None, final_voiced_ms: int | None = None) -> float:
    """How much the end of the voice sounds as if more were to come: 0 fallen and broken, 1 held, 0.5 can't be told."""
    if final_voiced_ms is None:
        return _level(final_pitch_st)
    return (_level(final_pitch_st) + min(1.0, final_voiced_ms / _DRAWN_OUT_MS)) / 2


def _level(final_pitch_st: float | None) -> float:
    """How much the pitch stayed where it was."""
    if final_pitch_st is None:
        return _CANT_TELL
    if final_pitch_st < 0:
        return max(0.0, 1 - final_pitch_st / _FALLEN_ST)
    return max(_CANT_TELL, 1 - (1 - _CANT_TELL) * final_pitch_st / _RISEN_ST)


def _hold(evidence: Evidence) -> float:
    """The same with what the words say: 0 to 1.4."""
    missing = max(0.0, evidence.unfinished)
    voice = held(evidence.final_pitch_st, evidence.final_voiced_ms)
    return min(voice + _OPEN_HOLD * missing, 1 + _BEYOND_HOLD * missing**2)


def wait_ms(settings: TurnSettings, evidence: Evidence = NOTHING) -> int:
    """The silence, in ms since the last voiced sample, that ends a turn.

    Not adaptive: what the client asked for, whatever is known. Else between 0.74 and 2.31 of that.
    """
    if not settings.adaptive:
        return settings.silence_ms
    factor = 1 + _HOLD_SHARE * (_hold(evidence) ** 3 - _CANT_TELL**3) + _CLOSED_SHARE * min(0.0, evidence.unfinished)
    pace = min(_PACE_SHARE * settings.silence_ms, evidence.longest_pause_ms)
    return round(max(factor * settings.silence_ms, pace))


def longest_wait_ms(settings: TurnSettings) -> int:
    """The wait at the most, whatever comes to be known."""
    return wait_ms(settings, Evidence(final_pitch_st=0.0, unfinished=1.0))


def start_ms(settings: TurnSettings, evidence: Evidence = NOTHING, answer_ms: int | None = None) -> int:
    """The silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    `answer_ms`: how long an answer takes from the question to its first sound. An answer that is ready before the turn
    is over is held, so to begin sooner than that before the end of the wait saves nothing, and is in vain each time
    that the caller goes on. None: not known, and taken for long.
    """
    wait = wait_ms(settings, evidence)
    soonest_ms = min(_START_MS + _START_HELD_MS * _hold(evidence) ** 2, _START_SHARE * wait)
    return round(soonest_ms if answer_ms is None else max(soonest_ms, wait - answer_ms))


class Pauses:
    """One caller's pauses, as they come: gathers the evidence for the one that lasts."""

    def __init__(self) -> None:
        # Bounded: the oldest pause is forgotten.
        self._resumed_ms: deque[int] = deque([0], maxlen=_PAUSES)
        self.evidence = NOTHING

    def began(self, final_pitch_st: float | None, final_voiced_ms: int | None = None) -> None:
        """The caller fell silent."""
        self.evidence = Evidence(
            final_pitch_st=final_pitch_st,
            final_voiced_ms=final_voiced_ms,
            longest_pause_ms=max(self._resumed_ms),
        )

    def heard(self, text: str, language: str | None = None, *, asked: bool = False) -> None:
        """The words up to this pause."""
        self.evidence = replace(self.evidence, unfinished=unfinished(text, language, asked=asked))

    def resumed(self, pause_ms: int) -> None:
        """The caller went on after so long: it was a pause and no end."""
        self._resumed_ms.append(pause_ms)
        self.evidence = NOTHING
