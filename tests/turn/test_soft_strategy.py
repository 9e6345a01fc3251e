"""The strategy `soft`: its waits, when work begins, and when function calls may leave."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.turn.endpointing.completeness import unfinished
from voicepipe.turn.endpointing.probability import STT_END
from voicepipe.turn.endpointing.strategies import Adaptive, Soft
from voicepipe.turn.endpointing.strategy import Evidence


def said(text: str, **more: Any) -> Evidence:
    """Words of which the STT is sure: a sentence with its mark is over, anything else is not."""
    score = 0.999 if text.endswith((".", "?")) else 0.001
    return Evidence(text=text, unfinished=unfinished(text), scores=((STT_END, score),), **more)


@pytest.mark.parametrize(
    ("probability", "audible_ms"),
    [(1.0, 350), (0.8, 350), (0.7, 420), (0.55, 525), (0.4, 630), (0.3, 700), (0.0, 700)],
)
def test_the_wait_is_linear_between_two_probabilities(probability: float, audible_ms: int) -> None:
    """350 ms above 0.8, 700 ms below 0.3, for the default agent."""
    assert Soft(720, lambda evidence: probability).decide(Evidence()).audible_ms == audible_ms


@pytest.mark.parametrize(("silence_ms", "waits_ms"), [(1_440, (700, 1_400)), (500, (250, 486)), (200, (200, 200))])
def test_the_waits_follow_the_silence_that_is_set(silence_ms: int, waits_ms: tuple[int, int]) -> None:
    """In proportion; not below 250 ms, unless less is set."""
    sure, unsure = (Soft(silence_ms, lambda evidence, p=p: p).decide(Evidence()) for p in (1.0, 0.0))  # type: ignore[misc]
    assert (sure.audible_ms, unsure.audible_ms) == waits_ms


@pytest.mark.parametrize("text", ["What time is it?", "I want the", "Yes.", "well,", ""])
def test_function_calls_leave_when_adaptive_ends_the_turn(text: str) -> None:
    """And the answer is never later than that."""
    decision = Soft(720).decide(said(text))
    assert decision.effects_ms == Adaptive(720).decide(said(text)).audible_ms
    assert decision.audible_ms <= decision.effects_ms
    assert decision.reversible_ms == 1_000


def test_work_begins_at_180_ms_where_the_end_is_likely() -> None:
    """Or so late that the answer is ready in time; an unlikely end is waited for longer."""
    soft = Soft(720)
    assert soft.decide(said("What time is it?")).start_ms == 180
    assert soft.decide(said("What time is it?", answer_ms=100)).start_ms == 250
    assert soft.decide(said("I want it from")).start_ms == 280
    assert soft.decide(said("I want it from", answer_ms=300)).start_ms == 400


def test_who_resumes_often_is_waited_for_a_little_longer() -> None:
    """From the second time on, and by no pause alone."""
    waits = [Soft(720).decide(said("What time is it?", n_resumed=n)).audible_ms for n in range(4)]
    assert waits == [350, 350, 450, 450]
    assert Soft(720).decide(said("What time is it?", longest_pause_ms=900)).audible_ms == 350


def test_a_session_that_never_begins_softly_waits_for_adaptive() -> None:
    """The same start; nothing is reversible."""
    exact = Soft(720).decide(said("What time is it?")).irrevocable()
    assert (exact.start_ms, exact.audible_ms, exact.effects_ms, exact.reversible_ms) == (180, 500, None, 0)


@pytest.mark.parametrize("text", ["I want the", "Here, um.", "And"])
def test_words_that_need_more_are_waited_for_as_by_adaptive(text: str) -> None:
    """Longer than for any other words: nothing of the answer begins softly."""
    decision = Soft(720).decide(said(text))
    assert decision.audible_ms == decision.effects_ms == Adaptive(720).decide(said(text)).audible_ms
    assert decision.audible_ms > Soft(720).decide(said("I want it from")).audible_ms == 700


def test_a_pause_that_is_noticed_late_is_waited_for_longer() -> None:
    """By half of the delay beyond 150 ms; never longer than by adaptive."""
    waits = [Soft(720).decide(said("What time is it?", noticed_ms=ms)).audible_ms for ms in (80, 150, 250, 400)]
    assert waits == [350, 350, 400, 475]
    late = Soft(720).decide(said("What time is it?", noticed_ms=5_000))
    assert late.audible_ms == late.effects_ms


def test_who_is_on_a_telephone_is_waited_for_a_little_longer() -> None:
    """At most as long as by adaptive; work begins as much later."""
    plain, phone = (Soft(720).decide(said("What time is it?", telephone=yes, answer_ms=100)) for yes in (False, True))
    assert (phone.audible_ms, phone.start_ms) == (plain.audible_ms + 90, plain.start_ms + 90)
    assert phone.effects_ms == plain.effects_ms
    resumed = Soft(720).decide(said("What time is it?", telephone=True, n_resumed=2))
    assert resumed.audible_ms == resumed.effects_ms == 500
