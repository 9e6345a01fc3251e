"""Nonlexical sounds lack the consonants that words have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.audio.nonlexical import is_nonlexical
from voicepipe.audio.samples import Samples

DATA = Path(__file__).parents[1] / "data"
RATES = (8_000, 16_000, 24_000)


def voice(rate_hz: int, ms: int = 400) -> Samples:
    """Return a pulse train of 120 Hz that falls by 12 dB an octave, as a voice with closed lips."""
    t = np.arange(ms * rate_hz // 1_000) / rate_hz
    harmonics = np.array([np.sin(2 * np.pi * 120 * k * t) / k**2 for k in range(1, 28)])
    return np.asarray(8_000 * harmonics.sum(axis=0), dtype=np.int16)


@pytest.mark.parametrize("rate_hz", RATES)
def test_voice_without_consonants_is_nonlexical(rate_hz: int) -> None:
    assert is_nonlexical(voice(rate_hz), rate_hz)


@pytest.mark.parametrize("rate_hz", RATES)
def test_a_noise_as_of_an_s_makes_it_none(rate_hz: int) -> None:
    said, n = voice(rate_hz), rate_hz // 20
    noise = np.diff(np.random.default_rng(3).normal(0, 2_500, n + 1)).astype(np.int16)
    assert not is_nonlexical(np.concatenate((said, noise, said)), rate_hz)


def test_silence_is_nonlexical() -> None:
    assert is_nonlexical(np.zeros(0, dtype=np.int16), 24_000)
    assert is_nonlexical(np.zeros(24_000, dtype=np.int16), 24_000)


@pytest.mark.parametrize(
    ("path", "from_ms", "to_ms", "expected"),
    [
        ("backchannel/ami_trn01_22269.flac", 575, 1_152, True),
        ("backchannel/ami_dev01_19568.flac", 575, 1_370, True),
        ("clean/ls_2033-164914-0004.flac", 500, 1_300, False),
        ("clean/LJ001-0004.flac", 500, 1_300, False),
    ],
)
def test_recordings(path: str, from_ms: int, to_ms: int, expected: bool) -> None:
    """Two who listen, and two who read."""
    said = read_sound(DATA / path, 24_000)[from_ms * 24 : to_ms * 24]
    assert is_nonlexical(said, 24_000) is expected
