"""The bounds of a voice on the tape: a judge says about when, the samples' own levels say where."""

from __future__ import annotations

from typing import Final

from voicepipe.audio import levels
from voicepipe.audio.silero import RATE_HZ
from voicepipe.audio.tape import Tape

_PER_MS: Final = RATE_HZ // 1_000

_TRAIL_SAMPLES: Final = 232 * _PER_MS
"""How long before the end of the last window that sounded like speech its voice may have ended: a window and 200 ms."""

_USUAL_TRAIL_SAMPLES: Final = 64 * _PER_MS
"""How long it usually has, for when noise hides the voice's own end (median on the labelled clips: 65 ms)."""

_ONSET_REACH_SAMPLES: Final = 200 * _PER_MS
"""How long before its first window of speech a voice may have begun."""


class Bounds:
    """Looks up positions on one tape, at 16 kHz, to 10 ms."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def voice_end(self, heard: int, speech_end: int) -> int:
        """Where the voice ended that the judge heard until `speech_end`, with the tape heard until `heard`."""
        loud = levels.voiced(self._levels_before(heard))
        behind = (heard - speech_end) // levels.HOP_SAMPLES
        hops = None if loud is None else levels.voice_end_hops(loud, behind, _TRAIL_SAMPLES // levels.HOP_SAMPLES)
        return speech_end - _USUAL_TRAIL_SAMPLES if hops is None else heard - hops * levels.HOP_SAMPLES

    def onset(self, judged: int, first_window: int, not_before: int) -> int:
        """Where the voice began that fills the tape's end at `judged`, and whose first window is at `first_window`."""
        first = max(first_window - _ONSET_REACH_SAMPLES, not_before, self._tape.start)
        n_recent = (judged - first) // levels.HOP_SAMPLES
        hops = levels.onset_hops(self._levels_before(judged), n_recent)
        return max(first_window, first) if hops is None else judged - hops * levels.HOP_SAMPLES

    def voiced_since(self, since: int, until: int) -> bool:
        """Is there anything as loud as voice between two positions? True also when noise hides that."""
        loud = levels.voiced(self._levels_before(until))
        n_hops = max(0, until - since) // levels.HOP_SAMPLES
        return loud is None or bool(loud[len(loud) - n_hops :].any())

    def _levels_before(self, end: int) -> levels.Levels:
        return levels.levels(self._tape.read(max(self._tape.start, end - levels.LOOK_BACK_SAMPLES), end))
