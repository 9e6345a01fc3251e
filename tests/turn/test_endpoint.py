"""The wait: exact when a client says so, else one continuous function of the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.strategies import Adaptive, Silence, held
from voicepipe.turn.endpointing.strategy import NOTHING, EndpointStrategy, Evidence

ADAPTIVE = Adaptive(720)

EVIDENCE = st.builds(
    Evidence,
    final_pitch_st=st.none() | st.floats(-40, 40),
    final_voiced_ms=st.none() | st.integers(0, 3_000),
    unfinished=st.floats(-1, 1),
    longest_pause_ms=st.integers(0, 30_000),
)
SILENCES = st.integers(0, 10_000)


def wait_ms(strategy: EndpointStrategy, evidence: Evidence = NOTHING) -> int:
    """The silence that ends a turn."""
    return strategy.decide(evidence).audible_ms


def start_ms(strategy: EndpointStrategy, evidence: Evidence = NOTHING) -> int:
    """The silence after which work begins."""
    return strategy.decide(evidence).start_ms


@given(silence_ms=SILENCES, evidence=EVIDENCE)
def test_requested_silence_is_used(silence_ms: int, evidence: Evidence) -> None:
    """Whatever the voice and the words say."""
    assert wait_ms(Silence(silence_ms), evidence) == silence_ms


@given(silence_ms=SILENCES)
def test_who_knows_nothing_waits_as_set(silence_ms: int) -> None:
    """The setting is the middle."""
    assert wait_ms(Adaptive(silence_ms)) == silence_ms


@given(silence_ms=SILENCES, evidence=EVIDENCE)
def test_the_wait_is_bounded(silence_ms: int, evidence: Evidence) -> None:
    """Between 0.73 and 2.31 of what is set, and work begins within it."""
    settings = Adaptive(silence_ms)
    wait = wait_ms(settings, evidence)
    assert 0.73 * silence_ms - 1 <= wait <= 2.31 * silence_ms + 1
    assert 0 <= start_ms(settings, evidence) <= wait


@given(evidence=EVIDENCE, more=st.floats(0, 1))
def test_words_that_miss_more_wait_longer(evidence: Evidence, more: float) -> None:
    """Of two texts the less finished one never ends the turn, nor begins the work, sooner."""
    less_finished = replace(evidence, unfinished=min(1.0, evidence.unfinished + more))
    assert wait_ms(ADAPTIVE, less_finished) >= wait_ms(ADAPTIVE, evidence)
    assert start_ms(ADAPTIVE, less_finished) >= start_ms(ADAPTIVE, evidence)


@given(evidence=EVIDENCE, more_ms=st.integers(0, 5_000))
def test_who_pauses_longer_is_waited_for_longer(evidence: Evidence, more_ms: int) -> None:
    """The user's own pace."""
    slower = replace(evidence, longest_pause_ms=evidence.longest_pause_ms + more_ms)
    assert wait_ms(ADAPTIVE, slower) >= wait_ms(ADAPTIVE, evidence)


@given(evidence=EVIDENCE, low=st.floats(-12, 0), high=st.floats(-12, 0))
def test_a_voice_that_fell_further_is_waited_for_less(evidence: Evidence, low: float, high: float) -> None:
    """Below the middle of the range."""
    fell, stayed = (replace(evidence, final_pitch_st=at_st) for at_st in sorted((low, high)))
    assert wait_ms(ADAPTIVE, fell) <= wait_ms(ADAPTIVE, stayed)
    assert start_ms(ADAPTIVE, fell) <= start_ms(ADAPTIVE, stayed)


