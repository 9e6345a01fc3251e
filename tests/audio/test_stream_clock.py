"""When was that sample spoken, by the session's clock?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.history import StreamClock


def clock(*arrived: tuple[int, int]) -> StreamClock:
    made = StreamClock()
    for end_ms, now_ms in arrived:
        made.arrived(end_ms, now_ms)
    return made


def test_a_steady_stream_maps_by_its_offset() -> None:
    """A stream that began 5 s into the session."""
    steady = clock(*((n * 20, 5_000 + n * 20) for n in range(1, 100)))
    assert steady.session_ms(0) == 5_000
    assert steady.session_ms(1_234) == 6_234


def test_what_is_yet_to_come_has_the_newest_offset() -> None:
    """The stream fell behind by 100 ms after its first second."""
    late = clock((1_000, 1_000), (2_000, 2_100))
    assert late.session_ms(3_000) == 3_100


def test_a_burst_is_counted_in_samples() -> None:
    """5 s in one append end now and began 5 s ago, though they came at once."""
    assert clock((5_000, 9_000)).session_ms(1_000) == 5_000


def test_a_chunk_that_was_held_up_moves_nothing() -> None:
    """The chunk of 20 to 40 ms came 300 ms late, with those behind it: what is in it was spoken on time."""
    held_up = clock((20, 20), (40, 340), (340, 340), (360, 360))
    assert held_up.session_ms(30) == 30
    assert held_up.session_ms(200) == 200


def test_a_pause_of_the_stream_moves_only_what_follows() -> None:
    """The user muted for 3 s after one second: the last sample keeps its time, the next ones have theirs."""
    muted = clock(*((n * 20, n * 20) for n in range(1, 51)), *((n * 20, 3_000 + n * 20) for n in range(51, 60)))
    assert muted.session_ms(1_000) == 1_000
    assert muted.session_ms(1_020) == 4_020


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 500)), min_size=1, max_size=200))
def test_the_mapping_never_runs_backwards_and_never_into_the_future(steps: list[tuple[int, int]]) -> None:
    """Later samples are never earlier, what has come was spoken by now, and little is remembered."""
    made, end_ms, now_ms = StreamClock(), 0, 0
    for more_ms, wait_ms in steps:
        end_ms, now_ms = end_ms + more_ms, now_ms + wait_ms
        made.arrived(end_ms, now_ms)
        times = [made.session_ms(position) for position in range(max(0, end_ms - 100), end_ms + 1, 5)]
        assert times == sorted(times)
        assert times[-1] <= now_ms
    assert len(made._bounds) <= 4_001
