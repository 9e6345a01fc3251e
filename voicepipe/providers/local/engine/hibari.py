"""Hibari: an English TTS of 8 MB that runs 50 times faster than real time on one core."""

from __future__ import annotations

import importlib
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples
from voicepipe.audio.silence_trim import trim
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.worker import Task

MAX_TEXT_CHARACTERS: Final = 400
"""Longer texts are refused: one sentence is one native call, and 2000 characters of it take 3 s and 500 MB."""

GAIN: Final = 10 ** (5 / 20)
"""+5 dB: the output is at -27 dBFS RMS, other TTS at about -21."""

PEAK: Final = 0.97
"""Peak as a fraction of full scale. A sentence that the gain would take above it gets less gain, so nothing clips."""

SILENCE_DBFS: Final = -45.0
"""The output's own silence is noise below -52 dBFS before the gain."""

_LEAD_MS: Final = 20
"""The output begins with 240 to 300 ms of silence, which would delay the reply."""

_TAIL_MS: Final = {".": 220, "!": 220, "?": 220, "…": 220}
_TAIL_WITHIN_SENTENCE_MS: Final = 90
"""Pauses between one text and the next; the output itself leaves 300 to 550 ms."""


class Hibari:
    """A voice in one thread; a sentence is one native call of 10 to 50 ms."""

    concurrency = 1

    def __init__(self) -> None:
        self._voice = importlib.import_module("hibari").Hibari(voice="heart", threads=1)
        self._voice("Warm up, please.")  # loads the dictionary, and the first call is slower

    def run(self, task: Task) -> None:
        """Answer a `Speak` with `Audio`, sentence by sentence, then `Done`. It can be cancelled between sentences."""
        job = task.job
        assert isinstance(job, wire.Speak)
        if len(job.text) > MAX_TEXT_CHARACTERS:
            task.emit(wire.JobRefused(f"expected {MAX_TEXT_CHARACTERS} characters at most", retryable=False))
            return
        tail_ms = _TAIL_MS.get(job.text.rstrip("\"')]} ")[-1:], _TAIL_WITHIN_SENTENCE_MS)
        for sound in self._voice.stream(job.text, job.speed):
            if task.cancelled.is_set():
                return
            samples = trim(
                louder(sound), wire.TTS_RATE_HZ, before_ms=_LEAD_MS, after_ms=tail_ms, silence_dbfs=SILENCE_DBFS
            )
            if samples.size:
                task.emit(wire.Audio(samples.tobytes()))
        task.emit(wire.Done())


def louder(sound: npt.NDArray[np.float32]) -> Samples:
    """Apply `GAIN`, as far as `PEAK` allows, and round to 16 bits.

    Args:
        sound: float32, (n_samples,), full scale is 1.

    Returns:
        int16, (n_samples,).
    """
    peak = float(np.max(np.abs(sound), initial=0.0))
    gain = min(GAIN, PEAK / peak) if peak else GAIN
    loud: Samples = np.rint(sound * (gain * 32767)).astype(np.int16)
    return loud
