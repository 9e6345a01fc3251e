"""The recent past, by position."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.history import AudioHistory, RingBuffer


@given(st.lists(st.integers(0, 50), max_size=60))
def test_buffer_reads_back_what_was_appended(lengths: list[int]) -> None:
    """At any time the stored part can be read, by its position."""
    stream = np.arange(sum(lengths), dtype=np.int16)
    buffer = RingBuffer(keep_samples=70, max_append_samples=50)
    for n in lengths:
        buffer.append(stream[buffer.end : buffer.end + n])
        assert buffer.start <= max(0, buffer.end - 70)
        assert buffer.read(buffer.start, buffer.end).tolist() == stream[buffer.start : buffer.end].tolist()


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(0, 2_000))
def test_recent_keeps_enough_and_the_whole_newest_append(lengths: list[int], position: int) -> None:
    """`since` gives everything from a position on, as far back as `keep_samples` before the newest append."""
    stream = np.arange(sum(lengths), dtype=np.int16)
    recent = AudioHistory(keep_samples=100)
    for n in lengths:
        before = recent.end
        recent.append(stream[before : before + n])
        retained = recent.since(0)
        assert len(retained) >= min(recent.end, 100 + n)
        assert len(retained) <= 100 + 300 + n
        assert retained.tolist() == stream[recent.end - len(retained) : recent.end].tolist()
        assert (
            recent.since(position).tolist() == stream[max(position, recent.end - len(retained)) : recent.end].tolist()
        )
