"""Functions that the server runs, in the core: when they start, and what their results lead to."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.attribution import problems
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import CancelTool, RunTool, SayFiller, StartReply
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, ReplySettings, ServerTool, Tool

TOOL = ServerTool(tool=Tool("look_up", "", "{}"), label="agent")


def new_scenario(*, cancellable: bool = False, **more: Any) -> Scenario:
    tool = ServerTool(tool=TOOL.tool, label="agent", cancellable=cancellable)
    return Scenario(reply=ReplySettings(server_tools=(tool,)), **more)


def calls(scenario: Scenario) -> None:
    """The user asks, and the LLM calls the function."""
    scenario.utters()
    calls_now(scenario)


def calls_now(scenario: Scenario) -> None:
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()


def softly_called() -> Scenario:
    """Return a scenario in which the LLM calls the function before the end of the turn is certain."""
    scenario = new_scenario(end_of_turn="soft", silence_ms=720)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("Book it.")
    scenario.is_silent(720)
    calls_now(scenario)
    return scenario


def ran(scenario: Scenario) -> int:
    return sum(isinstance(command, RunTool) for command in scenario.driver.commands)


def record(scenario: Scenario, number: int = 1) -> TurnRecord:
    found: TurnRecord = next(each for each in scenario.driver.records.values() if each.turn == number)
    return found


def read_by_llm(started: StartReply) -> list[tuple[str | None, bool]]:
    return [(item.output, item.late) for item in started.items if isinstance(item, FunctionCall)]


def test_the_tools_time_is_the_servers() -> None:
    """One turn, its total up to the answer, and the server to blame."""
    scenario = new_scenario()
    calls(scenario)
    assert ran(scenario) == 1
    scenario.passes(3_000)
    scenario.tool_ends()
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    (turn,) = scenario.driver.records.values()
    assert (turn.cause, turn.outcome, turn.agent_text) == ("vad", "completed", "It is sunny.")
    stage = {span.stage: span for span in turn.stages}["tool"]
    assert (stage.owner, stage.verdict, stage.duration_ms >= 3_000) == ("server", "over", True)
    assert turn.breach is not None
    assert (turn.breach.stage, turn.breach.owner) == ("tool", "server")
    (tool,) = turn.tools
    assert (tool.name, tool.ran_by, tool.outcome) == ("look_up", "server", "returned")
    assert problems(turn) == []
    assert scenario.driver.illegal_moves == []


def test_a_call_waits_for_the_certain_end_of_the_turn() -> None:
    """An answer that begins softly may say something; what has effects waits."""
    scenario = softly_called()
    assert ran(scenario) == 0
    scenario.is_silent(2_500)
    scenario.passes(3_000)
    assert ran(scenario) == 1
    assert scenario.driver.illegal_moves == []


def test_a_user_who_goes_on_before_that_calls_nothing() -> None:
    scenario = softly_called()
    scenario.speaks(2_000)
    scenario.pauses()
    scenario.transcribes("No, do not.")
    scenario.is_silent(2_500)
    scenario.passes(1_000)
    scenario.answers("Fine.")
    scenario.passes(5_000)
    assert ran(scenario) == 0


@pytest.mark.parametrize(
    ("arguments", "n_runs"),
    [
        ('{ "day" : "1 May", "who": {"b": [1, 2], "a": "x, y"}}', 1),
        ('{"who":{"a":"x, y","b":[1,2]},"day":"1 May"}', 1),
        ('{"day":"1 May","who":{"b":[2,1],"a":"x, y"}}', 2),
        ('{"day":"1May","who":{"b":[1,2],"a":"x, y"}}', 2),
        ('{"day":"1 May","who":{"b":[1,2],"a":"x,y"}}', 2),
        ('{"day":"1 May","who":{"b":[1,2]}}', 2),
        ('{"day":"1 May","who":{"b":[1,2],"a":"x, y"}', 2),
    ],
)
def test_a_repeated_call_is_the_same_however_its_json_is_written(arguments: str, n_runs: int) -> None:
    """White space between values and the order of members make no other call; the values themselves do."""
    scenario = new_scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.call('{"day":"1 May","who":{"b":[1,2],"a":"x, y"}}')
    scenario.call(arguments, index=1)
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert ran(scenario) == n_runs


@pytest.mark.parametrize("cancellable", [False, True])
def test_the_user_speaks_while_a_function_runs(cancellable: bool) -> None:
    """The function goes on, unless it may be cancelled. Its result is told when both are silent."""
    scenario = new_scenario(cancellable=cancellable)
    calls(scenario)
    scenario.passes(500)
    scenario.utters("How are you?")
    assert any(isinstance(command, CancelTool) for command in scenario.driver.commands) is cancellable
    output = "Cancelled, since the user went on." if cancellable else None
    assert read_by_llm(scenario.started()[-1]) == [(output, False)]
    scenario.begins_to_answer("Fine, thank you.", 3_000)
    n_started = len(scenario.started())
    scenario.tool_ends()
    scenario.model_done()
    scenario.voice_done()
    assert len(scenario.started()) == n_started, "the agent still speaks"
    scenario.passes(5_000)
    assert record(scenario).tools[0].outcome == ("cancelled" if cancellable else "returned")
    if cancellable:
        assert len(scenario.started()) == n_started
        return
    assert read_by_llm(scenario.started()[-1]) == [("sunny", True), ("sunny", False)]
    scenario.answers("By the way, it is sunny.")
    scenario.passes(5_000)
    assert [outcome for outcome, _ in scenario.outcomes()] == ["completed"] * 3
    assert scenario.driver.illegal_moves == []


def test_the_result_of_a_cancelled_function_counts_for_nothing() -> None:
    """It was on the way when the user went on."""
    scenario = new_scenario(cancellable=True)
    calls(scenario)
    scenario.passes(500)
    scenario.utters("How are you?")
    scenario.answers("Fine, thank you.")
    assert scenario.tool_ends("too late") == []
    scenario.passes(5_000)
    assert [
        call.output for call in scenario.driver.core.context.conversation.items if isinstance(call, FunctionCall)
    ] == ["Cancelled, since the user went on."]
    assert record(scenario).tools[0].outcome == "cancelled"


def test_a_function_that_does_not_come_to_its_end_is_bridged_after_all() -> None:
    """Its answer was late and expected in a moment, so there was no filler; then nothing came."""
    filler = "One moment."
    scenario = new_scenario(budget_actions=BudgetActionSettings(filler=filler))
    scenario.has_ready(filler)
    scenario.utters()
    key, now_ms = scenario._key(-1), scenario.driver.now_ms
    at_once = (
        e.ModelRequested(*key, "fake/llm"),
        e.ModelTextReceived(*key, "It is sunny."),
        e.ClauseHandedOver(*key, 0, "It is sunny.", "fake/tts"),
        e.SoundArrived(*key, 0, 500, 0),
        e.OutputSent(*key, 500),
        e.ModelFinished(*key, "stop"),
        e.SynthesisFinished(*key),
    )
    scenario._see(scenario.driver.at(now_ms, *at_once))  # an answer takes no time, as far as is known
    scenario.passes(2_000)
    calls(scenario)
    assert not any(isinstance(each, SayFiller) for each in scenario.passes(800))
    got = scenario.is_silent(1_500)
    assert sum(isinstance(each, SayFiller) for each in got) == 1
    assert scenario.driver.illegal_moves == []


def test_a_late_result_that_a_reply_has_read_is_not_answered_again() -> None:
    scenario = new_scenario()
    calls(scenario)
    scenario.passes(500)
    scenario.speaks()
    scenario.tool_ends()
    scenario.pauses()
    scenario.transcribes("And tomorrow?")
    scenario.stops()
    scenario.answers("Sunny, and tomorrow too.")
    scenario.passes(20_000)
    assert len(scenario.started()) == 2
    assert read_by_llm(scenario.started()[-1]) == [("sunny", True), ("sunny", False)]


def test_a_sound_without_words_does_not_lose_a_result() -> None:
    """A cough while the function runs."""
    scenario = new_scenario()
    calls(scenario)
    scenario.passes(500)
    scenario.utters("")
    scenario.tool_ends()
    assert len(scenario.started()) == 2
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    assert scenario.driver.illegal_moves == []


def test_a_function_that_never_returns_ends_the_turn() -> None:
    """The deadline of the turn; its result may still come."""
    scenario = new_scenario()
    calls(scenario)
    scenario.passes(61_000)
    (turn,) = scenario.driver.records.values()
    assert (turn.outcome, turn.tools[0].outcome) == ("completed", "running")
    scenario.tool_ends()
    assert len(scenario.started()) == 2


def test_the_filler_is_said_while_a_function_runs() -> None:
    scenario = new_scenario(budget_actions=BudgetActionSettings(filler="One moment."))
    scenario.has_ready("One moment.")
    calls(scenario)
    scenario.passes(3_000)
    assert any(isinstance(command, SayFiller) for command in scenario.driver.commands)


def test_a_result_of_a_session_that_is_over_changes_nothing() -> None:
    scenario = new_scenario()
    calls(scenario)
    scenario.leaves()
    assert scenario.tool_ends() == []
    (turn,) = scenario.driver.records.values()
    assert turn.outcome == "completed"


def test_an_out_of_band_reply_calls_nothing() -> None:
    scenario = new_scenario()
    scenario.creates(in_conversation=False, server_tools=(TOOL,))
    assert scenario.started()[-1].reply.server_tools == ()


def test_the_client_learns_of_the_result_before_the_answer() -> None:
    scenario = new_scenario()
    calls(scenario)
    n_before = len(scenario.driver.announced)
    scenario.tool_ends()
    ended, started = scenario.driver.announced[n_before:]
    assert isinstance(ended, a.ToolEnded)
    assert (ended.call.output, ended.call.failed) == ("sunny", False)
    assert isinstance(started, a.ResponseStarted)


def test_the_client_deletes_a_call_that_runs() -> None:
    """Its result joins the conversation no more."""
    scenario = new_scenario()
    calls(scenario)
    (item,) = [each.item for each in scenario.notified(a.OutputStarted) if isinstance(each.item, FunctionCall)]
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested(None, item.id))
    scenario.utters("How are you?")
    scenario.tool_ends()
    scenario.answers("Fine.")
    scenario.passes(5_000)
    assert len(scenario.started()) == 2


def test_a_late_result_while_the_words_before_the_call_still_play() -> None:
    """The client has requested another reply meanwhile: the turn of the call is over when it was played."""
    scenario = new_scenario()
    scenario.utters()
    scenario.begins_to_answer("One moment, I will look it up.", 4_000)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.creates(audible=False)
    scenario.tool_ends()
    assert record(scenario).outcome is None
    scenario.model_requested()
    scenario.token("Fine.")
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(10_000)
    assert record(scenario).outcome == "completed"
    assert record(scenario).tools[0].outcome == "returned"


def test_an_interrupted_answer_keeps_the_result_of_its_tool() -> None:
    """The tool was over before: the next answer reads its result, and it runs once."""
    scenario = new_scenario()
    calls(scenario)
    scenario.tool_ends("sunny")
    scenario.begins_to_answer("It is sunny in Paris today.", 3_000)
    scenario.sent(3_000)
    scenario.passes(500)
    scenario.utters("And in Rome?")
    assert read_by_llm(scenario.started()[-1]) == [("sunny", False)]
    scenario.answers("There too.")
    scenario.passes(5_000)
    assert ran(scenario) == 1
    assert [outcome for outcome, _ in scenario.outcomes()] == ["interrupted", "completed"]
    assert scenario.driver.illegal_moves == []


def test_a_tool_is_called_after_an_interruption() -> None:
    """By the answer to the words that interrupted."""
    scenario = new_scenario()
    scenario.utters()
    scenario.begins_to_answer("Let me tell you about Paris.", 3_000)
    scenario.sent(3_000)
    scenario.passes(500)
    scenario.utters("Just look it up.")
    calls_now(scenario)
    scenario.tool_ends("sunny")
    assert read_by_llm(scenario.started()[-1]) == [("sunny", False)]
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    assert ran(scenario) == 1
    assert record(scenario).outcome == "interrupted"
    assert scenario.driver.illegal_moves == []
