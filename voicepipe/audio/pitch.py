"""How did the voice end? Speakers let its pitch fall, and the voice itself break up, when they are done; they hold both
when they are not.

Measured only when a voice has paused, over the last seconds: about half a millisecond of CPU a pause.
"""

from __future__ import annotations

from dataclasses import dataclass
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

_UNBROKEN: Final = 0.5
"""The same for whether a voice goes on, where no pitch is needed; nearer to Boersma's, since noise takes from it."""

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


@dataclass(frozen=True, slots=True)
class Ending:
    """How a voice ended."""

    pitch_st: float | None
    """How far its last syllable lies over the middle of its range, in semitones: negative when it fell. None: too
    little of it is voiced to tell."""

    voiced_ms: int
    """How long the voice went on without a break up to its last period: short when it broke up, long when it was
    drawn out."""


def contour(samples: Samples) -> tuple[Floats, Floats]:
    """Pitch of each 20 ms of `samples`, int16, at 16 kHz, counted from the end, in semitones over 55 Hz, (n,).

    And how regular it is, 0 to 1, (n,). What is too quiet to be the voice has 0 of both.

    Source: Boersma, Accurate short-term analysis of the fundamental frequency, IFA Proceedings 17 (1993): the
    autocorrelation of a windowed frame, divided by that of the window.
    """
    half = samples[len(samples) % 2 :].astype(np.float32).reshape(-1, 2).mean(axis=1)
    n = (len(half) - _FRAME_SAMPLES) // _HOP_SAMPLES + 1
    pitch, regular = np.zeros((2, max(0, n)), dtype=np.float32)
    if n <= 0:
        return pitch, regular
    first = len(half) - _FRAME_SAMPLES - (n - 1) * _HOP_SAMPLES
    frames = np.lib.stride_tricks.sliding_window_view(half[first:], _FRAME_SAMPLES)[::_HOP_SAMPLES]
    frames = frames - frames.mean(axis=1, keepdims=True)
    power = np.einsum("ij,ij->i", frames, frames)
    loud = np.flatnonzero(power > power.max() * 10 ** (-_QUIETER_DB / 10))
    correlation = _autocorrelation(frames[loud] * _WINDOW)[:, : _LAGS.stop] / _WINDOW_CORRELATION
    likeness = correlation[:, _LAGS] / (correlation[:, :1] + 1)
    best = (likeness - _OCTAVE_COST).argmax(axis=1)
    pitch[loud] = 12 * np.log2(_RATE_HZ / 55 / (best + _LAGS.start))
    regular[loud] = np.clip(likeness[np.arange(len(loud)), best], 0, 1)
    return pitch, regular


def ending(samples: Samples) -> Ending:
    """How the voice ended that ends where `samples` do, int16, (n_samples,) at 16 kHz."""
    pitch, regular = contour(samples)
    return Ending(_final_pitch_st(pitch, regular > _VOICED), _final_voiced_ms(regular > _UNBROKEN))


def _final_pitch_st(pitch: Floats, voiced: npt.NDArray[np.bool_]) -> float | None:
    known = np.flatnonzero(voiced)
    tail = known[known >= len(pitch) - _TAIL_REACH_FRAMES]
    tail = tail[tail > tail[-1] - _TAIL_FRAMES] if len(tail) else tail
    if len(known) < _LEAST_FRAMES or len(tail) < _LEAST_TAIL_FRAMES:
        return None
    return float(np.median(pitch[tail]) - np.median(pitch[known]))


def _final_voiced_ms(voiced: npt.NDArray[np.bool_]) -> int:
    """The length of the last unbroken stretch, 0 when there is none near the end."""
    known = np.flatnonzero(voiced)
    if not len(known) or known[-1] < len(voiced) - _TAIL_REACH_FRAMES:
        return 0
    breaks = np.flatnonzero(~voiced[: known[-1]])
    first = int(breaks[-1]) + 1 if len(breaks) else 0
    return (int(known[-1]) + 1 - first) * _HOP_SAMPLES * 1_000 // _RATE_HZ
