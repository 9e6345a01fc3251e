"""The audio of the current utterance, for models that judge it at a pause."""

from __future__ import annotations

from typing import Final

from voicepipe.audio.history import AudioHistory
from voicepipe.audio.samples import Samples

RETENTION_S: Final = 8
"""Smart-turn reads the last 8 s."""


class UtteranceAudio:
    """The newest `RETENTION_S` seconds of the current utterance, with the padding before it: 384 kB at 24 kHz."""

    def __init__(self) -> None:
        self._rate_hz = 0
        self._history = AudioHistory(0)

    def begin(self, padding: Samples, rate_hz: int) -> None:
        """Start anew, with the audio from before the speech."""
        self._rate_hz, self._history = rate_hz, AudioHistory(RETENTION_S * rate_hz)
        self._history.append(padding)

    def push(self, samples: Samples, rate_hz: int) -> None:
        """Append audio, int16, (n_samples,), which is copied. At another rate it starts anew."""
        if rate_hz != self._rate_hz:
            self.begin(samples[:0], rate_hz)
        self._history.append(samples.copy())

    def latest(self) -> tuple[Samples, int]:
        """Return the audio, int16, (n_samples,), and its rate in Hz."""
        return self._history.since(self._history.end - RETENTION_S * self._rate_hz), self._rate_hz
