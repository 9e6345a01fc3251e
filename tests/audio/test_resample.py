"""The streaming resampler: timing, purity, independence of how the input was cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.conftest import Clip
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, rms_dbfs

PAIRS = [(24_000, 16_000), (16_000, 24_000), (8_000, 16_000), (48_000, 16_000), (24_000, 8_000), (44_100, 16_000)]


def tone(hz: float, rate_hz: int, n_samples: int) -> Samples:
    """A sine at -12 dBFS."""
    sine = np.sin(2 * np.pi * hz * np.arange(n_samples) / rate_hz)
    return np.asarray(np.rint(8_192 * sine), dtype=np.int16)


def whole(resampler: Resampler, samples: Samples) -> Samples:
    return np.concatenate((resampler.push(samples), resampler.flush()))


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_tone_keeps_its_time_and_shape(from_hz: int, to_hz: int) -> None:
    """Output k is the sound at k / to_hz: no delay is left in the samples, and none of them is missing."""
    got = whole(Resampler(from_hz, to_hz), tone(1_000, from_hz, from_hz // 2))
    expected = tone(1_000, to_hz, to_hz // 2)
    assert len(got) == len(expected)
    middle = slice(to_hz // 20, -to_hz // 20)
    assert np.abs(got[middle].astype(int) - expected[middle]).max() <= 3


@pytest.mark.parametrize(("from_hz", "to_hz"), [(24_000, 16_000), (48_000, 16_000), (24_000, 8_000)])
def test_sound_that_the_slower_rate_cannot_hold_is_gone(from_hz: int, to_hz: int) -> None:
    """A tone at 0.62 of the new rate would come back as a false one at 0.38: it is 65 dB down."""
    got = whole(Resampler(from_hz, to_hz), tone(0.62 * to_hz, from_hz, from_hz // 2))
    assert rms_dbfs(got[to_hz // 20 : -to_hz // 20]) < -15 - 65


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_the_delay_is_what_it_says(from_hz: int, to_hz: int) -> None:
    """Fed 20 ms at a time, exactly `delay_samples` are held back, never more, and that is 10 ms at most."""
    resampler = Resampler(from_hz, to_hz)
    n_out = 0
    for n_frames in range(1, 30):
        n_out += len(resampler.push(tone(300, from_hz, from_hz // 50)))
        assert n_frames * to_hz // 50 - n_out == resampler.delay_samples
    assert resampler.delay_ms <= 10


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 900), max_size=20), st.integers(0, 2**32 - 1))
def test_output_does_not_depend_on_how_the_input_was_cut(pair: tuple[int, int], cuts: list[int], seed: int) -> None:
    """Any chunking gives the same samples to the bit, and of the promised number; twice over, after a flush."""
    n_samples = sum(cuts)
    noise = np.random.default_rng(seed).integers(-32_768, 32_767, n_samples, endpoint=True).astype(np.int16)
    resampler = Resampler(*pair)
    expected = whole(Resampler(*pair), noise)
    for _ in range(2):
        pieces = [resampler.push(piece) for piece in np.split(noise, np.cumsum(cuts))]
        got = np.concatenate((*pieces, resampler.flush()))
        assert got.tolist() == expected.tolist()
    assert len(expected) == -(-n_samples * pair[1] // pair[0])


def test_there_and_back_is_the_same_speech(clips: dict[str, Clip]) -> None:
    """16 to 24 kHz and back changes speech by less than -35 dB of itself."""
    before = clips["clean/vctk_p287_001"].samples(16_000)
    after = whole(Resampler(24_000, 16_000), whole(Resampler(16_000, 24_000), before))
    assert len(after) == len(before)
    assert rms_dbfs((after.astype(np.int32) - before).astype(np.int16)) < rms_dbfs(before) - 35


def test_equal_rates_pass_untouched_and_impossible_ones_are_refused() -> None:
    """Identity copies nothing and holds nothing back."""
    samples = tone(440, 16_000, 100)
    same = Resampler(16_000, 16_000)
    assert same.push(samples) is samples
    assert same.delay_samples == len(same.flush()) == 0
    with pytest.raises(ValueError, match="positive rates, got 0"):
        Resampler(0, 16_000)


def test_full_scale_does_not_wrap() -> None:
    """A filter overshoots at a full-scale step; it is clipped, never turned into the opposite sign."""
    step = np.concatenate((np.full(1_000, -32_768), np.full(1_000, 32_767))).astype(np.int16)
    got = whole(Resampler(24_000, 16_000), step)
    assert got[100:660].max() < 0 < got[672:1_200].min()
