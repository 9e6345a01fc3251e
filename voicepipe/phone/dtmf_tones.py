"""DTMF tones as audio, for carriers without a message that sends DTMF to the user.

Sources: ITU-T Q.23 (frequencies), Q.24 (the shortest tone and pause that receivers have to recognise: 40 ms each).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from voicepipe.audio.g711 import encode_mulaw
from voicepipe.audio.samples import FULL_SCALE, Samples, silence
from voicepipe.phone.carrier import BYTES_PER_MS, RATE_HZ

_ROWS: Final = {697: "123A", 770: "456B", 852: "789C", 941: "*0#D"}
_COLUMNS: Final = (1_209, 1_336, 1_477, 1_633)
_FREQUENCIES: Final = {
    key: (row, column) for row, keys in _ROWS.items() for column, key in zip(_COLUMNS, keys, strict=True)
}

TONE_MS: Final = 100
"""Length of a tone, and of the pause behind it: twice what receivers need, since a codec may lie between."""

_LEVEL: Final = 0.25 * FULL_SCALE
"""Peak of each of the two frequencies: both together are 6 dB below full scale."""


def tones(digits: str) -> bytes:
    """Return the tones of digits, mu-law at 8 kHz, each with a pause behind it."""
    return b"".join(encode_mulaw(np.concatenate((_tone(each), silence(TONE_MS * BYTES_PER_MS)))) for each in digits)


def _tone(digit: str) -> Samples:
    at_s = np.arange(TONE_MS * BYTES_PER_MS) / RATE_HZ
    row_hz, column_hz = _FREQUENCIES[digit]
    both = np.sin(2 * np.pi * row_hz * at_s) + np.sin(2 * np.pi * column_hz * at_s)
    return np.asarray(_LEVEL * both, dtype=np.int16)
