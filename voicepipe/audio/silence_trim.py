"""Find speech in a signal by loudness alone: enough to cut and to trim, not a voice activity detector."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.samples import Samples

FRAME_MS: Final = 20
SILENCE_DBFS: Final = -50.0
"""Frames below this count as silence. Speech from a working microphone peaks 20 dB above it. Room noise above it only
means that nothing is trimmed."""


def trim(
    samples: Samples, rate_hz: int, *, before_ms: int, after_ms: int, silence_dbfs: float = SILENCE_DBFS
) -> Samples:
    """Drop the silence at both ends, except `before_ms` and `after_ms` of it.

    Args:
        samples: int16, (n_samples,).

    Returns:
        A view of `samples`; empty when no frame is louder than `silence_dbfs`.
    """
    frame_samples = rate_hz * FRAME_MS // 1000
    loud = np.flatnonzero(_levels(samples, frame_samples) > _amplitude(silence_dbfs))
    if loud.size == 0:
        return samples[:0]
    start = int(loud[0]) * frame_samples - rate_hz * before_ms // 1000
    stop = (int(loud[-1]) + 1) * frame_samples + rate_hz * after_ms // 1000
    return samples[max(0, start) : stop]


def quietest_cut(samples: Samples, rate_hz: int, *, from_ms: int) -> int:
    """Return the index of the quietest point after `from_ms`, where a cut loses the fewest words.

    The window is 200 ms long, so that a stop consonant does not count as a pause; the cut is its middle.
    """
    frame_samples = rate_hz * FRAME_MS // 1000
    first = from_ms // FRAME_MS
    energies = _levels(samples, frame_samples)[first:] ** 2
    spot_frames = min(200 // FRAME_MS, energies.size)
    spots = np.convolve(energies, np.ones(spot_frames), mode="valid")
    return (first + int(np.argmin(spots)) + spot_frames // 2) * frame_samples


def _levels(samples: Samples, frame_samples: int) -> npt.NDArray[np.float64]:
    """Return the root mean square of each frame, (n_frames,); the remainder at the end counts as a frame."""
    n_frames = -(-samples.size // frame_samples)
    padded = np.zeros(n_frames * frame_samples)
    padded[: samples.size] = samples
    levels: npt.NDArray[np.float64] = np.sqrt(np.mean(padded.reshape(n_frames, frame_samples) ** 2, axis=1))
    return levels


def _amplitude(dbfs: float) -> float:
    """Return the amplitude of an int16 signal: 0 dBFS is 32768."""
    return float(32768.0 * 10 ** (dbfs / 20))
