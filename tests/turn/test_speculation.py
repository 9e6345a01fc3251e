"""Replies that are started before the turn is over: when, how often, what of them is used, and their cost."""

from __future__ import annotations

import pytest

from voicepipe.testing.core_driver import names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.events import ModelRequested
from voicepipe.turn.record.values import Speculation
from voicepipe.turn.settings import ReplySettings, SpeculationLimits
from voicepipe.turn.states import UserState

QUESTION = "What time is it?"
PROMPT = "x" * 4_000
"""Instructions of a thousand tokens."""


def speculation(scenario: Scenario, turn: int = 1) -> Speculation:
    """What the record of a turn says of it."""
    return scenario.driver.records[f"turn_s_{turn:04d}"].speculation


def answered_turn(scenario: Scenario, words: str = QUESTION) -> None:
    """The user puts a question, and the whole reply is played; it takes 200 ms until its first sound."""
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(words)
    scenario.is_silent(420)
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.stops()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)


def wasted_start(scenario: Scenario, words: str = QUESTION) -> None:
    """The user pauses, and goes on after the LLM request."""
    scenario.pauses()
    scenario.transcribes(words)
    scenario.model_requested()
    scenario.speaks()


# --- what it comes to -----------------------------------------------------------------------------


def test_used_start_records_what_it_saved() -> None:
    """Begun 130 ms after the last voiced sample; ready 200 ms later, long before the turn was over: the difference is
    saved.
    """
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.begins_to_answer()
    scenario.stops()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert speculation(scenario) == Speculation(starts=1, used=1, saved_ms=200)
    assert scenario.driver.records["turn_s_0001"].session_speculation == speculation(scenario)


def test_a_start_that_is_not_ready_in_time_saved_its_head_start() -> None:
    """What it was ahead of the turn's end."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    scenario.stops()
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.passes(60_000)
    assert (speculation(scenario).used, speculation(scenario).saved_ms) == (1, 450)


def test_a_wasted_start_is_reckoned_from_the_text() -> None:
    """No provider reports the token count of a cancelled reply: four characters count as a token."""
    scenario = Scenario(speculate=True)
    scenario.changes(reply=ReplySettings(instructions=PROMPT))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(QUESTION)
    scenario.model_requested()
    scenario.token("It is noon, more or less, all over the town.")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(f"{QUESTION} In Paris?")
    scenario.begins_to_answer()
    scenario.stops()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    expected = Speculation(
        starts=2,
        used=1,
        saved_ms=200,
        wasted_input_tokens=(len(PROMPT) + len(QUESTION)) // 4,
        wasted_output_tokens=11,
        estimated=True,
    )
    assert speculation(scenario) == expected


def test_a_count_that_came_in_time_is_taken() -> None:
    """A short answer was complete before the user went on."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    scenario.token()
    scenario.counts(120, 7)
    scenario.speaks()
    scenario.leaves()
    wasted = speculation(scenario)
    assert (wasted.wasted_input_tokens, wasted.wasted_output_tokens, wasted.estimated) == (120, 7, False)


def test_a_session_adds_its_turns_up() -> None:
    """Each record has the sum up to it."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    wasted_start(scenario)
    scenario.pauses()
    scenario.transcribes("Never mind.")
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    answered_turn(scenario)
    total = scenario.driver.records["turn_s_0002"].session_speculation
    assert (total.starts, total.used) == (3, 2)
    assert total.wasted_tokens == speculation(scenario, 1).wasted_tokens > 0


def test_a_reply_that_began_at_the_turns_end_is_none() -> None:
    """Also when the user goes on before it is audible."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.speaks()
    scenario.leaves()
    assert speculation(scenario) == Speculation()


# --- when -----------------------------------------------------------------------------------------


def test_no_work_begins_in_a_shorter_pause_than_the_rule_says() -> None:
    """The words are known at once; the voice gives no sign of an end, so the pause takes 120 ms of silence."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    now_ms = scenario.driver.now_ms
    scenario.pauses()
    scenario.is_silent(100)
    assert scenario.started() == []
    scenario.transcribes()
    assert len(scenario.started()) == 1
    assert scenario.driver.now_ms - now_ms < 200


def test_a_session_that_knows_its_answers_begins_as_late_as_it_can() -> None:
    """They take 250 ms until the first sound, and the turn is over after 500 ms of silence: 250 are time enough."""
    scenario = Scenario(speculate=True)
    for _ in range(3):
        answered_turn(scenario)
    scenario.speaks()
    scenario.pauses()
    assert "StartReply" not in names(scenario.transcribes())
    assert "StartReply" not in names(scenario.is_silent(240))
    assert "StartReply" in names(scenario.is_silent(260))


@pytest.mark.parametrize("provider", ["fake/llm", "other/llm"])
def test_an_out_of_band_reply_says_nothing_of_the_time_of_an_answer(provider: str) -> None:
    """A text that a client requests beside the conversation is soon there, and from whichever LLM."""
    scenario = Scenario(speculate=True)
    for _ in range(3):
        answered_turn(scenario)
    learned = scenario.driver.core.context.learned.speculation
    before_ms = learned.answer_ms
    for _ in range(8):
        scenario.creates(in_conversation=False, audible=False)
        scenario._post(ModelRequested(*scenario._key(-1), provider))
        scenario.token()
        scenario.model_done()
    assert before_ms == learned.answer_ms
    assert before_ms is not None


def test_a_turn_that_ends_without_an_early_start_is_answered() -> None:
    """A silence is reported late, and the turn is over at once."""
    scenario = Scenario(speculate=True)
    for _ in range(3):
        answered_turn(scenario)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    assert names(scenario.stops()).count("StartReply") == 1
    assert scenario.driver.illegal_moves == []


# --- what is used ---------------------------------------------------------------------------------


def test_reply_is_used_when_only_spelling_changes() -> None:
    """The final text has another case, other punctuation and spacing: the same words."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it("what time is it")
    scenario.pauses()
    assert "StopReply" not in names(scenario.transcribes("What time  is it?"))
    assert names(scenario.stops()).count("StartReply") == 0
    assert len(scenario.started()) == 1


