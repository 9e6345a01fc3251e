"""A port of the segmenter: classify one stream's audio, behind the gate; and the names of its two VADs."""

from __future__ import annotations

from typing import Final, Literal, Protocol

FRAME_SAMPLES: Final = 320
"""20 ms at 16 kHz: one of the 3 lengths that webrtcvad takes, and the step of the voice activity detector."""

Vad = Literal["silero", "webrtc"]
"""`silero`: `WindowStream`, the VAD model. `webrtc`: `VoicedFrames`, the gate's own frames, which take little CPU."""


class Classifier(Protocol):
    """The windows of one stream at 16 kHz, one after another."""

    @property
    def window_samples(self) -> int:
        """Return the length of a window."""

    @property
    def preroll_samples(self) -> int:
        """Return how much audio to classify from before the gate opened."""

    @property
    def min_speech_ms(self) -> int:
        """Return the net speech that a start needs at least."""

    @property
    def one_window_may_start(self) -> bool:
        """Return whether one window of high probability starts speech, beside a weaker one."""

    @property
    def end(self) -> int:
        """Return the position behind the latest window."""

    def restart(self, position: int) -> None:
        """Continue at another position, as a new stream."""

    def classify(self) -> float:
        """Return the probability that the next window is speech, 0 to 1. The audio up to its end is there."""
