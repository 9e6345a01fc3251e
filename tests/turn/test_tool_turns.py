"""A turn whose answer waits for a function call is one turn: from the last word to the first sound of the answer."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from voicepipe.errors import ConfigError
from voicepipe.testing.attribution import problems
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import SayFiller, StartReply, StopReply, StoreRecord
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.cost import Price, PriceList
from voicepipe.turn.record.values import Breach, ToolCall, TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, ReplySettings
from voicepipe.turn.turn import Turn

TOOL_MS = 3_000


def calls(scenario: Scenario, *, announced: str = "") -> None:
    """The user asks, and the LLM calls a function, perhaps after some words."""
    scenario.utters()
    scenario.model_requested()
    if announced:
        scenario.token(announced)
        scenario.clause(announced)
        scenario.sound(800)
        scenario.sent(800)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()


def returns(scenario: Scenario, call_id: str = "call_0") -> None:
    """The client sends the result, and requests the reply to it."""
    scenario.creates_item(FunctionOutput("", call_id, "sunny"))
    scenario.creates()


def records(scenario: Scenario) -> list[TurnRecord]:
    """By their numbers."""
    return sorted(scenario.driver.records.values(), key=lambda record: record.turn)


def test_the_tools_time_is_the_turns() -> None:
    """One record, its total up to the answer, and a stage for the tool that is to blame."""
    scenario = Scenario()
    calls(scenario)
    (waiting,) = records(scenario)
    assert (waiting.outcome, waiting.tools) == (None, (ToolCall(name="look_up", arguments="{}"),))
    scenario.passes(TOOL_MS)
    returns(scenario)
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert (turn.cause, turn.outcome, turn.turn) == ("vad", "completed", 1)
    marks = dict(turn.marks)
    assert turn.total_ms == turn.answer_audio_ms == marks["first_audible"] - marks["voiced_last"]
    assert turn.total_ms is not None
    assert turn.total_ms > TOOL_MS
    stage = {span.stage: span for span in turn.stages}["tool"]
    assert (stage.duration_ms, stage.critical_ms, stage.owner, stage.verdict) == (
        marks["tool_returned_1"] - marks["tool_called_1"],
        stage.duration_ms,
        "client",
        "over",
    )
    assert turn.breach == Breach("tool", stage.duration_ms - stage.limit_ms, "client", "")
    assert [part.stage for part in turn.contributions] == [
        *("silence", "endpoint", "llm_ttft", "tool", "overhead"),
        *("llm_ttft", "first_clause", "tts_ttfb", "overhead", "playback"),
    ]
    assert problems(turn) == []
    (tool,) = turn.tools
    assert (tool.name, tool.ran_by, tool.outcome) == ("look_up", "client", "returned")
    assert tool.took_ms is not None
    assert TOOL_MS <= tool.took_ms <= stage.duration_ms
    assert (turn.user_text, turn.agent_text) == ("What time is it?", "It is sunny.")


def test_an_announcement_does_not_hide_the_tool() -> None:
    """What was said before the call is the first audio, and no answer."""
    scenario = Scenario()
    calls(scenario, announced="One moment.")
    scenario.passes(TOOL_MS)
    (waiting,) = records(scenario)
    assert (waiting.outcome, waiting.answer_audio_ms) == (None, None)
    returns(scenario)
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert turn.first_audio_ms is not None
    assert turn.answer_audio_ms is not None
    assert turn.first_audio_ms < 1_000 < TOOL_MS < turn.answer_audio_ms == turn.total_ms
    assert turn.agent_text == turn.played_text == "One moment. It is sunny."
    assert turn.spoken_ms == 800 + 1_000
    assert problems(turn) == []


def test_two_rounds_are_one_turn_too() -> None:
    """The second reply calls again."""
    scenario = Scenario()
    calls(scenario)
    scenario.passes(700)
    returns(scenario)
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.passes(900)
    returns(scenario)
    scenario.answers()
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert [part.stage for part in turn.contributions].count("tool") == 2
    assert {span.stage: span for span in turn.stages}["tool"].duration_ms >= 1_600
    assert len(turn.tools) == 2
    assert problems(turn) == []


def calls_again(scenario: Scenario) -> StartReply:
    """The client returns a result, and the LLM calls once more; return how the reply began."""
    returns(scenario)
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    return scenario.started()[-1]


def test_a_turn_has_so_many_rounds_of_the_clients_functions() -> None:
    """Then the LLM must answer without, and the client is told why. If it calls all the same, its turn is over."""
    scenario = Scenario(client_tool_rounds=2)
    calls(scenario)
    assert calls_again(scenario).reply.tool_choice == "auto"
    assert scenario.notified(a.Refused) == []
    assert calls_again(scenario).reply.tool_choice == "none"
    (refused,) = scenario.notified(a.Refused)
    assert (refused.event_id, refused.code, refused.field) == ("evt", "too_many_tool_rounds", "response.tool_choice")
    assert "client_tool_rounds (2)" in refused.message
    assert len(records(scenario)) == 1
    assert calls_again(scenario).reply.tool_choice == "auto"
    first, second = records(scenario)
    assert (len(first.tools), first.outcome, second.cause) == (3, "completed", "tool")


def test_a_round_costs_no_more_than_the_one_before() -> None:
    """The record so far, which has all rounds, is stored ever more rarely; at the end it is whole."""
    scenario = Scenario(client_tool_rounds=100)
    calls(scenario)
    n_stored = []
    for _ in range(39):
        before = len(scenario.driver.commands)
        calls_again(scenario)
        n_stored.append(sum(isinstance(each, StoreRecord) for each in scenario.driver.commands[before:]))
    rounds = [n for n, stored in enumerate(n_stored, 2) if stored]
    assert rounds == [2, 3, 4, 5, 6, 7, 8, 16, 32]
    assert len(records(scenario)[0].tools) == 32
    scenario.passes(61_000)
    (turn,) = records(scenario)
    assert (len(turn.tools), turn.outcome) == (40, "completed")
    assert problems(turn) == []


def test_a_number_of_rounds_is_not_negative() -> None:
    with pytest.raises(ConfigError, match=r"^client_tool_rounds: expected 0 or more, got -1$"):
        CoreSettings(client_tool_rounds=-1)


def test_rounds_without_an_end_are_one_turn() -> None:
    """A client may return results as often as the LLM calls: more often than Python may recurse."""
    first = last = Turn(1, "turn_1", "create")
    for number in range(2, 2 * sys.getrecursionlimit()):
        last = Turn(number, "turn_1", "create", before=last)
    replies = last.replies
    assert (replies[0], replies[-1]) == (first, last)
    assert [each.number for each in replies] == list(range(1, 2 * sys.getrecursionlimit()))


def test_a_call_that_was_ready_before_the_turn_was_over() -> None:
    """It left when the gate opened: the user waited for the silence, and not for the LLM."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.stops()
    scenario.passes(TOOL_MS)
    returns(scenario)
    scenario.answers()
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert [part.stage for part in turn.contributions][:3] == ["silence", "endpoint", "tool"]
    assert problems(turn) == []


