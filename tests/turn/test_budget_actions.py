"""What is done so that the user waits less, or at least not in silence: each action with its conditions."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.errors import ConfigError
from voicepipe.testing.core_driver import names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import Command, OpenGate, SayFiller, ShortenClause, StartReply, StopReply
from voicepipe.turn.conversation import Message
from voicepipe.turn.projection import STAGES, UsualTimes
from voicepipe.turn.settings import BudgetActionSettings, BudgetLimits

FILLER, APOLOGY = "One moment.", "Sorry, I can't answer right now."
PHRASES = BudgetActionSettings(filler=FILLER, apology=APOLOGY)


def commands_of(kind: type, commands: list[Command]) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def with_filler(**more: Any) -> Scenario:
    scenario = Scenario(budget_actions=BudgetActionSettings(filler=FILLER, **more))
    scenario.has_ready(FILLER)
    return scenario


def an_answered_turn(scenario: Scenario) -> None:
    """A turn whose stages all take 50 ms: after it that is what is expected."""
    scenario.utters()
    scenario.answers()
    scenario.passes(2_000)


# --- the projection -------------------------------------------------------------------------------


def test_turn_latency_is_projected_at_every_mark() -> None:
    """Before anything is known each stage is expected to take half its limit; afterwards, what it took."""
    scenario = Scenario()
    an_answered_turn(scenario)
    record = scenario.driver.records["turn_s_0001"]
    marks, projected = dict(record.marks), dict(record.projected)
    assert list(projected) == ["llm_requested", "first_delta", "first_clause", "first_sound", "first_sent"]
    llm_requested_ms = marks["llm_requested"] - marks["voiced_last"]
    assert projected["llm_requested"] == llm_requested_ms + 300 + 50 + 75 + 10 + 25
    assert projected["first_delta"] == llm_requested_ms + 50 + 50 + 75 + 10 + 25
    assert projected["first_sent"] == record.total_ms

    an_answered_turn(scenario)
    record = scenario.driver.records["turn_s_0002"]
    assert dict(record.projected)["llm_requested"] == record.total_ms


def test_what_is_late_is_expected_to_take_longer_still() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(900)
    scenario.token()
    scenario.passes(300)
    scenario.clause()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    t0_ms, llm_requested_ms = turn.marks["voiced_last"], turn.marks["llm_requested"]
    assert (
        scenario.driver.core.context.learned.usual.first_audible_ms(
            {"llm_requested": llm_requested_ms}, llm_requested_ms + 900
        )
        == llm_requested_ms + 1_200 + 160
    )
    assert turn.reply.projected["first_clause"] == turn.marks["first_clause"] - t0_ms + 75 + 10 + 25


def test_a_revision_is_projected_anew() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert turn.reply.projected
    scenario.speaks()
    assert (turn.reply.revision, turn.reply.projected) == (1, {})


def test_a_reply_without_sound_has_no_projection() -> None:
    scenario = Scenario()
    scenario.creates(audible=False)
    scenario.model_requested()
    assert scenario.driver.core.agent.turn is not None
    assert scenario.driver.core.agent.turn.reply.projected == {}


# --- the time that is left for the model ----------------------------------------------------------


def test_request_has_the_time_left_when_short() -> None:
    """160 ms of the second are for what follows the model's first text, and the silence took the rest."""
    scenario = Scenario(silence_ms=300)
    started = commands_of(StartReply, scenario.utters())
    assert [command.first_output_ms for command in started] == [300]


@pytest.mark.parametrize("silence_ms", [100, 900])
def test_request_has_no_deadline_otherwise(silence_ms: int) -> None:
    scenario = Scenario(silence_ms=silence_ms)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.driver.at(scenario.driver.now_ms + silence_ms - 80)
    (started,) = commands_of(StartReply, scenario.is_silent(silence_ms))
    assert started.first_output_ms is None


# --- a shorter first clause -----------------------------------------------------------------------


def test_a_first_clause_that_does_not_close_is_cut() -> None:
    """400 ms after the first text the voice gets what there is."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token("Well the")
    assert commands_of(ShortenClause, scenario.passes(399)) == []
    assert commands_of(ShortenClause, scenario.passes(1)) == [ShortenClause(1, 0)]
    scenario.clause("Well", shortened=True)
    assert commands_of(ShortenClause, scenario.passes(2_000)) == []
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert turn.reply.actions == ["short_clause"]


def test_a_clause_that_closed_by_itself_is_no_action() -> None:
    """The command came, and the clause with it: nothing was cut."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token("It is")
    scenario.passes(400)
    scenario.clause("It is noon.")
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert turn.reply.actions == []


