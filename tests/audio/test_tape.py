"""The recent past, by position."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.tape import Recent, Tape


@given(st.lists(st.integers(0, 50), max_size=60))
def test_tape_reads_back_what_was_appended(lengths: list[int]) -> None:
    """At any time the kept part is there, by its position."""
    stream = np.arange(sum(lengths), dtype=np.int16)
    tape = Tape(keep_samples=70, longest_append_samples=50)
    for n in lengths:
        tape.append(stream[tape.end : tape.end + n])
        assert tape.start <= max(0, tape.end - 70)
        assert tape.read(tape.start, tape.end).tolist() == stream[tape.start : tape.end].tolist()


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(0, 2_000))
def test_recent_keeps_enough_and_the_whole_newest_append(lengths: list[int], position: int) -> None:
    """`since` gives everything from a position on, as far back as `keep_samples` before the newest append."""
    stream = np.arange(sum(lengths), dtype=np.int16)
    recent = Recent(keep_samples=100)
    for n in lengths:
        before = recent.end
        recent.append(stream[before : before + n])
        kept = recent.since(0)
        assert len(kept) >= min(recent.end, 100 + n)
        assert len(kept) <= 100 + 300 + n
        assert kept.tolist() == stream[recent.end - len(kept) : recent.end].tolist()
        assert recent.since(position).tolist() == stream[max(position, recent.end - len(kept)) : recent.end].tolist()
