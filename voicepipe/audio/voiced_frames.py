"""Classify one stream's frames by webrtcvad's results, which the gate has already, and by their level.

webrtcvad alone takes each session's first 80 ms for speech, and much of a fan's noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.audio.classifier import FRAME_SAMPLES

_SPAN_FRAMES: Final = 5
"""100 ms. Over 4 frames more pauses are found inside words, and over 7 each pause is noticed 15 ms later."""

_SPAN_MASK: Final = (1 << _SPAN_FRAMES) - 1

_END_SHARE: Final = 1 / 3
"""After 5 voiced frames the next ones must rise by this share only, until 5 are not voiced. With the whole rise nearly
three times as many pauses are found at 10 dB as by the VAD model. Without any, a pause is noticed 35 ms later."""


class VoicedFrames:
    """The share of voiced frames among the latest 5, in place of a VAD model's probability.

    A window is a frame of 20 ms. The gate and the near field have seen it just before `classify`.
    """

    window_samples: Final = FRAME_SAMPLES
    preroll_samples: Final = FRAME_SAMPLES
    min_speech_ms: Final = 100
    """With 60 ms, noise starts speech nearly twice as often."""

    one_window_may_start: Final = False

    def __init__(self, is_voiced: Callable[[], bool], rises: Callable[[float], bool]) -> None:
        """`is_voiced` returns the gate's result for the latest frame, and `rises` whether it is above the room's level
        by a share of what speech is."""
        self._is_voiced, self._rises = is_voiced, rises
        self._latest = 0
        """The latest frames as bits, 1 for voiced."""

        self._in_speech = False
        self.end = 0
        """The position behind the latest frame."""

    def restart(self, position: int) -> None:
        """Continue at another position, as a new stream."""
        self.end, self._latest, self._in_speech = position, 0, False

    def classify(self) -> float:
        """Return the share of voiced frames up to the gate's latest, 0 to 1."""
        voiced = self._is_voiced() and self._rises(_END_SHARE if self._in_speech else 1.0)
        self._latest = (self._latest << 1 | voiced) & _SPAN_MASK
        self.end += FRAME_SAMPLES
        n_voiced = self._latest.bit_count()
        self._in_speech = n_voiced == _SPAN_FRAMES or (self._in_speech and n_voiced > 0)
        return n_voiced / _SPAN_FRAMES
