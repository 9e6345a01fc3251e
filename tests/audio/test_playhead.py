"""What has been heard of what we sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.playhead import Playhead


def test_sound_plays_in_real_time_from_its_first_frame() -> None:
    """Seconds sent at once are heard one by one; nothing is heard twice."""
    head = Playhead()
    assert head.sent(1, 200, now_ms=1_000) == 1_000
    assert head.sent(1, 2_800, now_ms=1_010) == 1_200
    assert [head.heard_ms(1, now_ms) for now_ms in (1_000, 1_500, 4_000, 9_000)] == [0, 500, 3_000, 3_000]
    assert head.ends_at_ms == 4_000
    assert head.audible(3_999)
    assert not head.audible(4_000)


def test_an_empty_loudspeaker_waits_for_the_next_frame() -> None:
    """A stall of the voice is not heard as sound."""
    head = Playhead()
    head.sent(1, 100, now_ms=0)
    assert head.sent(1, 100, now_ms=600) == 600
    assert head.heard_ms(1, 600) == 100
    assert head.heard_ms(1, 650) == 150


def test_a_report_overrides_the_estimate() -> None:
    """A client that buffers 300 ms is behind; from its report on the estimate is, too."""
    head = Playhead()
    head.sent(1, 2_000, now_ms=0)
    assert head.reported(1, 700, now_ms=1_000) == 700
    assert head.heard_ms(1, 1_000) == 700
    assert head.ends_at_ms == 2_300
    assert head.heard_ms(1, 1_500) == 1_200


def test_lies_are_clamped() -> None:
    """More than was sent is all of it, less than nothing is nothing, an unknown turn is nothing."""
    head = Playhead()
    head.sent(1, 500, now_ms=0)
    assert head.reported(1, 9_000_000, now_ms=100) == 500
    assert head.heard_ms(1, 100) == 500
    assert not head.audible(100)
    assert head.reported(1, -5, now_ms=200) == 0
    assert head.ends_at_ms == 700
    assert head.reported(7, 300, now_ms=200) == 0
    assert head.heard_ms(7, 10_000) == 0
    assert head.sent_ms(7) == 0


def test_a_cut_turn_stays_at_what_was_heard() -> None:
    """Neither time nor a late report adds to it, and the next turn plays at once."""
    head = Playhead()
    head.sent(1, 5_000, now_ms=0)
    assert head.cut(1, 1_200) == 1_200
    assert head.reported(1, 5_000, 1_300) == 1_200
    assert head.heard_ms(1, 9_000) == 1_200
    assert head.sent(2, 100, now_ms=1_400) == 1_400
    assert head.cut(3, 1_500) == 0


def test_a_queued_turn_follows_the_one_before_it() -> None:
    """It begins when the other ends, and a report on the first moves both."""
    head = Playhead()
    head.sent(1, 1_000, now_ms=0)
    assert head.sent(2, 1_000, now_ms=100) == 1_000
    assert head.heard_ms(2, 900) == 0
    head.reported(1, 300, now_ms=500)
    assert head.heard_ms(1, 1_200) == 1_000
    assert head.heard_ms(2, 1_200) == 0
    assert head.ends_at_ms == 2_200


def test_only_the_last_turns_are_remembered() -> None:
    """An endless call doesn't fill the memory."""
    head = Playhead()
    for turn in range(100):
        head.sent(turn, 10, now_ms=turn * 10)
    assert head.heard_ms(99, 1_000) == 10
    assert head.heard_ms(50, 1_000) == 0


STEP = st.tuples(st.sampled_from(["sent", "reported"]), st.integers(-100, 3_000), st.integers(0, 700))


@given(st.lists(STEP, max_size=40))
def test_heard_lies_between_nothing_and_what_was_sent(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is sent and claimed, and only time and reports move it: never backwards by time alone."""
    head, now_ms = Playhead(), 0
    for what, amount_ms, wait_ms in steps:
        before_ms = head.heard_ms(1, now_ms)
        now_ms += wait_ms
        assert before_ms <= head.heard_ms(1, now_ms) <= before_ms + wait_ms
        if what == "sent":
            head.sent(1, abs(amount_ms), now_ms)
        else:
            claimed_ms = head.reported(1, amount_ms, now_ms)
            assert head.heard_ms(1, now_ms) == claimed_ms
        assert 0 <= head.heard_ms(1, now_ms) <= head.sent_ms(1)
    assert head.heard_ms(1, max(now_ms, head.ends_at_ms)) == head.sent_ms(1)
