"""What a turn cost, and a session: what was heard, and apart what was paid in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from voicepipe.testing.story import Role, Story
from voicepipe.turn import events as e
from voicepipe.turn.cost import KEPT_OPEN, Purse
from voicepipe.turn.prices import PriceList, Tariff
from voicepipe.turn.record import ModelAttempt, TurnRecord
from voicepipe.turn.rescue import RescueSettings
from voicepipe.turn.turns import Turn

PRICES = PriceList(
    models={"fake/llm": Tariff(1.0, 10.0, 0.1)}, voices={"fake/tts": 20.0, "b/tts": 100.0}, ears={"fake/stt": 0.6}
)
"""By the token: a dollar, ten, and ten cents, all by the million; a character spoken costs twenty, or at another voice
a hundred; a minute heard costs sixty cents."""

LOST = ModelAttempt(provider="b/m", role="hedge", outcome="lost", began_ms=300, first_ms=None, cost_usd=0.004)
SPOKE = ModelAttempt(provider="fake/llm", role="primary", outcome="spoke", began_ms=0, first_ms=100, cost_usd=7.0)


def an_answer(story: Story, *attempts: ModelAttempt, counts: tuple[int, ...] | None = (1_000, 100, 400)) -> None:
    story.says()
    story.begins_to_answer("It is noon.")
    for attempt in attempts:
        story.model_attempted(attempt)
    if counts is not None:
        story.counts(*counts)
    story.model_done()
    story.voice_done()
    story.passes(5_000)


def latest(story: Story) -> TurnRecord:
    return max(story.book.records.values(), key=lambda record: record.turn)


def test_the_answer_and_the_voice_are_paid() -> None:
    story = Story(prices=PRICES)
    an_answer(story)
    cost = latest(story).cost
    assert cost.answer_usd == pytest.approx((600 + 400 * 0.1 + 100 * 10) / 1e6)
    assert cost.speech_usd == pytest.approx(len("It is noon.") * 20 / 1e6)
    assert (cost.losers_usd, cost.speculation_usd, cost.whole, cost.estimated) == (0.0, 0.0, True, False)
    assert cost.usd == pytest.approx(cost.answer_usd + cost.speech_usd)


def test_what_is_put_into_the_cache_is_paid_as_its_provider_charges() -> None:
    """And counted on the record, among what was read."""
    story = Story(prices=PriceList(models={"fake/llm": Tariff(1.0, 10.0, 0.1, 1.25)}))
    an_answer(story, counts=(1_000, 100, 400, 500))
    assert latest(story).tokens.cache_write == 500
    assert latest(story).cost.answer_usd == pytest.approx((100 + 400 * 0.1 + 500 * 1.25 + 100 * 10) / 1e6)


def test_losers_stand_apart() -> None:
    """What the winner is said to have cost is in its tokens already."""
    story = Story(prices=PRICES)
    an_answer(story, LOST, SPOKE)
    cost = latest(story).cost
    assert cost.losers_usd == pytest.approx(0.004)
    assert cost.usd == pytest.approx(cost.answer_usd + cost.speech_usd + 0.004)


def test_replies_begun_in_vain_stand_apart() -> None:
    """The caller goes on: what the model had read and written by then is paid, and nobody heard it."""
    story = Story(prices=PRICES, speculate=True)
    story.speaks()
    story.pauses()
    story.hears("What time")
    story.model_asked()
    story.counts(2_000, 30)
    story.speaks()
    story.pauses()
    story.hears("What time is it?")
    story.stops()
    story.answers()
    story.passes(5_000)
    cost = latest(story).cost
    assert cost.speculation_usd == pytest.approx((2_000 + 30 * 10) / 1e6)


def test_tokens_that_nobody_told_are_reckoned() -> None:
    """An answer that is cut short has no count, and cost money."""
    story = Story(prices=PRICES)
    an_answer(story, counts=None)
    cost = latest(story).cost
    assert cost.estimated
    assert cost.answer_usd > 0


def test_what_has_no_price_is_said_to_be_missing() -> None:
    for prices, attempts in (
        (replace(PRICES, models={}), ()),
        (replace(PRICES, voices={}), ()),
        (PRICES, (replace(LOST, cost_usd=None),)),
    ):
        story = Story(prices=prices)
        an_answer(story, *attempts)
        assert not latest(story).cost.whole
        assert not latest(story).session_cost.whole


def test_a_session_adds_up_its_turns_each_once() -> None:
    """However often a turn's record is written; and by the minute that was spent in turns."""
    story = Story(prices=PRICES)
    for _ in range(40):
        an_answer(story, LOST)
        story.reports(1_000)
    costs = [record.cost for record in story.book.records.values()]
    total = latest(story).session_cost
    assert total.usd == pytest.approx(sum(cost.usd for cost in costs))
    assert total.losers_usd == pytest.approx(40 * 0.004)
    assert total.cached_share == pytest.approx(0.4)
    assert total.usd_per_active_minute == pytest.approx(total.usd * 60_000 / total.active_ms)
    whole_ms = story.book.now_ms - 1_000
    assert 0 < total.active_ms < whole_ms, "pauses between turns are nobody's"


