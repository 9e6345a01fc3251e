"""The cost of a turn and of a session: what was played, and apart from it the cost of wasted work."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import Role, Scenario
from voicepipe.turn import events as e
from voicepipe.turn.cost import OPEN_TURNS, CostTracker, Price, PriceList
from voicepipe.turn.record.values import ModelAttempt, TurnRecord
from voicepipe.turn.record_builder import usage_of
from voicepipe.turn.settings import BudgetActionSettings
from voicepipe.turn.turn import Turn
from voicepipe.values import replace

PRICES = PriceList(
    models={"fake/llm": Price(1.0, 10.0, 0.1)},
    voices={"fake/tts": 20.0, "b/tts": 100.0},
    transcribers={"fake/stt": 0.6},
)
"""Prices in dollars: 1, 10 and 0.1 per million tokens; 20 per million characters, or 100 at another voice.

A minute of STT audio costs 0.6 dollars.
"""

LOST = ModelAttempt(provider="b/m", role="hedge", outcome="lost", began_ms=300, first_ms=None, cost_usd=0.004)
SPOKE = ModelAttempt(provider="fake/llm", role="primary", outcome="spoke", began_ms=0, first_ms=100, cost_usd=7.0)


def an_answer(scenario: Scenario, *attempts: ModelAttempt, counts: tuple[int, ...] | None = (1_000, 100, 400)) -> None:
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    for attempt in attempts:
        scenario.model_attempted(attempt)
    if counts is not None:
        scenario.counts(*counts)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)


def latest(scenario: Scenario) -> TurnRecord:
    return max(scenario.driver.records.values(), key=lambda record: record.turn)


def test_the_answer_and_the_voice_are_paid() -> None:
    scenario = Scenario(prices=PRICES)
    an_answer(scenario)
    cost = latest(scenario).cost
    assert cost.answer_usd == pytest.approx((600 + 400 * 0.1 + 100 * 10) / 1e6)
    assert cost.tts_usd == pytest.approx(len("It is noon.") * 20 / 1e6)
    assert (cost.hedge_usd, cost.speculation_usd, cost.whole, cost.estimated) == (0.0, 0.0, True, False)
    assert cost.usd == pytest.approx(cost.answer_usd + cost.tts_usd)


def test_what_is_put_into_the_cache_is_paid_as_its_provider_charges() -> None:
    """And counted on the record, among what was read."""
    scenario = Scenario(prices=PriceList(models={"fake/llm": Price(1.0, 10.0, 0.1, 1.25)}))
    an_answer(scenario, counts=(1_000, 100, 400, 500))
    assert latest(scenario).tokens.cache_write == 500
    assert latest(scenario).cost.answer_usd == pytest.approx((100 + 400 * 0.1 + 500 * 1.25 + 100 * 10) / 1e6)


def test_losers_stand_apart() -> None:
    """What the winner is said to have cost is in its tokens already."""
    scenario = Scenario(prices=PRICES)
    an_answer(scenario, LOST, SPOKE)
    cost = latest(scenario).cost
    assert cost.hedge_usd == pytest.approx(0.004)
    assert cost.usd == pytest.approx(cost.answer_usd + cost.tts_usd + 0.004)


def test_wasted_replies_stand_apart() -> None:
    """The user goes on: the tokens that the model had read and written by then are charged, and were never played."""
    scenario = Scenario(prices=PRICES, speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time")
    scenario.model_requested()
    scenario.counts(2_000, 30)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    cost = latest(scenario).cost
    assert cost.speculation_usd == pytest.approx((2_000 + 30 * 10) / 1e6)


def test_unreported_tokens_are_estimated() -> None:
    """An answer that is cut short has no count, and cost money."""
    scenario = Scenario(prices=PRICES)
    an_answer(scenario, counts=None)
    cost = latest(scenario).cost
    assert cost.estimated
    assert cost.answer_usd > 0


def test_what_has_no_price_is_said_to_be_missing() -> None:
    for prices, attempts in (
        (replace(PRICES, models={}), ()),
        (replace(PRICES, voices={}), ()),
        (PRICES, (replace(LOST, cost_usd=None),)),
    ):
        scenario = Scenario(prices=prices)
        an_answer(scenario, *attempts)
        assert not latest(scenario).cost.whole
        assert not latest(scenario).session_cost.whole


def test_a_session_adds_up_its_turns_each_once() -> None:
    """However often a turn's record is written; and by the minute that was spent in turns."""
    scenario = Scenario(prices=PRICES)
    for _ in range(40):
        an_answer(scenario, LOST)
        scenario.reports(1_000)
    costs = [record.cost for record in scenario.driver.records.values()]
    total = latest(scenario).session_cost
    assert total.usd == pytest.approx(sum(cost.usd for cost in costs))
    assert total.hedge_usd == pytest.approx(40 * 0.004)
    assert total.cached_share == pytest.approx(0.4)
    assert total.usd_per_active_minute == pytest.approx(total.usd * 60_000 / total.active_ms)
    whole_ms = scenario.driver.now_ms - 1_000
    assert 0 < total.active_ms < whole_ms, "pauses between turns are nobody's"


