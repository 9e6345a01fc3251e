"""A turn whose answer waits for a function call is one turn: from the last word to the first sound of the answer."""

from __future__ import annotations

import pytest

from voicepipe.testing.attribution import problems
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.pricing import Price, PriceList
from voicepipe.turn.record.values import Breach, ToolCall, TurnRecord
from voicepipe.turn.settings import BudgetActionSettings

TOOL_MS = 3_000


def calls(scenario: Scenario, *, announced: str = "") -> None:
    """The user asks, and the LLM calls a function, perhaps after some words."""
    scenario.says()
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
    assert (waiting.outcome, waiting.tools) == (None, (ToolCall(name="look_up"),))
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
    scenario.says("Never mind.")
    scenario.answers("Fine.")
    scenario.passes(5_000)
    returns(scenario)
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    first, second, late = records(scenario)
    assert (first.outcome, first.total_ms, first.tools) == (
        "completed",
        None,
        (ToolCall(name="look_up", outcome="unanswered"),),
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
    assert (turn.outcome, turn.tools) == ("completed", (ToolCall(name="look_up", outcome="unanswered"),))


def test_the_answer_pays_for_both_requests() -> None:
    scenario = Scenario(prices=PriceList(models={"fake/llm": Price(1.0, 10.0)}))
    scenario.says()
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


def test_the_projection_and_the_filler_know_of_the_tool() -> None:
    """The user has waited for seconds when the answer is requested: a filler is said at once."""
    scenario = Scenario(budget_actions=BudgetActionSettings(filler="One moment."))
    scenario.has_ready("One moment.")
    calls(scenario)
    scenario.passes(TOOL_MS)
    returns(scenario)
    scenario.model_requested()
    scenario.filler_sent()
    scenario.answers()
    scenario.passes(5_000)
    (turn,) = records(scenario)
    assert dict(turn.projected)["llm_requested"] > TOOL_MS
    assert (turn.actions, turn.filler) == (("filler",), "One moment.")
    assert turn.first_audio_ms is not None
    assert turn.answer_audio_ms is not None
    assert TOOL_MS < turn.first_audio_ms < turn.answer_audio_ms