@given(evidence=EVIDENCE, voiced_ms=st.integers(0, 3_000), more_ms=st.integers(0, 3_000))
def test_a_voice_that_was_drawn_out_is_waited_for_longer(evidence: Evidence, voiced_ms: int, more_ms: int) -> None:
    """And one that broke up less long."""
    broken, drawn = (replace(evidence, final_voiced_ms=ms) for ms in (voiced_ms, voiced_ms + more_ms))
    assert wait_ms(ADAPTIVE, broken) <= wait_ms(ADAPTIVE, drawn)
    assert start_ms(ADAPTIVE, broken) <= start_ms(ADAPTIVE, drawn)


@given(
    evidence=EVIDENCE,
    pitch_st=st.floats(-40, 40),
    by_st=st.floats(-0.1, 0.1),
    by_words=st.floats(-0.01, 0.01),
    by_pause_ms=st.integers(-10, 10),
)
def test_a_little_more_evidence_is_a_little_more_wait(
    evidence: Evidence, pitch_st: float, by_st: float, by_words: float, by_pause_ms: int
) -> None:
    """No cliffs: a tenth of a semitone, a hundredth of a word and 10 ms of pause move it by less than 100 ms."""
    here = replace(evidence, final_pitch_st=pitch_st)
    there = Evidence(
        final_pitch_st=pitch_st + by_st,
        final_voiced_ms=evidence.final_voiced_ms,
        unfinished=max(-1.0, min(1.0, evidence.unfinished + by_words)),
        longest_pause_ms=max(0, evidence.longest_pause_ms + by_pause_ms),
    )
    assert abs(wait_ms(ADAPTIVE, there) - wait_ms(ADAPTIVE, here)) < 100
    assert abs(start_ms(ADAPTIVE, there) - start_ms(ADAPTIVE, here)) < 30


@pytest.mark.parametrize(
    ("pitch_st", "expected"), [(None, 0.5), (-20, 0), (-4, 0), (-2, 0.5), (0, 1), (2, 0.75), (4, 0.5), (20, 0.5)]
)
def test_a_held_voice_is_one_that_stays_in_the_middle(pitch_st: float | None, expected: float) -> None:
    """A falling pitch is an end; a rising or unknown pitch decides nothing."""
    assert held(pitch_st) == expected


def test_a_broken_voice_counts_as_much_as_a_fallen_one() -> None:
    """With two syllables unbroken it is held; pitch and breaks have half a say each."""
    assert [held(pitch_st, voiced_ms) for pitch_st in (-4, None, 0) for voiced_ms in (0, 160, 320, 2_000)] == [
        *(0.0, 0.25, 0.5, 0.5),
        *(0.25, 0.5, 0.75, 0.75),
        *(0.5, 0.75, 1.0, 1.0),
    ]


def test_the_waits_of_some_ends() -> None:
    """With 720 ms set."""
    waits = {
        "fallen and closed": Evidence(final_pitch_st=-5, unfinished=-0.6),
        "fallen": Evidence(final_pitch_st=-5),
        "unknown": NOTHING,
        "held": Evidence(final_pitch_st=0),
        "held on a missing word": Evidence(final_pitch_st=0, unfinished=1),
    }
    assert [wait_ms(ADAPTIVE, evidence) for evidence in waits.values()] == [589, 675, 720, 1_035, 1_663]


def test_pauses_gather_what_is_known_of_the_one_that_lasts() -> None:
    """The pitch with its beginning, the words when they come, the pace from the pauses before it."""
    pauses = Pauses()
    pauses.began(-1.0, 120)
    assert pauses.evidence == Evidence(final_pitch_st=-1.0, final_voiced_ms=120)
    pauses.resumed(640)
    assert pauses.evidence == NOTHING
    pauses.began(None)
    pauses.add_words("and then the")
    assert pauses.evidence == Evidence(text="and then the", unfinished=1.0, longest_pause_ms=640)


def test_old_long_pause_is_dropped() -> None:
    """After eight shorter ones."""
    pauses = Pauses()
    pauses.resumed(2_000)
    for _ in range(8):
        pauses.resumed(300)
    pauses.began(None)
    assert pauses.evidence.longest_pause_ms == 300
