"""Judge whether the end of the speech sounds finished, and when work on an answer may then begin."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.endpointing.strategy import Evidence

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

UNKNOWN: Final = 0.5

_DRAWN_OUT_MS: Final = 320
"""Speech that goes on unbroken for this long, two syllables, is held; the longer the last stretch, the more.

At the end of a turn speech creaks or turns to breath, so that little of it is unbroken (voice quality: Gravano and
Hirschberg, as above). A hesitation lengthens the last syllable. It counts as much as the pitch. With half of each the
AUCs become 0.65 on natural turns (with the pitch alone 0.53), 0.85 where people look for words (0.83), 0.68 at inserted
pauses (0.60).
"""

_OPEN_HOLD: Final = 0.7
_BEYOND_HOLD: Final = 0.4
"""Missing words weigh as much as a held pitch, and the two together more than either."""

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


def held(final_pitch_st: float | None, final_voiced_ms: int | None = None) -> float:
    """Return how much the end of the speech sounds as if more will come: 0 fallen and broken, 1 held, 0.5 unknown."""
    if final_voiced_ms is None:
        return _level(final_pitch_st)
    return (_level(final_pitch_st) + min(1.0, final_voiced_ms / _DRAWN_OUT_MS)) / 2


def _level(final_pitch_st: float | None) -> float:
    """Return how much the pitch stayed level."""
    if final_pitch_st is None:
        return UNKNOWN
    if final_pitch_st < 0:
        return max(0.0, 1 - final_pitch_st / _FALLEN_ST)
    return max(UNKNOWN, 1 - (1 - UNKNOWN) * final_pitch_st / _RISEN_ST)


def stall(evidence: Evidence) -> float:
    """Return the same with the evidence of the words: 0 to 1.4."""
    missing = max(0.0, evidence.unfinished)
    voice = held(evidence.final_pitch_st, evidence.final_voiced_ms)
    return min(voice + _OPEN_HOLD * missing, 1 + _BEYOND_HOLD * missing**2)


def start_ms(wait_ms: int, evidence: Evidence) -> int:
    """Return the silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    An answer that is ready before the turn is over is held. Starting earlier than `answer_ms` before the end of the
    wait therefore saves nothing, and wastes a start each time the user goes on. An unknown `answer_ms` is taken for
    long.
    """
    soonest_ms = min(_START_MS + _START_HELD_MS * stall(evidence) ** 2, _START_SHARE * wait_ms)
    return round(soonest_ms if evidence.answer_ms is None else max(soonest_ms, wait_ms - evidence.answer_ms))
