"""Compare what a page played or sent with what it was given."""

from __future__ import annotations

from typing import Any

import numpy as np

RATE_HZ = 24_000


def likeness(expected: Any, played: Any) -> float:
    """How much of `expected` is in `played` at the best place for it, -1 to 1: the normalised cross-correlation."""
    expected, played = np.asarray(expected, float), np.asarray(played, float)
    n = 1 << (len(expected) + len(played)).bit_length()
    product = np.fft.irfft(np.fft.rfft(played, n) * np.conj(np.fft.rfft(expected, n)), n)
    at = int(np.argmax(product[: max(1, len(played) - len(expected) + 1)]))
    there = played[at : at + len(expected)]
    return float(expected[: len(there)] @ there / (np.linalg.norm(expected) * np.linalg.norm(there)))


def require_in_order(expected: Any, played: Any) -> None:
    """Check that every sample was played, in order and once.

    A loudspeaker that gets no audio in time waits for it, as on a busy machine: silence in between is not judged.
    """
    expected, played = np.asarray(expected), np.asarray(played)
    assert likeness(expected[expected != 0], played[played != 0]) > 0.99
    assert np.count_nonzero(played) <= np.count_nonzero(expected) + RATE_HZ // 100


def require_without_gap(expected: Any, played: Any) -> None:
    """Check that every sample was played, in order and once, with no silence in between."""
    require_in_order(expected, played)
    assert likeness(expected, played) > 0.99