def test_a_clause_in_time_is_left_alone() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    assert commands_of(ShortenClause, scenario.passes(2_000)) == []


def test_no_clause_is_cut_where_nothing_is_said() -> None:
    """Not of a text reply, not of a function call, not when it is turned off, not when the answer is complete."""
    silent = Scenario()
    silent.creates(audible=False)
    silent.model_requested()
    silent.token("Well the")
    assert commands_of(ShortenClause, silent.passes(1_000)) == []

    calling = Scenario()
    calling.utters()
    calling.model_requested()
    calling.call("{")
    assert commands_of(ShortenClause, calling.passes(1_000)) == []

    off = Scenario(budget_actions=BudgetActionSettings(shorten_after_ms=None))
    off.utters()
    off.model_requested()
    off.token("Well the")
    assert commands_of(ShortenClause, off.passes(1_000)) == []


def test_each_revision_has_its_own_clause() -> None:
    scenario = Scenario()
    scenario.utters("One")
    scenario.model_requested()
    scenario.token("Well the")
    scenario.passes(400)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("One two")
    scenario.stops()
    scenario.model_requested()
    scenario.token("Now that")
    assert commands_of(ShortenClause, scenario.passes(400)) == [ShortenClause(1, 1)]


# --- a filler -------------------------------------------------------------------------------------


def test_a_late_answer_is_bridged_by_a_phrase() -> None:
    """Its words are an item of the same response, marked, and no model reads them."""
    scenario = with_filler()
    scenario.utters()
    got = scenario.model_requested() + scenario.passes(600)
    (command,) = commands_of(SayFiller, got)
    assert (command.turn, command.words) == (1, FILLER)
    started = next(what for what in scenario.notified(a.OutputStarted))
    assert started.response_id == command.response_id
    stored = scenario.driver.core.context.conversation.find(started.item.id)
    assert isinstance(stored, Message)
    assert stored.hidden_from_llm
    assert stored.text() == FILLER
    scenario.filler_sent()
    scenario.begins_to_answer()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert (record.actions, record.filler, record.outcome) == (("filler",), FILLER, "completed")
    assert FILLER not in record.agent_text
    marks = dict(record.marks)
    assert marks["voiced_last"] < marks["filler_audible"] < marks["first_audible"]


def test_the_answer_plays_behind_its_filler() -> None:
    scenario = with_filler()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(700)
    scenario.filler_sent(900)
    played_until_ms = scenario.driver.now_ms + 900
    scenario.begins_to_answer()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert turn.marks["first_audible"] == played_until_ms + 20
    assert turn.audio.plays_until_ms == played_until_ms + 1_000


def test_cut_filler_is_stored_as_played() -> None:
    """The core takes the client's report of how much of the filler was played."""
    scenario = with_filler()
    scenario.utters()
    (command,) = commands_of(SayFiller, scenario.model_requested() + scenario.passes(700))
    assert command.words == FILLER
    scenario.filler_sent(600)
    item_id = scenario.notified(a.OutputStarted)[0].item.id
    scenario.speaks()
    scenario.truncates(item_id, 100)
    stored = scenario.driver.core.context.conversation.find(item_id)
    assert isinstance(stored, Message)
    assert stored.text() == "One"


def test_no_filler_before_its_time() -> None:
    """It is said when the answer is expected after more than 1.2 s, and at that instant."""
    scenario = with_filler()
    scenario.utters()
    scenario.model_requested()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    late_ms = scenario.driver.core.context.learned.usual.late_from_ms(turn.marks, turn.marks["voiced_last"] + 1_200)
    assert commands_of(SayFiller, scenario.passes(late_ms - 1 - scenario.driver.now_ms)) == []
    assert commands_of(SayFiller, scenario.passes(1)) != []


def test_a_filler_is_said_at_once_when_the_answer_can_only_be_late() -> None:
    """The question left so late that the usual answer to it would break the limit."""
    scenario = with_filler(filler_over_ms=800)
    scenario.utters()
    assert names(scenario.model_requested())[:2] == ["OutputStarted", "SayFiller"]


def without_ready(scenario: Scenario) -> None:
    scenario.has_ready()