def test_reply_to_other_words_is_dropped() -> None:
    """3.5 is not 35."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it("I want 35 of them")
    scenario.pauses()
    assert names(scenario.transcribes("I want 3.5 of them")) == ["StopReply", "StartReply"]


def test_a_call_of_a_function_waits_for_the_gate() -> None:
    """A client acts on a call, and can't undo its action: it receives no call before the turn is over."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    notices = [*scenario.call(), *scenario.model_done("tool_calls"), *scenario.voice_done()]
    assert names(notices) == []
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time is it in Paris?")
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert scenario.notified(a.OutputStarted) == []
    assert "OpenGate" in names(scenario.stops())
    assert [what.item.id for what in scenario.notified(a.OutputStarted)] == ["item_s_0003_call0"]


# --- how often ------------------------------------------------------------------------------------


def test_a_turn_has_at_most_three_wasted_starts() -> None:
    """A user who stops and goes on: three starts, and the fourth reply is the answer."""
    scenario = Scenario(speculate=True, max_flushes=9)
    scenario.speaks()
    for n in range(3):
        wasted_start(scenario, "It is noon." * (n + 1))
    for n in range(3, 6):
        scenario.pauses()
        scenario.transcribes("It is noon." * (n + 1))
        assert "StartReply" not in names(scenario.is_silent(300))
        scenario.speaks()
    scenario.pauses()
    scenario.transcribes("and that is all.")
    assert len(scenario.started()) == 3
    scenario.stops()
    assert len(scenario.started()) == 4
    assert scenario.driver.core.user.state is UserState.ENDED


def test_an_operator_may_allow_fewer() -> None:
    """Or none."""
    scenario = Scenario(speculate=True, speculation=SpeculationLimits(max_starts=0))
    scenario.speaks()
    scenario.pauses()
    assert names(scenario.transcribes()) == []
    assert "StartReply" in names(scenario.stops())


def test_a_session_has_a_limit_of_wasted_tokens() -> None:
    """The next start could pass it, so it is not made."""
    scenario = Scenario(speculate=True, speculation=SpeculationLimits(max_wasted_tokens=1_500))
    scenario.changes(reply=ReplySettings(instructions=PROMPT))
    scenario.speaks()
    wasted_start(scenario)
    scenario.pauses()
    scenario.transcribes()
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    assert (speculation(scenario).starts, speculation(scenario).refused) == (1, 1)


def test_a_share_of_waste_is_a_limit_once_there_is_something_to_share() -> None:
    """The first two thousand tokens of a session are too few to judge."""
    scenario = Scenario(speculate=True, speculation=SpeculationLimits(max_wasted_share=0.5))
    scenario.changes(reply=ReplySettings(instructions=PROMPT))
    scenario.speaks()
    wasted_start(scenario)
    wasted_start(scenario)
    scenario.pauses()
    scenario.transcribes()
    assert len(scenario.started()) == 2
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    assert speculation(scenario).refused == 1


# --- whether it pays ------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_does_not_pay_is_given_up_and_taken_up_again() -> None:
    """A long prompt and a user who always goes on; then one who never does: nothing was spent to find that out."""
    scenario = Scenario(speculate=True)
    scenario.changes(reply=ReplySettings(instructions=PROMPT * 5))
    n_started = []
    for _ in range(6):
        scenario.speaks()
        before = len(scenario.started())
        for _ in range(2):
            scenario.pauses()
            scenario.transcribes()
            scenario.is_silent(450)
            scenario.speaks()
        n_started.append(len(scenario.started()) - before)
        scenario.pauses()
        scenario.transcribes()
        scenario.stops()
        scenario.answers()
        scenario.passes(5_000)
    assert n_started[0] > 0
    assert n_started[-3:] == [0, 0, 0]
    refused = scenario.driver.core.context.learned.speculation.total.refused
    assert refused > 0
    for _ in range(12):
        answered_turn(scenario)
    total = scenario.driver.core.context.learned.speculation.total
    assert speculation(scenario, 18).starts == 1
    assert total.refused > refused
    assert total.used > 0


def test_tokens_that_cost_nothing_always_pay() -> None:
    """For a model of one's own."""
    scenario = Scenario(speculate=True, speculation=SpeculationLimits(ms_per_1000_tokens=0))
    scenario.changes(reply=ReplySettings(instructions=PROMPT * 5))
    for _ in range(4):
        scenario.speaks()
        wasted_start(scenario)
        wasted_start(scenario)
        scenario.pauses()
        scenario.transcribes()
        scenario.stops()
        scenario.answers()
        scenario.passes(5_000)
    assert scenario.driver.core.context.learned.speculation.total.refused == 0


def test_one_late_answer_makes_the_next_begin_early_again() -> None:
    """A late start is a late reply for the user; a start that is too early only costs more."""
    scenario = Scenario(speculate=True)
    for _ in range(3):
        answered_turn(scenario)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.stops()
    scenario.model_requested()
    scenario.passes(3_000)
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    scenario.speaks()
    scenario.pauses()
    assert "StartReply" in names(scenario.transcribes())
