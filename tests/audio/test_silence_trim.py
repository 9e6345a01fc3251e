"""Cutting and trimming by loudness."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.silence_trim import quietest_cut, trim

RATE_HZ = 16_000


def sound(ms: int, amplitude: int = 8_000) -> np.ndarray:
    """A 200 Hz tone."""
    t = np.arange(ms * RATE_HZ // 1000)
    return (amplitude * np.sin(2 * np.pi * 200 * t / RATE_HZ)).astype(np.int16)


def hush(ms: int) -> np.ndarray:
    """Digital silence."""
    return np.zeros(ms * RATE_HZ // 1000, np.int16)


def test_trim_keeps_the_requested_margins() -> None:
    """Silence at both ends is cut down to the given lengths; what is between stays, pauses too."""
    middle = np.concatenate([sound(400), hush(600), sound(400)])
    trimmed = trim(np.concatenate([hush(1_000), middle, hush(2_000)]), RATE_HZ, before_ms=100, after_ms=200)
    assert np.array_equal(trimmed, np.concatenate([hush(100), middle, hush(200)]))


def test_trim_of_silence_is_empty() -> None:
    """Nothing louder than the floor: nothing is left, and an empty signal is no error."""
    assert trim(hush(500), RATE_HZ, before_ms=100, after_ms=100).size == 0
    assert trim(sound(500, amplitude=60), RATE_HZ, before_ms=100, after_ms=100).size == 0
    assert trim(hush(0), RATE_HZ, before_ms=100, after_ms=100).size == 0


def test_cut_falls_into_the_longest_quiet() -> None:
    """A pause between words is preferred to the closure of a stop consonant, and to one before `from_ms`."""
    parts = [sound(500), hush(400), sound(600), hush(60), sound(500), hush(300), sound(640)]
    cut_ms = quietest_cut(np.concatenate(parts), RATE_HZ, from_ms=1_000) * 1000 // RATE_HZ
    assert 2_060 < cut_ms < 2_360


@given(st.integers(1, 40_000), st.integers(0, 3_000))
def test_cut_is_inside(n_samples: int, from_ms: int) -> None:
    """Whatever the length, the cut is a place in the signal after `from_ms`, so that cutting always gets ahead."""
    if n_samples <= (from_ms + 40) * RATE_HZ // 1000:
        return
    cut = quietest_cut(np.ones(n_samples, np.int16), RATE_HZ, from_ms=from_ms)
    assert from_ms * RATE_HZ // 1000 <= cut <= n_samples
    assert cut > 0 or from_ms == 0