def test_unanswered_turn_costs_nothing() -> None:
    scenario = Scenario(prices=PRICES)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("")
    scenario.stops()
    record = latest(scenario)
    assert (record.cost.usd, record.cost.whole, record.session_cost.cached_share) == (0.0, True, None)


def test_an_apology_costs_its_voice() -> None:
    scenario = Scenario(prices=PRICES, budget_actions=BudgetActionSettings(apology="Sorry."))
    scenario.utters()
    scenario.model_requested()
    scenario.breaks()
    scenario.begins_to_answer("Sorry.")
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    cost = latest(scenario).cost
    assert (cost.answer_usd, cost.whole) == (0.0, True)
    assert cost.tts_usd == pytest.approx(6 * 20 / 1e6)


def test_each_voice_is_paid_for_what_it_said() -> None:
    """One that failed before it sounded is not paid; what another took over in mid-sentence is that one's."""
    cases: tuple[tuple[Role, int, int], ...] = (
        ("replacement", 11, 11 * 100),
        ("continuation", 5, 6 * 20 + 5 * 100),
    )
    for role, n_chars, usd in cases:
        scenario = Scenario(prices=PRICES)
        scenario.utters()
        scenario.begins_to_answer("It is noon.")
        turn = scenario.started()[-1]
        key = (turn.turn, turn.revision)
        scenario.driver.at(
            scenario.driver.now_ms, e.SynthesizerChanged(*key, "b/tts", role, "fake/tts: broke", n_chars)
        )
        scenario.model_done()
        scenario.voice_done()
        scenario.passes(5_000)
        assert latest(scenario).cost.tts_usd == pytest.approx(usd / 1e6)


def test_a_stand_in_that_begins_a_turn_is_credited_and_paid() -> None:
    """The voice that is first in the settings fails since an earlier turn: this one has no fallback, and it."""
    scenario = Scenario(prices=PRICES)
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    turn = scenario.started()[-1]
    key = (turn.turn, turn.revision)
    scenario.driver.at(scenario.driver.now_ms, e.SynthesizerChanged(*key, "b/tts", "primary", "first choice", 11))
    scenario.sound()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = latest(scenario)
    assert record.cost.tts_usd == pytest.approx(11 * 100 / 1e6)
    assert dict(record.providers)["tts"] == "b/tts"
    assert {span.stage: span.owner for span in record.stages}["tts_ttfb"] == "b/tts"
    assert record.actions == ()


