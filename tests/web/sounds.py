"""Compare what a page played or sent with what it was given."""

from __future__ import annotations

from typing import Any

import numpy as np

RATE_HZ = 24_000

FADE_SAMPLES = 72
"""A cut fades out after the position that the page reports (web/speaker.worklet.js)."""


def likeness(expected: Any, played: Any) -> float:
    """How much of `expected` is in `played` at the best place for it, -1 to 1: the normalised cross-correlation."""
    expected, played = np.asarray(expected, float), np.asarray(played, float)
    n = 1 << (len(expected) + len(played)).bit_length()
    product = np.fft.irfft(np.fft.rfft(played, n) * np.conj(np.fft.rfft(expected, n)), n)
    at = int(np.argmax(product[: max(1, len(played) - len(expected) + 1)]))
    there = played[at : at + len(expected)]
    return float(expected[: len(there)] @ there / (np.linalg.norm(expected) * np.linalg.norm(there)))


def alike(expected: Any, played: Any) -> Any:
    """Return how alike a piece is to the played audio from each place on, -1 to 1."""
    n, played = len(expected), np.asarray(played, float)
    if len(played) < n:
        return np.zeros(1)
    size = 1 << (len(played) + n).bit_length()
    products = np.fft.irfft(np.fft.rfft(played, size) * np.conj(np.fft.rfft(expected, size)), size)[
        : len(played) - n + 1
    ]
    energies = np.cumsum(np.concatenate(([0.0], played**2)))
    norms = np.sqrt(np.maximum(energies[n:] - energies[:-n], 1.0))
    return products / (norms * np.linalg.norm(expected))


def played_until(answer: Any, played: Any) -> int:
    """Return up to which sample an answer was played that was cut: where the last 60 ms before the cut are in it.

    A cut is followed by a quarter second of silence. Shorter silence is a gap, in which a busy machine played nothing.
    """
    n = 60 * RATE_HZ // 1000
    (sounds,) = np.nonzero(played)
    ends = np.flatnonzero(np.diff(sounds, append=len(played) + RATE_HZ) > RATE_HZ // 4)
    until = int(sounds[ends[0]]) + 1 - FADE_SAMPLES
    similar = alike(np.asarray(played[until - n : until], float), answer)
    assert similar.max() > 0.95, "not in one piece"
    return int(np.argmax(similar)) + n


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
