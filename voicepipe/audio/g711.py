"""G.711: the two 8-bit codecs of telephony, by table.

Source: ITU-T G.711 (11/88), tables 1a (A-law) and 2a (mu-law). Values are scaled to 16 bits as usual: mu-law's
14-bit decision values times 4, A-law's 13-bit ones times 8.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.formats import G711_HZ as G711_HZ
from voicepipe.audio.samples import Samples

_MULAW_BIAS: Final = 33
"""Added to the 14-bit magnitude so that each segment begins at a power of 2 (G.711, table 2a: 2^n - 33)."""


def _mulaw_expanded() -> Samples:
    """Return the 256 output values of mu-law. On the wire all bits are inverted; 1 sign, 3 segment, 4 step bits."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    segment, step = (code >> 4) & 7, code & 15
    magnitude = ((2 * step + _MULAW_BIAS) << segment) - _MULAW_BIAS
    return (4 * np.where(code & 0x80, -magnitude, magnitude)).astype(np.int16)


def _alaw_expanded() -> Samples:
    """Return the 256 output values of A-law. Even bits are inverted on the wire; a set sign bit means positive."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment, step = (code >> 4) & 7, code & 15
    magnitude = np.where(segment == 0, 2 * step + 1, (2 * step + _MULAW_BIAS) << np.maximum(segment - 1, 0))
    return (8 * np.where(code & 0x80, magnitude, -magnitude)).astype(np.int16)


def _compressed(expanded: Samples) -> npt.NDArray[np.uint8]:
    """Return for each int16 (indexed as uint16) the code with the nearest value; a tie goes to the smaller magnitude.

    Of mu-law's two zeros the positive one, 0xFF, is sent: silence on the wire is all ones.
    """
    values, from_the_end = np.unique(expanded[::-1].astype(np.int32), return_index=True)
    linear = np.arange(-32_768, 32_768, dtype=np.int32)
    above = np.clip(np.searchsorted(values, linear), 1, len(values) - 1)
    to_below, to_above = linear - values[above - 1], values[above] - linear
    take_below = (to_below < to_above) | ((to_below == to_above) & (linear > 0))
    codes = (255 - from_the_end[np.where(take_below, above - 1, above)]).astype(np.uint8)
    return np.roll(codes, 32_768)


MULAW_TO_LINEAR: Final = _mulaw_expanded()
ALAW_TO_LINEAR: Final = _alaw_expanded()
_LINEAR_TO_MULAW: Final = _compressed(MULAW_TO_LINEAR)
_LINEAR_TO_ALAW: Final = _compressed(ALAW_TO_LINEAR)


def decode_mulaw(data: bytes | bytearray | memoryview) -> Samples:
    """Expand G.711 mu-law to linear PCM.

    Args:
        data: (n_bytes,), one byte a sample, any rate.

    Returns:
        int16, (n_samples,), n_samples == n_bytes, full scale +-32124.
    """
    return MULAW_TO_LINEAR.take(np.frombuffer(data, dtype=np.uint8))


def encode_mulaw(samples: Samples) -> bytes:
    """Compress linear PCM, int16, (n_samples,), to G.711 mu-law, one byte a sample."""
    return _LINEAR_TO_MULAW.take(samples.view(np.uint16)).tobytes()


def decode_alaw(data: bytes | bytearray | memoryview) -> Samples:
    """Expand G.711 A-law to linear PCM.

    Args:
        data: (n_bytes,), one byte a sample, any rate.

    Returns:
        int16, (n_samples,), n_samples == n_bytes, full scale +-32256.
    """
    return ALAW_TO_LINEAR.take(np.frombuffer(data, dtype=np.uint8))


def encode_alaw(samples: Samples) -> bytes:
    """Compress linear PCM, int16, (n_samples,), to G.711 A-law, one byte a sample."""
    return _LINEAR_TO_ALAW.take(samples.view(np.uint16)).tobytes()
