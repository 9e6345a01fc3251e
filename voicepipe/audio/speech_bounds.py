"""Find where speech begins and ends on the buffer.

The VAD model finds about when; the levels of the samples show where.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from voicepipe.audio import levels
from voicepipe.audio.history import RingBuffer
from voicepipe.audio.silero import RATE_HZ

_PER_MS: Final = RATE_HZ // 1_000

_MAX_END_LAG_SAMPLES: Final = 232 * _PER_MS
"""How long before the end of the last speech window the speech may have ended: 1 window and 200 ms."""

_USUAL_END_LAG_SAMPLES: Final = 64 * _PER_MS
"""The usual value, used when noise hides the end of the speech (median on the labelled clips: 65 ms)."""

_ONSET_REACH_SAMPLES: Final = 200 * _PER_MS
"""How long before its first speech window the speech may have begun."""


class SpeechBounds:
    """Looks up positions on one buffer, at 16 kHz, to 10 ms."""

    def __init__(self, buffer: RingBuffer) -> None:
        self._buffer = buffer
        self._known: levels.Levels | None = None
        """The levels before `_known_until`. A pause reads those of 3 s at each frame."""

        self._known_until = 0

    def voice_end(self, processed: int, speech_end: int) -> int:
        """Return where the speech ended that the VAD model detected until `speech_end`, with the buffer analysed until
        `processed`.
        """
        loud = levels.voiced(self._levels_following(processed))
        behind = (processed - speech_end) // levels.HOP_SAMPLES
        hops = None if loud is None else levels.voice_end_hops(loud, behind, _MAX_END_LAG_SAMPLES // levels.HOP_SAMPLES)
        return speech_end - _USUAL_END_LAG_SAMPLES if hops is None else processed - hops * levels.HOP_SAMPLES

    def onset(self, classified: int, first_window: int, not_before: int) -> int:
        """Return where the speech began that fills the buffer's end at `classified` and whose first window is at
        `first_window`.
        """
        first = max(first_window - _ONSET_REACH_SAMPLES, not_before, self._buffer.start)
        n_recent = (classified - first) // levels.HOP_SAMPLES
        hops = levels.onset_hops(self._levels_before(classified), n_recent)
        return max(first_window, first) if hops is None else classified - hops * levels.HOP_SAMPLES

    def voiced_since(self, since: int, until: int) -> bool:
        """Return whether anything between two positions is as loud as speech. True also when noise hides the answer."""
        loud = levels.voiced(self._levels_before(until))
        n_hops = max(0, until - since) // levels.HOP_SAMPLES
        return loud is None or bool(loud[len(loud) - n_hops :].any())

    def _levels_following(self, end: int) -> levels.Levels:
        """Return the same as `_levels_before`, computed on from the latest call where the hops coincide."""
        n_hops = max(0, min(levels.LOOK_BACK_SAMPLES, end - self._buffer.start) - 1) // levels.HOP_SAMPLES
        n_new, rest = divmod(end - self._known_until, levels.HOP_SAMPLES)
        if self._known is None or rest or not 0 <= n_new < n_hops or n_hops > self._known.shape[1] + n_new:
            self._known = self._levels_before(end)
        elif n_new:
            new = levels.levels(self._buffer.read(end - n_new * levels.HOP_SAMPLES - 1, end))
            self._known = np.concatenate((self._known, new), axis=1)[:, -n_hops:]
        self._known_until = end
        return self._known

    def _levels_before(self, end: int) -> levels.Levels:
        return levels.levels(self._buffer.read(max(self._buffer.start, end - levels.LOOK_BACK_SAMPLES), end))