def test_a_turn_that_nobody_answered_costs_nothing() -> None:
    story = Story(prices=PRICES)
    story.speaks()
    story.pauses()
    story.hears("")
    story.stops()
    record = latest(story)
    assert (record.cost.usd, record.cost.whole, record.session_cost.cached_share) == (0.0, True, None)


def test_an_apology_costs_its_voice() -> None:
    story = Story(prices=PRICES, rescue=RescueSettings(apology="Sorry."))
    story.says()
    story.model_asked()
    story.breaks()
    story.begins_to_answer("Sorry.")
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    cost = latest(story).cost
    assert (cost.answer_usd, cost.whole) == (0.0, True)
    assert cost.speech_usd == pytest.approx(6 * 20 / 1e6)


def test_each_voice_is_paid_for_what_it_said() -> None:
    """One that failed before it sounded is not paid; what another took over in mid-sentence is that one's."""
    cases: tuple[tuple[Role, int, int], ...] = (
        ("replacement", 11, 11 * 100),
        ("continuation", 5, 6 * 20 + 5 * 100),
    )
    for role, n_chars, usd in cases:
        story = Story(prices=PRICES)
        story.says()
        story.begins_to_answer("It is noon.")
        turn = story.started()[-1]
        key = (turn.turn, turn.revision)
        story.book.at(story.book.now_ms, e.VoiceChanged(*key, "b/tts", role, "fake/tts: broke", n_chars))
        story.model_done()
        story.voice_done()
        story.passes(5_000)
        assert latest(story).cost.speech_usd == pytest.approx(usd / 1e6)


def test_a_voice_that_lost_is_paid_in_vain() -> None:
    story = Story(prices=PRICES)
    story.says()
    story.begins_to_answer("It is noon.")
    turn = story.started()[-1]
    key = (turn.turn, turn.revision)
    story.book.at(story.book.now_ms, e.VoiceChanged(*key, "b/tts", "hedge", "first to sound", 11))
    story.book.at(story.book.now_ms, e.VoiceUnheard(*key, "fake/tts", 11))
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    cost = latest(story).cost
    assert (cost.speech_usd, cost.losers_usd) == pytest.approx((11 * 100 / 1e6, 11 * 20 / 1e6))
    assert cost.usd == pytest.approx(cost.answer_usd + cost.speech_usd + cost.losers_usd)


def test_what_came_from_disk_costs_nothing() -> None:
    story = Story(prices=PRICES)
    story.says()
    story.begins_to_answer("It is noon.")
    turn = story.started()[-1]
    story.book.at(story.book.now_ms, e.VoiceRecited(turn.turn, turn.revision, "fake/tts", len("It is noon.")))
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    assert latest(story).cost.speech_usd == 0


def test_ears_are_paid_for_what_they_were_given() -> None:
    """The turn bears its own sound and the silence before it, and what nobody said anything in."""
    story = Story(prices=PRICES)
    story.speaks()
    story.pauses()
    story.book.at(story.book.now_ms, e.TranscriptFinished(1, 1, "", provider="fake/stt", heard_ms=2_000))
    story.stops()
    story.speaks()
    story.pauses()
    told = e.TranscriptFinished(2, 1, "What time is it?", provider="fake/stt", heard_ms=4_000)
    story.book.at(story.book.now_ms, told)
    story.stops()
    story.answers()
    story.passes(5_000)
    cost = latest(story).cost
    assert sum(record.cost.hearing_usd for record in story.book.records.values()) == pytest.approx(6 * 0.01)
    assert cost.hearing_usd >= 4 * 0.01
    assert cost.usd == pytest.approx(cost.answer_usd + cost.speech_usd + cost.hearing_usd)


def test_a_turn_that_is_answered_long_after_is_counted_once() -> None:
    """Many others may have been noted since it was begun, and of itself there are several records."""
    purse = Purse(PRICES)
    turns = [Turn(number, f"turn_{number}", "create") for number in range(1, 3 * KEPT_OPEN)]
    late, others = turns[0], turns[1:]
    for turn in others:
        purse.note(turn)
    late.account.voiced.give("fake/tts", 1_000_000)
    for _ in range(3):
        purse.note(late)
    assert purse.total().usd == pytest.approx(20.0)


def test_of_many_turns_none_is_forgotten() -> None:
    purse = Purse(PRICES)
    for number in range(1, 3 * KEPT_OPEN):
        turn = Turn(number, f"turn_{number}", "create")
        turn.account.voiced.give("fake/tts", 1_000_000)
        purse.note(turn)
        purse.note(turn)
    assert purse.total().usd == pytest.approx(20.0 * (3 * KEPT_OPEN - 1))
