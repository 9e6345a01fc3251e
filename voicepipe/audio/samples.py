"""PCM samples: the type, conversion from and to bytes, and their levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.compiled import IS_COMPILED, kernels

Samples = npt.NDArray[np.int16]
"""Mono PCM, int16, (n_samples,)."""

FULL_SCALE: Final = 32_768
"""The magnitude of int16's most negative value: 0 dBFS as a peak."""

_WIRE_TYPE: Final = np.dtype("<i2")

SILENT_DBFS: Final = -120.0
"""The level reported for digital silence, instead of minus infinity. Below int16's quantisation noise (-98 dBFS)."""


def silence(n_samples: int) -> Samples:
    """Return digital silence, int16, (n_samples,)."""
    return np.zeros(n_samples, dtype=np.int16)


def to_pcm(samples: Samples) -> bytes:
    """Return the wire form: little-endian 16-bit PCM, 2 bytes per sample."""
    return samples.astype("<i2", copy=False).tobytes()


class PcmJoiner:
    """Converts chunks of little-endian 16-bit PCM to samples, however the chunks were cut.

    A chunk that ends in half a sample keeps that byte for the next chunk.
    """

    def __init__(self) -> None:
        self._half = b""

    @property
    def has_half(self) -> bool:
        """Return whether the bytes so far end inside a sample."""
        return bool(self._half)

    def push(self, pcm: bytes | bytearray | memoryview) -> Samples:
        """Return the samples that are complete now, int16, (n_samples,); read-only, may be empty."""
        whole: bytes | bytearray | memoryview = pcm
        if self._half:
            whole = self._half + bytes(pcm)
        n_samples = len(whole) // 2
        self._half = bytes(whole[2 * n_samples :]) if len(whole) & 1 else b""
        samples = np.frombuffer(whole, dtype=_WIRE_TYPE, count=n_samples)
        return samples if _WIRE_TYPE.isnative else samples.astype(np.int16)

    def clear(self) -> None:
        """Drop the half sample: the next byte begins a new sample."""
        self._half = b""


def rms_dbfs(samples: Samples) -> float:
    """Return the root mean square level of `samples` in dB relative to full scale.

    A full-scale square wave has 0 dBFS, a full-scale sine -3. Silence and empty input return `SILENT_DBFS`.
    """
    if not len(samples):
        return SILENT_DBFS
    wide = samples.astype(np.float64)
    power = float(np.dot(wide, wide)) / len(wide) / FULL_SCALE**2
    return max(SILENT_DBFS, 10 * float(np.log10(power))) if power > 0 else SILENT_DBFS


def _peak(samples: Samples) -> int:
    return int(np.maximum.reduce(samples))  # `max`, without the steps before it that take twice as long


def _mean_squares(samples: Samples, n_frame: int) -> list[float]:
    wide = samples.reshape(-1, n_frame).astype(np.float64)
    means: list[float] = (np.vecdot(wide, wide) / n_frame).tolist()
    return means


peak: Final[Callable[[Samples], int]] = kernels.peak if IS_COMPILED else _peak
"""Return the highest of the samples, int16; there must be one."""

mean_squares: Final[Callable[[Samples, int], list[float]]] = kernels.mean_squares if IS_COMPILED else _mean_squares
"""Return the mean square of each frame of `n_frame` samples, int16: a whole sum, divided once."""


def _first_beyond(samples: Samples, most: int) -> int | None:
    if samples.ndim != 1 or samples.dtype != np.int16:
        raise ValueError(f"expected a row of samples, int16, got {samples.dtype} with {samples.ndim} dimensions")
    # int16's -32768 has no positive counterpart, hence two comparisons and no abs().
    loud = (samples > most) | (samples < -most)
    first = int(loud.argmax()) if len(samples) else 0
    return first if len(samples) and loud[first] else None


_find_beyond: Final[Callable[[Samples, int], int | None]] = kernels.first_beyond if IS_COMPILED else _first_beyond
"""Return the index of the first of the samples, int16, that is above `most` or below its negative."""


_SILENT: Final = int(FULL_SCALE * 10 ** (-50 / 20))


def first_audible(samples: Samples) -> int | None:
    """Return the index of the first sample above -50 dBFS, or None when all samples are silent.

    This lies 24 dB below the nominal level of speech on a telephone line (-26 dBov, ITU-T P.56 and G.191). When speech
    is played at 65 dB SPL, the level of conversation, the threshold is at 41 dB SPL, about the noise of a quiet room.
    The "silence" of synthesizers (dither, vocoder hiss) lies below it.
    """
    return _find_beyond(samples, _SILENT)
