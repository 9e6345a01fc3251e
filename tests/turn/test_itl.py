"""How fast a model writes: from its first token to its last, by its provider's count."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import STEP_MS, Scenario
from voicepipe.turn.record.values import ModelAttempt, TurnRecord


def spoke(role: str = "primary", *, began_ms: int = 0, first_ms: int = 0) -> ModelAttempt:
    return ModelAttempt(provider="a/m", role=role, outcome="spoke", began_ms=began_ms, first_ms=first_ms)


def an_answer(
    scenario: Scenario, *attempts: ModelAttempt, n_tokens: int | None = 21, last_after_ms: int = 400
) -> TurnRecord:
    """Two pieces of text, so far apart."""
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    scenario.passes(last_after_ms - STEP_MS)
    scenario.token(" Time for lunch.")
    scenario.passes(300)
    for attempt in attempts:
        scenario.model_attempted(attempt)
    if n_tokens is not None:
        scenario.counts(120, n_tokens)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    return scenario.driver.records["turn_s_0001"]


def test_the_gaps_between_tokens_are_those_of_the_text() -> None:
    """What comes behind the last word, the count among it, takes no part."""
    record = an_answer(Scenario())
    marks = dict(record.marks)
    span_ms = marks["last_delta"] - marks["first_delta"]
    assert span_ms >= 400
    assert record.itl_ms == pytest.approx(span_ms / 20)
    assert record.tokens_per_s == pytest.approx(20_000 / span_ms)


@pytest.mark.parametrize("n_tokens", [None, 0, 1])
def test_without_a_count_there_is_no_pace(n_tokens: int | None) -> None:
    """Pieces are no tokens."""
    record = an_answer(Scenario(), n_tokens=n_tokens)
    assert (record.itl_ms, record.tokens_per_s) == (None, None)
    assert "last_delta" in dict(record.marks)


def test_an_answer_that_came_at_once_has_none() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    scenario.counts(120, 24)
    scenario.model_done()
    scenario.voice_done()
    assert scenario.driver.records["turn_s_0001"].itl_ms is None


def test_nor_has_one_of_two_models() -> None:
    """The count is the second one's."""
    assert an_answer(Scenario(), spoke(), spoke("continuation", began_ms=300, first_ms=90)).itl_ms is None


def test_a_held_answer_began_when_its_model_did() -> None:
    """Not when it was let out."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(700)
    scenario.token("It is noon.")
    scenario.passes(100)
    scenario.token(" Time for lunch.")
    scenario.model_attempted(spoke("hedge", began_ms=100, first_ms=200))
    scenario.counts(120, 24)
    scenario.model_done()
    scenario.clause()
    scenario.sound()
    scenario.sent()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    marks = dict(record.marks)
    assert marks["first_delta"] > marks["llm_requested"] + 300
    assert record.itl_ms == pytest.approx((marks["last_delta"] - marks["llm_requested"] - 300) / 23)


def test_a_revision_begins_anew() -> None:
    """The pace is that of the reply that was played."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time")
    scenario.model_requested()
    scenario.token("It")
    scenario.model_done()
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    record_before = scenario.driver.core.agent.turn
    assert record_before is not None
    assert "last_delta" not in record_before.marks
