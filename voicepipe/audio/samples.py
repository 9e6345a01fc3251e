"""PCM samples: the type, and the way from bytes to it and back."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]
"""Mono PCM, int16, (n_samples,)."""

FULL_SCALE: Final = 32_768
"""The magnitude of int16's most negative value: 0 dBFS as a peak."""

SILENT_DBFS: Final = -120.0
"""What digital silence is said to have, instead of minus infinity. Below int16's quantisation noise (-98 dBFS)."""


def silence(n_samples: int) -> Samples:
    """Digital silence, int16, (n_samples,)."""
    return np.zeros(n_samples, dtype=np.int16)


def to_pcm(samples: Samples) -> bytes:
    """The wire form: little-endian 16-bit PCM, two bytes a sample."""
    return samples.astype("<i2", copy=False).tobytes()


class PcmJoiner:
    """Turns chunks of little-endian 16-bit PCM into samples, wherever the chunks were cut.

    A chunk that ends in half a sample keeps that byte for the next chunk.
    """

    def __init__(self) -> None:
        self._half = b""

    @property
    def has_half(self) -> bool:
        """True when the bytes so far end inside a sample."""
        return bool(self._half)

    def push(self, pcm: bytes | bytearray | memoryview) -> Samples:
        """Return the samples that are complete now, int16, (n_samples,); read-only, perhaps empty."""
        whole: bytes | bytearray | memoryview = pcm
        if self._half:
            whole = self._half + bytes(pcm)
        n_bytes = len(whole) & ~1
        self._half = bytes(whole[n_bytes:])
        return np.frombuffer(whole, dtype="<i2", count=n_bytes // 2).astype(np.int16, copy=False)

    def clear(self) -> None:
        """Forget the half sample: the next byte begins a new one."""
        self._half = b""


def rms_dbfs(samples: Samples) -> float:
    """Root mean square level of `samples` in dB relative to full scale.

    A full-scale square wave has 0 dBFS, a full-scale sine -3. Silence, and no samples at all, have `SILENT_DBFS`.
    """
    if not len(samples):
        return SILENT_DBFS
    wide = samples.astype(np.float64)
    power = float(np.dot(wide, wide)) / len(wide) / FULL_SCALE**2
    return max(SILENT_DBFS, 10 * float(np.log10(power))) if power > 0 else SILENT_DBFS


def first_audible(samples: Samples, threshold_dbfs: float = -50.0) -> int | None:
    """Index of the first audible sample, or None when all of it is silence.

    The default threshold lies 24 dB under the nominal level of speech on a line (-26 dBov, ITU-T P.56 and G.191):
    played so that speech has the 65 dB SPL of conversation, it is at 41 dB SPL, about the noise of a quiet room.
    Synthesizers' "silence" (dither, vocoder hiss) lies below it.
    """
    least = FULL_SCALE * 10 ** (threshold_dbfs / 20)
    # int16's -32768 has no positive twin, hence two comparisons and no abs().
    loud = (samples > least) | (samples < -least)
    first = int(loud.argmax()) if len(samples) else 0
    return first if len(samples) and loud[first] else None
