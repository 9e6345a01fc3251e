"""Streaming sample-rate conversion with a constant, short delay.

A library resampler in streaming mode returns its output in large blocks. soxr, fed with 20 ms frames, held back 37
ms (24 to 16 kHz, its medium quality) to 115 ms (8 to 16 kHz). Those milliseconds would be added to every turn. This
is therefore a plain polyphase filter, which holds back half its own length and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.compiled import IS_COMPILED, kernels
from voicepipe.audio.samples import Samples, silence

_STOPBAND_DB: Final = 70.0
"""Attenuation of aliases and images. Speech lies about 40 dB above a quiet room; 70 dB down is inaudible."""

_HALF_CYCLES: Final = 22
"""Filter reach to each side, in samples of the slower rate. With 70 dB the passband then ends at 0.45 of that rate (7.2
of 16 kHz) and the stopband begins at 0.55: Kaiser's estimate, N = (A - 7.95) / (2.285 * width)."""

_MIN_BLOCK: Final = 32
"""Outputs per row of the matrix product: fewer means more rows to copy, more means a wider matrix."""

_STEP: Final = 2.0**-24
"""Filter weights are whole multiples of this, so that float64 sums of int16 products are exact in any order of
summation. The output therefore does not depend on how the input was cut."""

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Filter:
    """What all streams with the same pair of rates share."""

    block_in: int
    block_out: int
    reach: int
    """Input samples that an output needs on either side of its own instant."""

    weights: Weights
    """(reach + block_in + reach, block_out)."""


@lru_cache(maxsize=32)
def _filter(from_hz: int, to_hz: int) -> _Filter:
    """Return a Kaiser-windowed sinc for each output of a block.

    Source: Oppenheim and Schafer, Discrete-Time Signal Processing, 7.6.
    """
    common = gcd(from_hz, to_hz)
    fewest = -(-_MIN_BLOCK * common // to_hz)
    # The smallest pieces that both rates divide into, multiplied by a number that divides 10 ms where there is one.
    pieces = next((n for n in range(fewest, common // 100 + 1) if common % (100 * n) == 0), fewest)
    block_in, block_out = pieces * from_hz // common, pieces * to_hz // common
    slower = min(1.0, to_hz / from_hz)
    half_width = _HALF_CYCLES / slower
    reach = int(np.ceil(half_width))
    at_input = np.arange(-reach, block_in + reach)[:, None]
    at_output = np.arange(block_out)[None, :] * (from_hz / to_hz)
    away = at_input - at_output
    beta = 0.1102 * (_STOPBAND_DB - 8.7)  # Kaiser's formula for 50 dB and more
    inside = np.clip(1 - (away / half_width) ** 2, 0, None)
    weights = np.sinc(away * slower) * np.i0(beta * np.sqrt(inside)) * (np.abs(away) <= half_width)
    weights /= weights.sum(axis=0)
    return _Filter(block_in, block_out, reach, np.round(weights / _STEP) * _STEP)


def _in_numpy(samples: Samples, weights: Weights, out: Samples, block_in: int, block_out: int) -> None:
    n_blocks, step = len(out) // block_out, samples.itemsize
    # The rows overlap, and the last one ends inside `samples`.
    rows: Samples = np.ndarray((n_blocks, len(weights)), np.int16, samples, strides=(block_in * step, step))
    sums = rows.astype(np.float64) @ weights
    np.rint(sums, out=sums)
    np.minimum(sums, 32_767, out=sums)
    np.maximum(sums, -32_768, out=sums)
    out[:] = sums.ravel()


_filter_blocks: Final[Callable[[Samples, Weights, Samples, int, int], None]] = (
    kernels.resample if IS_COMPILED else _in_numpy
)
"""Fill the output, int16, (n_blocks * block_out,), with the samples filtered by weights, (width, block_out): each block
with those of `width` samples, from one `block_in` to the next.
"""


class Resampler:
    """One stream from `from_hz` to `to_hz`. Output k is the audio at k / to_hz seconds, however the input was cut.

    With equal rates the samples pass unchanged.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        if from_hz <= 0 or to_hz <= 0:
            raise ValueError(f"expected positive rates, got {from_hz} and {to_hz} Hz")
        self._same = from_hz == to_hz
        self._filter = _filter(from_hz, to_hz)
        self._from_hz, self._to_hz = from_hz, to_hz
        self._restart()

    def _restart(self) -> None:
        self._waiting: Samples = silence(self._filter.reach)
        self._n_in = self._n_out = 0

    @property
    def delay_samples(self) -> int:
        """Return the delay of the output in samples, for input in multiples of 10 ms.

        It is the filter's reach, rounded up to whole blocks. Input of other lengths is held back up to 1 block
        longer.
        """
        f = self._filter
        return 0 if self._same else -(-f.reach // f.block_in) * f.block_out

    @property
    def delay_ms(self) -> float:
        """Return `delay_samples` as time: 2 ms between 24 and 16 kHz, 4 ms between 8 and 16."""
        return 1_000 * self.delay_samples / self._to_hz

    def push(self, samples: Samples) -> Samples:
        """Return the output that can be computed now, int16, (n_samples,), may be empty."""
        if self._same:
            return samples
        self._n_in += len(samples)
        waiting = np.concatenate((self._waiting, samples))
        f = self._filter
        n_blocks = (len(waiting) - 2 * f.reach) // f.block_in
        if n_blocks <= 0:
            self._waiting = waiting
            return silence(0)
        self._waiting = waiting[n_blocks * f.block_in :].copy()
        out: Samples = np.empty(n_blocks * f.block_out, dtype=np.int16)
        _filter_blocks(waiting, f.weights, out, f.block_in, f.block_out)
        self._n_out += len(out)
        return out

    def flush(self) -> Samples:
        """Return the rest, as if silence followed, and begin a new stream.

        The outputs since the last flush then number `ceil(n_in * to_hz / from_hz)`.
        """
        if self._same:
            return silence(0)
        n_due = -(-self._n_in * self._to_hz // self._from_hz) - self._n_out
        out = self.push(silence(2 * self._filter.reach + self._filter.block_in))[:n_due]
        self._restart()
        return out
