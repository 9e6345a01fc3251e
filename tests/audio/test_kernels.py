"""The loops over samples are exact: in numpy here, and in C where `tests/deploy/test_compiled.py` runs this file."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio import levels
from voicepipe.audio.resample import _filter, _filter_blocks
from voicepipe.audio.samples import Samples, mean_squares, peak

LOWEST, HIGHEST = -32_768, 32_767
RATES_HZ = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
SEEDS = st.integers(0, 2**32 - 1)


def random_samples(n: int, seed: int) -> Samples:
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST + 1, n).astype(np.int16)


@given(st.lists(st.integers(LOWEST, HIGHEST), min_size=1, max_size=600))
def test_peak_is_the_highest_sample(values: list[int]) -> None:
    assert peak(np.array(values, dtype=np.int16)) == max(values)


@given(st.integers(1, 400), st.integers(0, 5), SEEDS)
def test_mean_squares_are_exact(n_frame: int, n_frames: int, seed: int) -> None:
    """To the last bit: edges do not depend on how the audio was cut."""
    samples = random_samples(n_frame * n_frames, seed)
    exact = [Fraction(sum(int(sample) ** 2 for sample in frame), n_frame) for frame in samples.reshape(-1, n_frame)]
    assert mean_squares(samples, n_frame) == [float(mean) for mean in exact]


def test_mean_squares_of_the_loudest_frame_are_exact() -> None:
    assert mean_squares(np.full(640, LOWEST, dtype=np.int16), 320) == [2.0**30, 2.0**30]


@pytest.mark.parametrize("to_hz", RATES_HZ)
@pytest.mark.parametrize("from_hz", RATES_HZ)
@pytest.mark.parametrize("n_blocks", [1, 2, 3, 4, 5, 11])
def test_resampling_is_exact(from_hz: int, to_hz: int, n_blocks: int) -> None:
    """As whole numbers have it, rounded halves to even, and limited to int16."""
    shared, shift = _filter(from_hz, to_hz), 24
    samples = random_samples(2 * shared.reach + n_blocks * shared.block_in, n_blocks)
    samples[: len(samples) // 2] = HIGHEST  # the filter overshoots behind a step: some sums are out of range
    out = np.zeros(n_blocks * shared.block_out, dtype=np.int16)
    _filter_blocks(samples, shared.weights, out, shared.block_in, shared.block_out)
    whole = (shared.weights * 2**shift).astype(np.int64)
    starts = range(0, n_blocks * shared.block_in, shared.block_in)
    sums = np.stack([samples[at : at + len(whole)].astype(np.int64) @ whole for at in starts]).ravel().tolist()
    rounded = [min(max(round(Fraction(each, 2**shift)), LOWEST), HIGHEST) for each in sums]
    assert out.tolist() == rounded


@given(st.integers(0, 1_000), st.sampled_from([0, 1, 100, 30_000]), SEEDS)
def test_levels_are_those_of_exact_sums(n_samples: int, peak_of_noise: int, seed: int) -> None:
    """To 0.001 dB, in a hop and beside others, and counted from the end."""
    samples = np.random.default_rng(seed).integers(-peak_of_noise, peak_of_noise + 1, n_samples).astype(np.int16)
    n_hops, wide = max(0, n_samples - 1) // levels.HOP_SAMPLES, samples.astype(np.float64)
    pairs = wide[1:], wide[1:] - 0.97 * wide[:-1]
    ends = [part[len(part) - n_hops * levels.HOP_SAMPLES :] for part in pairs]
    exact = 10 * np.log10(np.square(ends).reshape(2, n_hops, levels.HOP_SAMPLES).mean(axis=2) + 1)
    found = levels.levels(samples)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max(initial=0) < 1e-3