def with_sound(scenario: Scenario) -> None:
    scenario.token()
    scenario.clause()
    scenario.sound()


def with_call(scenario: Scenario) -> None:
    scenario.call()


@pytest.mark.parametrize("but", [without_ready, with_sound, with_call])
def test_no_filler_where_it_would_not_help(but: Any) -> None:
    """Its sound isn't there; the answer's is; a function is called."""
    scenario = with_filler()
    scenario.utters()
    scenario.model_requested()
    but(scenario)
    assert commands_of(SayFiller, scenario.passes(3_000)) == []


def test_no_filler_unless_it_is_set() -> None:
    scenario = Scenario()
    scenario.has_ready(FILLER)
    scenario.utters()
    scenario.model_requested()
    assert commands_of(SayFiller, scenario.passes(3_000)) == []


def test_no_filler_while_the_user_may_go_on() -> None:
    """A reply that was begun early belongs to no finished turn yet."""
    scenario = with_filler()
    scenario.driver.core.context.core = scenario.driver.core.context.core.__class__(
        speculate=True, budget_actions=BudgetActionSettings(filler=FILLER)
    )
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    assert commands_of(SayFiller, scenario.passes(1_500)) == []


def test_no_filler_when_the_answer_is_nearly_there() -> None:
    """With its first clause at the voice it is expected in a moment, late as it is."""
    scenario = with_filler(shorten_after_ms=None)
    scenario.utters()
    scenario.model_requested()
    scenario.passes(300)
    scenario.token("Well the")
    scenario.clause("Well the")
    assert commands_of(SayFiller, scenario.passes(100)) == []


def test_an_answer_that_stops_coming_is_bridged_after_all() -> None:
    """It was late and expected in a moment, so there was no filler; then the model sent nothing more."""
    scenario = Scenario(budget_actions=BudgetActionSettings(filler=FILLER, filler_over_ms=500))
    an_answered_turn(scenario)
    scenario.utters()
    scenario.has_ready(FILLER)
    assert commands_of(SayFiller, scenario.model_requested()) == []
    got = scenario.passes(800) + scenario.is_silent(1_500)
    assert len(commands_of(SayFiller, got)) == 1


def test_a_stage_without_marks_keeps_its_usual_time() -> None:
    """A reply that lacks a mark says nothing of the stages on both sides of it."""
    usual = UsualTimes(BudgetLimits())
    before_ms = [usual.usual_ms(stage) for stage, _, _ in STAGES]
    usual.record({"llm_requested": 0, "first_delta": 90, "first_sound": 400})
    assert [usual.usual_ms(stage) for stage, _, _ in STAGES] == [90, *before_ms[1:]]


def test_never_two_turns_running() -> None:
    scenario = with_filler()
    fillers = []
    for _ in range(4):
        scenario.utters()
        fillers.append(len(commands_of(SayFiller, scenario.model_requested() + scenario.passes(2_000))))
        scenario.begins_to_answer()
        scenario.model_done()
        scenario.voice_done()
        scenario.passes(5_000)
    assert fillers == [1, 0, 1, 0]


def test_one_filler_a_turn() -> None:
    """A user who goes on during the filler, and has to wait again, gets no second one."""
    scenario = with_filler()
    scenario.utters("One")
    scenario.model_requested()
    assert commands_of(SayFiller, scenario.passes(1_000)) != []
    scenario.filler_sent()
    got = scenario.speaks()
    assert commands_of(StopReply, got) == [StopReply(1, 0)]
    scenario.pauses()
    scenario.transcribes("One two")
    scenario.stops()
    scenario.model_requested()
    assert commands_of(SayFiller, scenario.passes(3_000)) == []
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.driver.records["turn_s_0001"].actions == ("filler",)


def test_no_model_reads_a_filler() -> None:
    """The next question's context holds it, marked."""
    scenario = with_filler()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(1_000)
    scenario.filler_sent()
    scenario.answers()
    scenario.passes(5_000)
    scenario.utters("And now?")
    hidden = [item for item in scenario.started()[-1].items if isinstance(item, Message) and item.hidden_from_llm]
    assert [item.text() for item in hidden] == [FILLER]


# --- an apology -----------------------------------------------------------------------------------


