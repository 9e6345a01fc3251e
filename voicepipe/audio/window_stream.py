"""Classify one stream's windows with the VAD model, reading as far ahead as the buffer goes."""

from __future__ import annotations

from collections import deque
from typing import Final

from voicepipe.audio.history import RingBuffer
from voicepipe.audio.onnx_weights import Weights
from voicepipe.audio.silero import CONTEXT_SAMPLES, MAX_WINDOWS, WINDOW_SAMPLES, Silero, SileroState

_PREROLL_SAMPLES: Final = 5_120
"""320 ms, 10 windows: audio that the VAD model processes when the gate opens. The gate may open late, and the VAD model
needs a running start."""


class WindowStream:
    """The windows of a buffer, at 16 kHz, one after another.

    The part of the model without a memory runs for all windows that the buffer has already: together they take less
    CPU. The results are those of one window at a time, to 6 digits.
    """

    window_samples: Final = WINDOW_SAMPLES
    preroll_samples: Final = _PREROLL_SAMPLES
    min_speech_ms: Final = 0
    one_window_may_start: Final = True

    def __init__(self, buffer: RingBuffer, model: Silero) -> None:
        self._buffer, self._model, self._state = buffer, model, SileroState()
        self._features: deque[Weights] = deque()
        """Of the windows behind `end` that were read; at most `MAX_WINDOWS`."""

        self.end = 0
        """The position behind the latest window."""

    def restart(self, position: int) -> None:
        """Continue at another position, as a new stream."""
        self.end = position
        self._features.clear()
        self._state.restart(self._buffer.read(max(self._buffer.start, position - CONTEXT_SAMPLES), position))

    def classify(self) -> float:
        """Return the probability that the next window is speech. The buffer has it."""
        if not self._features:
            n_windows = min(MAX_WINDOWS, (self._buffer.end - self.end) // WINDOW_SAMPLES)
            samples = self._buffer.read(self.end, self.end + n_windows * WINDOW_SAMPLES)
            self._features.extend(self._model.read(self._state, samples))
        self.end += WINDOW_SAMPLES
        return self._model.probability(self._state, self._features.popleft())
