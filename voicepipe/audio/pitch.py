"""Where did the voice's pitch go at the end? Speakers let it fall when they are done and hold it when they are not.

Measured only when a voice has paused, over the last seconds: about 1 ms of CPU a pause.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples

LOOK_BACK_SAMPLES: Final = 48_000
"""3 s at 16 kHz: enough syllables to know the middle of a voice's range."""

_RATE_HZ: Final = 8_000
_FRAME_SAMPLES: Final = 320
"""40 ms: three periods of the lowest voice, which the method needs."""

_HOP_SAMPLES: Final = 160
_LOWEST_HZ: Final = 70
_HIGHEST_HZ: Final = 450
"""From a low man's voice to a child's."""

_VOICED: Final = 0.6
"""Correlation of a frame with itself one period later from which it counts as voiced (Boersma's default is 0.45; here
a wrong pitch does more harm than a missing one)."""

_QUIETER_DB: Final = 20.0
"""Frames that much below the loudest are breath, room or somebody else."""

_LEAST_FRAMES: Final = 12
"""240 ms of voiced sound: with less, the middle of the range is the end itself."""

_TAIL_FRAMES: Final = 8
"""The end is 160 ms, about a syllable, ..."""

_TAIL_REACH_FRAMES: Final = 20
"""... that lies at most 400 ms before the silence: voiceless sounds may follow it."""

_LEAST_TAIL_FRAMES: Final = 3

_FFT: Final = 480
"""At least a frame and the longest lag: 434."""

_LAGS: Final = slice(_RATE_HZ // _HIGHEST_HZ, _RATE_HZ // _LOWEST_HZ + 1)

Floats = npt.NDArray[np.float32]

_OCTAVE_COST: Final[Floats] = (0.05 * np.log2(np.arange(_LAGS.start, _LAGS.stop) / _LAGS.start)).astype(np.float32)
"""What repeats after one period repeats after two as well: of equals the higher pitch is right (Boersma: 0.01 of his
measure, which a clean voice needs; 0.05 also holds in noise)."""


def _autocorrelation(frames: Floats) -> Floats:
    """Of each row, (n, _FFT)."""
    spectrum = np.abs(np.fft.rfft(frames, _FFT)) ** 2
    return np.fft.irfft(spectrum).astype(np.float32)


_WINDOW: Final[Floats] = np.hanning(_FRAME_SAMPLES + 2)[1:-1].astype(np.float32)
_WINDOW_CORRELATION: Final[Floats] = _autocorrelation(_WINDOW[None])[0, : _LAGS.stop]


def contour(samples: Samples) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Pitch of each 20 ms of `samples`, int16, at 16 kHz, counted from the end, in semitones over 55 Hz, (n,).

    And which of them are voiced and loud enough to be trusted, (n,).

    Source: Boersma, Accurate short-term analysis of the fundamental frequency, IFA Proceedings 17 (1993): the
    autocorrelation of a windowed frame, divided by that of the window.
    """
    half = samples[len(samples) % 2 :].astype(np.float32).reshape(-1, 2).mean(axis=1)
    n = (len(half) - _FRAME_SAMPLES) // _HOP_SAMPLES + 1
    if n <= 0:
        return np.zeros(0, dtype=np.float32), np.zeros(0, dtype=bool)
    first = len(half) - _FRAME_SAMPLES - (n - 1) * _HOP_SAMPLES
    frames = np.lib.stride_tricks.sliding_window_view(half[first:], _FRAME_SAMPLES)[::_HOP_SAMPLES]
    frames = frames - frames.mean(axis=1, keepdims=True)
    power = (frames**2).mean(axis=1)
    correlation = _autocorrelation(frames * _WINDOW)[:, : _LAGS.stop] / _WINDOW_CORRELATION
    likeness = correlation[:, _LAGS] / (correlation[:, :1] + 1)
    best = (likeness - _OCTAVE_COST).argmax(axis=1)
    loud = power > power.max() * 10 ** (-_QUIETER_DB / 10)
    pitch: Floats = (12 * np.log2(_RATE_HZ / 55 / (best + _LAGS.start))).astype(np.float32)
    return pitch, loud & (likeness[np.arange(n), best] > _VOICED)


def final_pitch_st(samples: Samples) -> float | None:
    """How far the last syllable of a voice lies over the middle of its range, in semitones: negative when it fell.

    `samples`, int16, (n_samples,) at 16 kHz, ends where the voice ends. None: too little of it is voiced to tell.
    """
    pitch, voiced = contour(samples)
    known = np.flatnonzero(voiced)
    tail = known[known >= len(pitch) - _TAIL_REACH_FRAMES]
    tail = tail[tail > tail[-1] - _TAIL_FRAMES] if len(tail) else tail
    if len(known) < _LEAST_FRAMES or len(tail) < _LEAST_TAIL_FRAMES:
        return None
    return float(np.median(pitch[tail]) - np.median(pitch[known]))