def test_a_turn_that_failed_is_apologised_for() -> None:
    """`response.done` says failed, then a response of its own says the words; the conversation goes on."""
    scenario = Scenario(budget_actions=PHRASES)
    scenario.utters()
    scenario.model_requested()
    (apology,) = commands_of(StartReply, scenario.breaks())
    assert apology.words == APOLOGY
    assert scenario.ended() == [("failed", "llm_failed")]
    scenario.model_requested()
    scenario.token(APOLOGY)
    scenario.clause(APOLOGY)
    assert commands_of(OpenGate, scenario.sound()) != []
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    failed, said = (scenario.driver.records[f"turn_s_000{n}"] for n in (1, 2))
    assert (failed.outcome, failed.actions) == ("failed", ("apology",))
    assert (said.cause, said.outcome, said.agent_text) == ("apology", "completed", APOLOGY)
    assert "llm" not in dict(said.providers)
    scenario.utters("Are you there?")
    assert scenario.started()[-1].words == ""
    hidden = [item for item in scenario.started()[-1].items if isinstance(item, Message) and item.hidden_from_llm]
    assert [item.text() for item in hidden] == [APOLOGY]


def test_an_apology_that_fails_is_the_end_of_it() -> None:
    scenario = Scenario(budget_actions=PHRASES)
    scenario.utters()
    scenario.model_requested()
    scenario.breaks()
    assert commands_of(StartReply, scenario.breaks("tts")) == []
    assert scenario.outcomes() == [("failed", "llm: fake/llm: broke"), ("failed", "tts: fake/tts: broke")]


def test_a_voice_that_failed_apologises_only_with_sound_that_is_there() -> None:
    for ready, n_apologies in (((), 0), ((APOLOGY,), 1)):
        scenario = Scenario(budget_actions=PHRASES)
        scenario.has_ready(*ready)
        scenario.utters()
        scenario.model_requested()
        assert len(commands_of(StartReply, scenario.breaks("tts"))) == n_apologies


def test_words_that_were_lost_are_apologised_for() -> None:
    scenario = Scenario(budget_actions=PHRASES)
    scenario.speaks()
    scenario.pauses()
    got = scenario.stt_fails() + scenario.stops()
    assert [command.words for command in commands_of(StartReply, got)] == [APOLOGY]


def test_no_apology_for_text_or_beside_the_conversation() -> None:
    for reply in ({"audible": False}, {"in_conversation": False}):
        scenario = Scenario(budget_actions=PHRASES)
        scenario.creates(**reply)
        scenario.model_requested()
        assert commands_of(StartReply, scenario.breaks()) == []


def test_speech_stops_an_apology() -> None:
    """Speech stops the apology as it stops any reply; it was not played, so it is not spoken later."""
    scenario = Scenario(budget_actions=PHRASES)
    scenario.utters()
    scenario.model_requested()
    scenario.breaks()
    scenario.utters("Hello?")
    assert scenario.outcomes()[1][0] == "abandoned"
    assert scenario.started()[-1].words == ""


def test_immediate_new_request_replaces_the_apology() -> None:
    """An apology without audible sound gives way."""
    scenario = Scenario(budget_actions=PHRASES)
    scenario.utters()
    scenario.model_requested()
    scenario.breaks()
    got = scenario.creates()
    assert scenario.notified(a.Refused) == []
    assert [command.words for command in commands_of(StartReply, got)] == [""]


def test_failed_speculative_reply_gets_no_apology() -> None:
    scenario = Scenario(speculate=True, budget_actions=PHRASES)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    assert commands_of(StartReply, scenario.breaks()) == []


def test_a_reply_in_time_has_no_actions() -> None:
    scenario = with_filler()
    an_answered_turn(scenario)
    assert scenario.driver.records["turn_s_0001"].actions == ()


def test_actions_are_notified_when_watched() -> None:
    scenario = Scenario(watched=True, budget_actions=PHRASES)
    scenario.has_ready(FILLER)
    scenario.utters()
    scenario.model_requested()
    scenario.model_joined("b/m")
    scenario.passes(1_000)
    scenario.breaks()
    assert [events.action for events in scenario.notified(a.ActionTaken)] == ["hedge", "filler", "apology"]


def test_the_way_to_the_model_is_part_of_its_time() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.model_reached()
    scenario.answers()
    assert dict(scenario.driver.records["turn_s_0001"].parts)["connect"] == 50


@pytest.mark.parametrize("wrong", [{"shorten_after_ms": -1}, {"filler_over_ms": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        BudgetActionSettings(**wrong)