def test_a_tts_that_lost_is_wasted() -> None:
    scenario = Scenario(prices=PRICES)
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    turn = scenario.started()[-1]
    key = (turn.turn, turn.revision)
    scenario.driver.at(scenario.driver.now_ms, e.SynthesizerChanged(*key, "b/tts", "hedge", "first audible", 11))
    scenario.driver.at(scenario.driver.now_ms, e.SynthesisUnused(*key, "fake/tts", 11))
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    cost = latest(scenario).cost
    assert (cost.tts_usd, cost.hedge_usd) == pytest.approx((11 * 100 / 1e6, 11 * 20 / 1e6))
    assert cost.usd == pytest.approx(cost.answer_usd + cost.tts_usd + cost.hedge_usd)


def test_what_came_from_disk_costs_nothing() -> None:
    scenario = Scenario(prices=PRICES)
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    turn = scenario.started()[-1]
    scenario.driver.at(
        scenario.driver.now_ms, e.CachedSpeechUsed(turn.turn, turn.revision, "fake/tts", len("It is noon."))
    )
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert latest(scenario).cost.tts_usd == 0


@pytest.mark.parametrize("cached_first", [True, False])
def test_a_voice_that_lost_with_cached_audio_costs_nothing(cached_first: bool) -> None:
    """Whether its cached audio is known before another voice has won, or after."""
    scenario = Scenario(prices=PRICES)
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    turn = scenario.started()[-1]
    key = (turn.turn, turn.revision)
    cached = e.CachedSpeechUsed(*key, "fake/tts", 11)
    won = (
        e.SynthesizerChanged(*key, "b/tts", "hedge", "first audible", 11),
        e.SynthesisUnused(*key, "fake/tts", 11),
    )
    for event in (cached, *won) if cached_first else (*won, cached):
        scenario.driver.at(scenario.driver.now_ms, event)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    cost = latest(scenario).cost
    assert (cost.tts_usd, cost.hedge_usd) == pytest.approx((11 * 100 / 1e6, 0.0))


def test_stt_is_charged_for_its_audio() -> None:
    """The turn bears its own audio, the silence before it, and audio without words."""
    scenario = Scenario(prices=PRICES)
    scenario.speaks()
    scenario.pauses()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriptFinished(1, 1, "", provider="fake/stt", audio_ms=2_000))
    scenario.stops()
    scenario.speaks()
    scenario.pauses()
    finished = e.TranscriptFinished(2, 1, "What time is it?", provider="fake/stt", audio_ms=4_000)
    scenario.driver.at(scenario.driver.now_ms, finished)
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    cost = latest(scenario).cost
    assert sum(record.cost.stt_usd for record in scenario.driver.records.values()) == pytest.approx(6 * 0.01)
    assert cost.stt_usd >= 4 * 0.01
    assert cost.usd == pytest.approx(cost.answer_usd + cost.tts_usd + cost.stt_usd)


def test_a_turn_that_is_answered_long_after_is_counted_once() -> None:
    """Many others may have been noted since it was begun, and of itself there are several records."""
    cost_tracker = CostTracker(PRICES)
    turns = [Turn(number, f"turn_{number}", "create") for number in range(1, 3 * OPEN_TURNS)]
    late, others = turns[0], turns[1:]
    for turn in others:
        cost_tracker.record(turn.number, usage_of(turn))
    late.account.tts_usage.add_played("fake/tts", 1_000_000)
    for _ in range(3):
        cost_tracker.record(late.number, usage_of(late))
    assert cost_tracker.total().usd == pytest.approx(20.0)


def test_all_turns_are_counted() -> None:
    cost_tracker = CostTracker(PRICES)
    for number in range(1, 3 * OPEN_TURNS):
        turn = Turn(number, f"turn_{number}", "create")
        turn.account.tts_usage.add_played("fake/tts", 1_000_000)
        cost_tracker.record(turn.number, usage_of(turn))
        cost_tracker.record(turn.number, usage_of(turn))
    assert cost_tracker.total().usd == pytest.approx(20.0 * (3 * OPEN_TURNS - 1))
