"""Distinguish nonlexical sounds ("mhm") from words: most words contain a consonant that is more noise than voice."""

from __future__ import annotations

from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples

_HOP_MS: Final = 10
_BIN_HZ: Final = 1_000 // _HOP_MS

_LOW_HZ: Final = 200
_SPLIT_HZ: Final = 2_000
_HIGH_HZ: Final = 3_600
"""The upper end of the telephone band."""

_SMOOTH_HOPS: Final = 3
_MIN_HOPS: Final = 2
"""The burst of a t or a k lasts some 20 ms, so 2 hops of levels over 30 ms."""

_SPAN: Final = 10.0**-2
"""Anything 20 dB below the loudest is room noise or breath."""

_NOISY: Final = 10.0**-1.2
"""A voice without constriction (vowels, m, n: "mhm", "yeah", "uh-huh") has its first formants below 2 kHz and less than
a sixteenth of its power above, -12 dB. The noise of s, f, t or k lies mostly above. Some vowels reach -15 dB."""


def is_nonlexical(samples: Samples, rate_hz: int) -> bool:
    """Return whether a stretch of speech, int16, (n_samples,) at 8, 16 or 24 kHz, is voiced throughout.

    True too for less than 30 ms.
    """
    n_hop = rate_hz * _HOP_MS // 1_000
    n = len(samples) // n_hop
    if n < _SMOOTH_HOPS:
        return True
    frames = samples[: n * n_hop].astype(np.float32).reshape(n, n_hop) * np.hanning(n_hop)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    kernel = np.ones(_SMOOTH_HOPS) / _SMOOTH_HOPS
    below = np.convolve(power[:, _LOW_HZ // _BIN_HZ : _SPLIT_HZ // _BIN_HZ].sum(axis=1), kernel, mode="same")
    above = np.convolve(power[:, _SPLIT_HZ // _BIN_HZ : _HIGH_HZ // _BIN_HZ].sum(axis=1), kernel, mode="same")
    loud = below + above >= _SPAN * (below + above).max()
    return int(np.count_nonzero(loud & (above > _NOISY * below))) < _MIN_HOPS