def test_a_result_after_the_next_turn_starts_a_turn_of_its_own() -> None:
    """The user went on meanwhile, and the first turn is over without an answer."""
    scenario = Scenario()
    calls(scenario)
    scenario.passes(500)
    scenario.utters("Never mind.")
    scenario.answers("Fine.")
    scenario.passes(5_000)
    returns(scenario)
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    first, second, late = records(scenario)
    assert (first.outcome, first.total_ms, first.tools) == (
        "completed",
        None,
        (ToolCall(name="look_up", arguments="{}", outcome="unanswered"),),
    )
    assert (second.cause, second.outcome) == ("vad", "completed")
    assert (late.cause, late.outcome, late.tools) == ("tool", "completed", ())
    assert late.total_ms is not None
    assert late.total_ms < 1_000


@pytest.mark.parametrize("end", ["deadline", "user left"])
def test_a_call_without_a_result_ends_with_its_turn(end: str) -> None:
    """The turn is over by its deadline, or with the session."""
    scenario = Scenario()
    calls(scenario)
    if end == "deadline":
        scenario.passes(scenario.driver.core.context.core.deadlines.tool_ms)
    else:
        scenario.leaves()
    (turn,) = records(scenario)
    assert (turn.outcome, turn.tools) == (
        "completed",
        (ToolCall(name="look_up", arguments="{}", outcome="unanswered"),),
    )


def test_the_answer_pays_for_both_requests() -> None:
    scenario = Scenario(prices=PriceList(models={"fake/llm": Price(1.0, 10.0)}))
    scenario.utters()
    scenario.model_requested()
    scenario.call()
    scenario.counts(100, 10)
    scenario.model_done("tool_calls")
    scenario.voice_done()
    returns(scenario)
    scenario.model_requested()
    scenario.token()
    scenario.counts(200, 20)
    scenario.clause()
    scenario.sound()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert turn.cost.answer_usd == pytest.approx((300 * 1.0 + 30 * 10.0) / 1e6)
    assert turn.session_cost.usd == pytest.approx(turn.cost.usd)
    assert (turn.tokens.input, turn.tokens.output) == (300, 30)


FILLER = "One moment."


def with_filler() -> Scenario:
    scenario = Scenario(budget_actions=BudgetActionSettings(filler=FILLER))
    scenario.has_ready(FILLER)
    return scenario


def fillers(scenario: Scenario) -> list[SayFiller]:
    return [command for command in scenario.driver.commands if isinstance(command, SayFiller)]


