"""The loops over samples are exact, in numpy and in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio import levels, resample, samples
from voicepipe.audio.compiled import IS_COMPILED, WHY_NUMPY, kernels
from voicepipe.audio.samples import Samples

LOWEST, HIGHEST = -32_768, 32_767
RATES_HZ = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
SEEDS = st.integers(0, 2**32 - 1)

IN_NUMPY: dict[str, Callable[..., Any]] = {
    "peak": samples._peak,
    "first_beyond": samples._first_beyond,
    "mean_squares": samples._mean_squares,
    "resample": resample._in_numpy,
    "hop_powers": levels._in_numpy,
}


in_numpy_and_in_c = pytest.mark.parametrize("where", ["in_numpy", "in_c_16", "in_c_32", "in_c_64"])
"""And with vectors of so many bytes, if the processor has them."""


@pytest.fixture(autouse=True)
def longest_vectors() -> Iterator[None]:
    """Use them again."""
    yield
    if IS_COMPILED:
        kernels.choose(64)


def loop(where: str, name: str) -> Callable[..., Any]:
    """Return the loop of this name; in C it must be compiled."""
    if where == "in_numpy":
        return IN_NUMPY[name]
    assert IS_COMPILED, WHY_NUMPY or "there are no loops in C for this machine"
    kernels.choose(int(where.removeprefix("in_c_")))
    return getattr(kernels, name)  # type: ignore[no-any-return]


def random_samples(n: int, seed: int) -> Samples:
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST + 1, n).astype(np.int16)


@in_numpy_and_in_c
@given(st.lists(st.integers(LOWEST, HIGHEST), min_size=1, max_size=600))
def test_peak_is_the_highest_sample(where: str, values: list[int]) -> None:
    assert loop(where, "peak")(np.array(values, dtype=np.int16)) == max(values)


@in_numpy_and_in_c
@given(st.lists(st.integers(LOWEST, HIGHEST) | st.integers(-3, 3), max_size=60), st.sampled_from([0, 2, 103, HIGHEST]))
def test_the_first_sample_beyond_a_level_is_found(where: str, values: list[int], most: int) -> None:
    """On either side, and in samples that are not contiguous, in another order, or at an odd address."""
    expected, last = (
        next((i for i, value in enumerate(each) if abs(value) > most), None) for each in (values, values[::-1])
    )
    audio = np.array(values, dtype=np.int16)
    odd = np.frombuffer(b"\0" + audio.tobytes(), dtype=np.int16, offset=1)
    find = loop(where, "first_beyond")
    assert find(audio, most) == expected
    assert find(np.repeat(audio, 2)[::2], most) == expected
    assert find(odd, most) == expected
    assert find(audio[::-1], most) == last


@in_numpy_and_in_c
@pytest.mark.parametrize("wrong", [np.zeros(4, np.float32), np.zeros(4, ">i2"), np.zeros((2, 2), np.int16)])
def test_the_first_sample_is_sought_in_a_row_of_int16(where: str, wrong: npt.NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="expected a row of samples, int16"):
        loop(where, "first_beyond")(wrong, 1)


@in_numpy_and_in_c
@given(st.integers(1, 400), st.integers(0, 5), SEEDS)
def test_mean_squares_are_exact(where: str, n_frame: int, n_frames: int, seed: int) -> None:
    """To the last bit: edges do not depend on how the audio was cut."""
    audio = random_samples(n_frame * n_frames, seed)
    exact = [Fraction(sum(int(sample) ** 2 for sample in frame), n_frame) for frame in audio.reshape(-1, n_frame)]
    assert loop(where, "mean_squares")(audio, n_frame) == [float(mean) for mean in exact]


@in_numpy_and_in_c
def test_mean_squares_of_the_loudest_frame_are_exact(where: str) -> None:
    assert loop(where, "mean_squares")(np.full(640, LOWEST, dtype=np.int16), 320) == [2.0**30, 2.0**30]


@pytest.mark.parametrize("to_hz", RATES_HZ)
@pytest.mark.parametrize("from_hz", RATES_HZ)
@pytest.mark.parametrize("n_blocks", [1, 2, 3, 4, 5, 11])
@in_numpy_and_in_c
def test_resampling_is_exact(where: str, from_hz: int, to_hz: int, n_blocks: int) -> None:
    """As whole numbers have it, rounded halves to even, and limited to int16."""
    shared, shift = resample._filter(from_hz, to_hz), 24
    audio = random_samples(2 * shared.reach + n_blocks * shared.block_in, n_blocks)
    audio[: len(audio) // 2] = HIGHEST  # the filter overshoots behind a step: some sums are out of range
    out = np.zeros(n_blocks * shared.block_out, dtype=np.int16)
    loop(where, "resample")(audio, shared.weights, out, shared.block_in, shared.block_out)
    whole = (shared.weights * 2**shift).astype(np.int64)
    starts = range(0, n_blocks * shared.block_in, shared.block_in)
    sums = np.stack([audio[at : at + len(whole)].astype(np.int64) @ whole for at in starts]).ravel().tolist()
    rounded = [min(max(round(Fraction(each, 2**shift)), LOWEST), HIGHEST) for each in sums]
    assert out.tolist() == rounded


def exact_powers(audio: Samples, n_hops: int) -> npt.NDArray[np.float64]:
    """Return the mean squares of the last hops, plain and pre-emphasised, (2, n_hops)."""
    wide = audio.astype(np.float64)
    pairs = wide[1:], wide[1:] - 0.97 * wide[:-1]
    ends = [part[len(part) - n_hops * levels.HOP_SAMPLES :] for part in pairs]
    means: npt.NDArray[np.float64] = np.square(ends).reshape(2, n_hops, levels.HOP_SAMPLES).mean(axis=2)
    return means


@in_numpy_and_in_c
@given(st.integers(1, 6), st.sampled_from([0, 1, 100, 30_000]), SEEDS)
def test_powers_of_hops_are_those_of_exact_sums(where: str, n_hops: int, most: int, seed: int) -> None:
    """To the fifth digit."""
    n_samples = n_hops * levels.HOP_SAMPLES
    audio = np.random.default_rng(seed).integers(-most, most + 1, n_samples + 1).astype(np.int16)
    out = np.zeros((2, n_hops), dtype=np.float32)
    loop(where, "hop_powers")(audio, levels.HOP_SAMPLES, 0.97, out)
    assert out / levels.HOP_SAMPLES == pytest.approx(exact_powers(audio, n_hops), rel=1e-5)


@given(st.integers(0, 1_000), st.sampled_from([0, 1, 100, 30_000]), SEEDS)
def test_levels_are_those_of_exact_sums(n_samples: int, most: int, seed: int) -> None:
    """To 0.001 dB, in a hop and beside others, and counted from the end."""
    audio = np.random.default_rng(seed).integers(-most, most + 1, n_samples).astype(np.int16)
    n_hops = max(0, n_samples - 1) // levels.HOP_SAMPLES
    exact = 10 * np.log10(exact_powers(audio, n_hops) + 1)
    found = levels.levels(audio)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max(initial=0) < 1e-3
