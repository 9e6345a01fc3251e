"""The wait: exact when a client says so, else by the probability of an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.endpointing.completeness import unfinished
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.probability import SENTENCE_END, STT_END
from voicepipe.turn.endpointing.strategies import Adaptive, Silence
from voicepipe.turn.endpointing.strategy import NOTHING, EndpointStrategy, Evidence
from voicepipe.values import replace

TEXTS = ("", "yes", "No.", "I would like the", "If it rains,", "0 7 9", "Is it far?", "I live in Rome", "Well...")

EVIDENCE = st.builds(
    lambda text, score, pause_ms, answer_ms: Evidence(
        text=text,
        unfinished=unfinished(text),
        scores=() if score is None else ((STT_END, score),),
        longest_pause_ms=pause_ms,
        answer_ms=answer_ms,
    ),
    st.sampled_from(TEXTS),
    st.none() | st.floats(0, 1),
    st.integers(0, 30_000),
    st.none() | st.integers(0, 3_000),
)
SILENCES = st.integers(0, 10_000)


def wait_ms(strategy: EndpointStrategy, evidence: Evidence = NOTHING) -> int:
    """The silence that ends a turn."""
    return strategy.decide(evidence).audible_ms


def start_ms(strategy: EndpointStrategy, evidence: Evidence = NOTHING) -> int:
    """The silence after which work begins."""
    return strategy.decide(evidence).start_ms


def by_probability(probability: float, silence_ms: int = 720) -> int:
    """The wait of `adaptive` where the words make an end so probable."""
    return wait_ms(Adaptive(silence_ms, lambda evidence: probability), Evidence(text="So it is."))


@given(silence_ms=SILENCES, evidence=EVIDENCE)
def test_requested_silence_is_used(silence_ms: int, evidence: Evidence) -> None:
    """Whatever the words say."""
    assert wait_ms(Silence(silence_ms), evidence) == silence_ms


@given(silence_ms=SILENCES)
def test_who_knows_nothing_waits_as_set(silence_ms: int) -> None:
    """The setting is the middle."""
    assert wait_ms(Adaptive(silence_ms)) == silence_ms


@given(silence_ms=SILENCES, evidence=EVIDENCE)
def test_the_wait_is_bounded(silence_ms: int, evidence: Evidence) -> None:
    """Between 0.69 and 1.81 of what is set, and work begins within it."""
    strategy = Adaptive(silence_ms)
    wait = wait_ms(strategy, evidence)
    assert 0.69 * silence_ms - 1 <= wait <= 1.81 * silence_ms + 1
    assert 0 <= start_ms(strategy, evidence) <= wait


@pytest.mark.parametrize(
    ("probability", "silence_ms"), [(1.0, 500), (0.65, 500), (0.59, 700), (0.53, 900), (0.5, 1_000), (0.0, 1_000)]
)
def test_the_wait_is_linear_between_two_probabilities(probability: float, silence_ms: int) -> None:
    """500 ms from 0.65, 1,000 ms up to 0.5; in proportion where another silence is set."""
    assert by_probability(probability) == silence_ms
    assert by_probability(probability, silence_ms=1_440) == pytest.approx(2 * silence_ms, abs=1)


@given(less=st.floats(0, 1), more=st.floats(0, 1))
def test_a_likelier_end_is_waited_for_less(less: float, more: float) -> None:
    """Never longer."""
    less, more = sorted((less, more))
    assert by_probability(more) <= by_probability(less)


def test_words_that_need_more_are_waited_for_the_longest() -> None:
    """Even if the STT is sure of the end."""
    text = "I would like the"
    evidence = Evidence(text=text, unfinished=unfinished(text), scores=((STT_END, 0.999),))
    assert wait_ms(Adaptive(720), evidence) == Adaptive(720).max_wait_ms == 1_300


@pytest.mark.parametrize("text", ["", "I live in Rome", "ich wohne in Rom"])
def test_words_without_punctuation_are_no_evidence(text: str) -> None:
    """The wait is the one that is set, as without words; a model's score of them is evidence, and so is a whole answer
    to a question.
    """
    evidence = Evidence(text=text)
    assert wait_ms(Adaptive(720), evidence) == 720
    if text:
        assert wait_ms(Adaptive(720), replace(evidence, scores=((SENTENCE_END, 0.001),))) == 1_000
    assert wait_ms(Adaptive(720), replace(evidence, scores=((STT_END, 0.999),))) == 500


def test_a_plain_yes_is_a_whole_answer_after_a_question() -> None:
    """It needs no punctuation then."""
    plain, after_question = Pauses(), Pauses()
    for pauses, is_answer in ((plain, False), (after_question, True)):
        pauses.began()
        pauses.add_words("yes", after_question=is_answer)
    assert wait_ms(Adaptive(720), plain.evidence) == 720
    assert wait_ms(Adaptive(720), after_question.evidence) == 500


def test_who_pauses_long_is_not_waited_for_longer() -> None:
    """One long thought does not make a slow user."""
    assert wait_ms(Adaptive(720), Evidence(longest_pause_ms=5_000)) == 720


@given(evidence=EVIDENCE)
def test_work_of_adaptive_begins_as_late_as_the_answer_allows(evidence: Evidence) -> None:
    """Not before 180 ms."""
    decision = Adaptive(720).decide(evidence)
    if evidence.answer_ms is None:
        assert 180 <= decision.start_ms <= 0.4 * decision.audible_ms
    else:
        assert decision.start_ms == max(180, decision.audible_ms - evidence.answer_ms)


@pytest.mark.parametrize(
    ("missing", "answer_ms", "begins_ms"), [(0.0, None, 120), (1.0, None, 288), (0.5, None, 215), (0.0, 500, 220)]
)
def test_work_of_silence_begins_later_after_unfinished_words(
    missing: float, answer_ms: int | None, begins_ms: int
) -> None:
    """At most after 0.4 of the wait, or so late that the answer is ready in time."""
    assert start_ms(Silence(720), Evidence(unfinished=missing, answer_ms=answer_ms)) == begins_ms


def test_pauses_gather_what_is_known_of_the_one_that_lasts() -> None:
    """When it was noticed, the words when they come, the longest of the pauses before it."""
    pauses = Pauses()
    pauses.began(speech_ms=900, noticed_ms=80)
    assert pauses.evidence == Evidence(speech_ms=900, noticed_ms=80)
    pauses.resumed(640)
    assert pauses.evidence == NOTHING
    pauses.began()
    pauses.add_words("and then the")
    assert pauses.evidence == Evidence(text="and then the", unfinished=1.0, longest_pause_ms=640)


def test_old_long_pause_is_dropped() -> None:
    """After eight shorter ones."""
    pauses = Pauses()
    pauses.resumed(2_000)
    for _ in range(8):
        pauses.resumed(300)
    pauses.began()
    assert pauses.evidence.longest_pause_ms == 300