def test_the_filler_is_said_while_the_tool_runs() -> None:
    """As soon as the answer can only be late, in a response of its own that is over at once: the client may request
    the reply with its result at any time."""
    scenario = with_filler()
    calls(scenario)
    (said,) = fillers(scenario)
    scenario.filler_sent()
    scenario.passes(TOOL_MS)
    called, filler = scenario.notified(a.ResponseStarted)
    assert said.response_id == filler.response_id != called.response_id
    assert called.turn_id == filler.turn_id
    assert [(each.response_id, each.status) for each in scenario.notified(a.ResponseEnded)] == [
        (called.response_id, "completed"),
        (filler.response_id, "completed"),
    ]
    (waiting,) = records(scenario)
    assert (waiting.outcome, waiting.actions, waiting.filler) == (None, ("filler",), FILLER)
    returns(scenario)
    assert scenario.notified(a.Refused) == []
    scenario.answers()
    scenario.passes(5_000)
    (turn,) = records(scenario)
    marks, projected = dict(turn.marks), dict(turn.projected)
    assert (turn.actions, turn.filler, turn.outcome) == (("filler",), FILLER, "completed")
    assert turn.first_audio_ms is not None
    assert turn.answer_audio_ms is not None
    assert turn.first_audio_ms < TOOL_MS < turn.answer_audio_ms
    assert marks["tool_called_1"] < marks["filler_sent"] < marks["tool_returned_1"]
    assert projected["tool_called_1"] > 1_200
    assert projected["llm_requested"] > TOOL_MS
    assert len(fillers(scenario)) == 1
    assert problems(turn) == []


def test_a_filler_that_is_sent_when_the_result_is_there_is_of_the_answers_turn() -> None:
    """And the answer plays after it."""
    scenario = with_filler()
    calls(scenario)
    scenario.passes(TOOL_MS)
    waiting = scenario.started()[-1]
    returns(scenario)
    scenario.driver.at(scenario.driver.now_ms, e.FillerSent(waiting.turn, waiting.revision, 4_000))
    plays_until_ms = scenario.driver.now_ms + 4_000
    scenario.answers()
    scenario.passes(6_000)
    (turn,) = records(scenario)
    assert dict(turn.marks)["filler_audible"] < plays_until_ms <= dict(turn.marks)["first_audible"]


def test_the_filler_waits_for_a_tool_that_is_usually_quick() -> None:
    """Tools and answers that took 50 ms are expected to do so again; when this one takes longer, the filler is said."""
    scenario = Scenario(budget_actions=BudgetActionSettings(filler=FILLER))
    for _ in range(2):
        calls(scenario)
        returns(scenario)
        scenario.answers()
        scenario.passes(5_000)
    scenario.has_ready(FILLER)
    calls(scenario)
    assert fillers(scenario) == []
    waiting = scenario.driver.core.context.turns.awaits_tools
    assert waiting is not None
    assert waiting.reply.projected["tool_called_1"] < 1_200
    scenario.passes(TOOL_MS)
    assert len(fillers(scenario)) == 1


def announced(scenario: Scenario) -> None:
    calls(scenario, announced="I look it up.")


def without_ready(scenario: Scenario) -> None:
    scenario.has_ready()
    calls(scenario)


def as_text(scenario: Scenario) -> None:
    scenario.changes(reply=ReplySettings(audible=False))
    calls(scenario)


@pytest.mark.parametrize("but", [announced, without_ready, as_text])
def test_no_filler_during_a_tool_where_it_would_not_help(but: Any) -> None:
    """The LLM has said what it does; there is no audio of the filler; the session has none."""
    scenario = with_filler()
    but(scenario)
    scenario.passes(TOOL_MS)
    assert fillers(scenario) == []


def test_a_user_who_speaks_stops_the_filler_of_a_tool() -> None:
    scenario = with_filler()
    calls(scenario)
    scenario.passes(TOOL_MS)
    (said,) = fillers(scenario)
    scenario.filler_sent(4_000)
    assert StopReply(said.turn, said.revision) in scenario.speaks()


def test_a_filler_during_a_tool_leaves_the_next_turn_without_one() -> None:
    """As any filler does."""
    scenario = with_filler()
    calls(scenario)
    scenario.passes(TOOL_MS)
    scenario.filler_sent()
    returns(scenario)
    scenario.answers()
    scenario.passes(5_000)
    scenario.utters("And tomorrow?")
    scenario.model_requested()
    scenario.passes(2_000)
    assert len(fillers(scenario)) == 1


def test_a_turn_that_calls_ends_the_wait_of_the_turn_before() -> None:
    """The second turn began before the first one's calls: the first one's record gets its outcome all the same."""
    scenario = Scenario(interrupt_response=False)
    scenario.utters()
    scenario.speaks()
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.pauses()
    scenario.transcribes("And in Rome?")
    scenario.stops()
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    first, second = records(scenario)
    assert [(tool.name, tool.outcome) for tool in first.tools] == [("look_up", "unanswered")]
    assert (first.outcome, second.outcome) == ("completed", None)


def test_the_first_result_of_a_function_counts() -> None:
    """A second one changes no times."""
    scenario = Scenario()
    calls(scenario)
    for wait_ms, call_id in ((300, "call_0"), (600, "call_0")):
        scenario.passes(wait_ms)
        scenario.creates_item(FunctionOutput("", call_id, "sunny"))
    scenario.creates()
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    (turn,) = records(scenario)
    (tool,) = turn.tools
    assert tool.outcome == "returned"
    assert tool.took_ms is not None
    assert 300 <= tool.took_ms < 900
