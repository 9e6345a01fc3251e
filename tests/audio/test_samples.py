"""Bytes, samples and their levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.samples import SILENT_DBFS, PcmJoiner, first_audible, rms_dbfs, silence, to_pcm


@given(st.lists(st.binary(max_size=9), max_size=12))
def test_samples_do_not_depend_on_where_the_bytes_were_cut(chunks: list[bytes]) -> None:
    """Odd chunks lose nothing and shift nothing; only a last half sample waits."""
    joiner = PcmJoiner()
    got = b"".join(to_pcm(joiner.push(chunk)) for chunk in chunks)
    whole = b"".join(chunks)
    assert got == whole[: len(whole) & ~1]
    assert joiner.has_half == (len(whole) % 2 == 1)


def test_cleared_joiner_forgets_the_half_sample() -> None:
    """After a clear the next byte begins a sample."""
    joiner = PcmJoiner()
    joiner.push(b"\x01\x02\x03")
    joiner.clear()
    assert joiner.push(b"\x05\x00").tolist() == [5]


def test_levels_are_relative_to_full_scale() -> None:
    """Full scale is 0 dBFS, a tenth -20, silence the agreed floor; the most negative sample doesn't overflow."""
    assert rms_dbfs(np.full(100, -32_768, dtype=np.int16)) == pytest.approx(0, abs=1e-9)
    assert rms_dbfs(np.full(100, 3_277, dtype=np.int16)) == pytest.approx(-20, abs=0.01)
    assert rms_dbfs(silence(100)) == SILENT_DBFS
    assert rms_dbfs(silence(0)) == SILENT_DBFS


def test_first_audible_sample_is_found_behind_hiss() -> None:
    """Hiss at -60 dBFS is silence, the first louder sample is not, whatever its sign."""
    sound = np.tile(np.array([30, -30], dtype=np.int16), 500)
    assert first_audible(sound) is None
    assert first_audible(silence(0)) is None
    sound[700] = -32_768
    sound[800] = 2_000
    assert first_audible(sound) == 700
    sound[0] = 2_000
    assert first_audible(sound) == 0
