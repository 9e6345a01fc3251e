"""Measure how speech ended. At the end of a turn speakers lower the pitch and the voicing breaks up; otherwise they
hold both.

Measured only when speech has paused, over the last seconds: about 0.5 ms of CPU per pause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples

LOOK_BACK_SAMPLES: Final = 48_000
"""3 s at 16 kHz: enough syllables to know the middle of a user's range."""

_RATE_HZ: Final = 8_000
_FRAME_SAMPLES: Final = 320
"""40 ms: 3 periods of the lowest voice, which the method needs."""

_HOP_SAMPLES: Final = 160
_LOWEST_HZ: Final = 70
_HIGHEST_HZ: Final = 450
"""The upper end from a low man's voice to a child's."""

_VOICED: Final = 0.6
"""Correlation of a frame with itself 1 period later from which it counts as voiced. Boersma's default is 0.45; here a
wrong pitch does more harm than a missing one."""

_UNBROKEN: Final = 0.5
"""The same limit for unbroken voicing, where no pitch is needed; nearer to Boersma's, since noise lowers the
correlation.
"""

_QUIETER_DB: Final = 20.0
"""Frames that much below the loudest are breath, room noise or another person."""

_LEAST_FRAMES: Final = 12
"""240 ms of voiced audio: with less, the middle of the range is the end itself."""

_TAIL_FRAMES: Final = 8
"""The end is 160 ms, about 1 syllable, ..."""

_TAIL_REACH_FRAMES: Final = 20
"""... that lies at most 400 ms before the silence: voiceless consonants may follow it."""

_LEAST_TAIL_FRAMES: Final = 3

_FFT: Final = 480
"""At least a frame and the longest lag: 434."""

_LAGS: Final = slice(_RATE_HZ // _HIGHEST_HZ, _RATE_HZ // _LOWEST_HZ + 1)

Floats = npt.NDArray[np.float32]

_OCTAVE_COST: Final[Floats] = (0.05 * np.log2(np.arange(_LAGS.start, _LAGS.stop) / _LAGS.start)).astype(np.float32)
"""Audio that repeats after 1 period repeats after 2 as well: of equal candidates the higher pitch is right. Boersma:
0.01 of his measure, enough for clean speech; 0.05 also works in noise."""


def _autocorrelation(frames: Floats) -> Floats:
    """Return the autocorrelation of each row, (n, _FFT)."""
    spectrum = np.abs(np.fft.rfft(frames, _FFT)) ** 2
    return np.fft.irfft(spectrum).astype(np.float32)


_WINDOW: Final[Floats] = np.hanning(_FRAME_SAMPLES + 2)[1:-1].astype(np.float32)
_WINDOW_CORRELATION: Final[Floats] = _autocorrelation(_WINDOW[None])[0, : _LAGS.stop]


@dataclass(frozen=True, slots=True)
class Ending:
    """The ending of a stretch of speech."""

    pitch_st: float | None
    """Pitch of the last syllable relative to the middle of the range, in semitones: negative when it fell. None: too
    little of it is voiced."""

    voiced_ms: int
    """Length of the last unbroken voiced stretch: short when the voicing broke up, long when the syllable was drawn
    out."""


def contour(samples: Samples) -> tuple[Floats, Floats]:
    """Return the pitch of each 20 ms of `samples`, int16, at 16 kHz, counted from the end, in semitones over 55 Hz,
    (n,).

    Also returns its regularity, 0 to 1, (n,). Both are 0 where the audio is too quiet to be speech.

    Source: Boersma, Accurate short-term analysis of the fundamental frequency, IFA Proceedings 17 (1993): the
    autocorrelation of a windowed frame, divided by that of the window.
    """
    even = samples[len(samples) % 2 :].astype(np.float32)
    half = (even[::2] + even[1::2]) * np.float32(0.5)
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
    """Return how the speech ended that ends where `samples` do, int16, (n_samples,) at 16 kHz."""
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
    """Return the length of the last unbroken stretch; 0 when there is none near the end."""
    known = np.flatnonzero(voiced)
    if not len(known) or known[-1] < len(voiced) - _TAIL_REACH_FRAMES:
        return 0
    breaks = np.flatnonzero(~voiced[: known[-1]])
    first = int(breaks[-1]) + 1 if len(breaks) else 0
    return (int(known[-1]) + 1 - first) * _HOP_SAMPLES * 1_000 // _RATE_HZ
