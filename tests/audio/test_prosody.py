"""How a voice ends: its pitch, and how long it went on unbroken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.prosody import Ending, contour, ending
from voicepipe.audio.samples import Samples

RATE_HZ = 16_000


def voice(pitch_hz: Callable[[np.ndarray], np.ndarray], seconds: float = 2.0, gain: float = 3_000) -> Samples:
    """Ten harmonics, falling by 6 dB each octave, along a pitch contour over time in s."""
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(pitch_hz(time_s)) / RATE_HZ
    sound = sum(np.sin(n * phase) / n for n in range(1, 11))
    return np.asarray(np.clip(gain * sound, -32_768, 32_767), dtype=np.int16)


def flat(pitch_hz: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda time_s: np.full_like(time_s, pitch_hz)


def bent(pitch_hz: float, by_st: float, from_s: float = 1.6) -> Callable[[np.ndarray], np.ndarray]:
    """Return a contour that is flat, and `by_st` semitones off from `from_s` on."""
    return lambda time_s: pitch_hz * 2 ** (np.where(time_s < from_s, 0.0, by_st) / 12)


@pytest.mark.parametrize("pitch_hz", [85, 120, 210, 300, 400])
def test_the_contour_is_the_pitch(pitch_hz: float) -> None:
    """Men, women and children, to half a semitone, in every frame."""
    pitch, regular = contour(voice(flat(pitch_hz)))
    assert regular.min() > 0.6
    assert np.abs(pitch - 12 * np.log2(pitch_hz / 55)).max() < 0.5


@pytest.mark.parametrize("by_st", [-6.0, -3.0, 0.0, 3.0])
def test_a_fall_is_negative_and_a_held_voice_is_near_zero(by_st: float) -> None:
    """In semitones, to half of one."""
    found = ending(voice(bent(140, by_st))).pitch_st
    assert found == pytest.approx(by_st, abs=0.5)


@pytest.mark.slow
@given(gain=st.floats(300, 10_000), pitch_hz=st.floats(90, 250))
def test_neither_loudness_nor_voice_matters(gain: float, pitch_hz: float) -> None:
    """Four semitones down are four semitones down."""
    found = ending(voice(bent(pitch_hz, -4.0), gain=gain)).pitch_st
    assert found == pytest.approx(-4.0, abs=0.7)


def test_too_little_voice_has_no_pitch() -> None:
    """A short word, noise, silence, no samples at all."""
    rng = np.random.default_rng(7)
    assert ending(voice(flat(150), seconds=0.2)).pitch_st is None
    assert ending(rng.normal(0, 2_000, 2 * RATE_HZ).astype(np.int16)) == Ending(None, 0)
    assert ending(np.zeros(2 * RATE_HZ, dtype=np.int16)) == Ending(None, 0)
    assert ending(np.zeros(0, dtype=np.int16)) == Ending(None, 0)


def test_a_voiceless_end_is_looked_past() -> None:
    """A word that ends in "s": the syllable before it counts, unless it lies more than 400 ms back."""
    rng = np.random.default_rng(7)
    hiss = rng.normal(0, 300, RATE_HZ).astype(np.int16)
    spoken = voice(bent(140, -5.0))
    assert ending(np.concatenate((spoken, hiss[: RATE_HZ // 5]))).pitch_st == pytest.approx(-5.0, abs=0.7)
    assert ending(np.concatenate((spoken, hiss))) == Ending(None, 0)


@pytest.mark.parametrize("unbroken_ms", [60, 160, 400, 900])
def test_an_unbroken_voice_is_as_long_as_it_is(unbroken_ms: int) -> None:
    """Since it was last interrupted by a breath of 100 ms, to a frame and a half (30 ms)."""
    rng = np.random.default_rng(7)
    breath = rng.normal(0, 600, RATE_HZ // 10).astype(np.int16)
    spoken = voice(flat(140), seconds=unbroken_ms / 1_000)
    found = ending(np.concatenate((voice(flat(140)), breath, spoken)))
    assert found.voiced_ms == pytest.approx(unbroken_ms, abs=30)


def test_a_voice_that_creaks_has_broken_up() -> None:
    """Periods that come at irregular times, as at the end of a sentence: of half a second little is unbroken."""
    rng = np.random.default_rng(7)
    creak = np.zeros(RATE_HZ // 2)
    creak[rng.integers(0, len(creak), 15)] = 20_000
    creak = np.convolve(creak, np.exp(-np.arange(120) / 20) * np.sin(np.arange(120) / 4), "same")
    assert ending(np.concatenate((voice(flat(140)), creak.astype(np.int16)))).voiced_ms <= 80
