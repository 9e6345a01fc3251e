"""Functions without side effects: they run before the end of the turn is certain, and their results wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import CancelTool, Notify, RunTool
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.events import FinishReason
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings, ServerTool, SpeculationLimits, Tool
from voicepipe.values import replace

LOOK_UP = ServerTool(tool=Tool("look_up", "", "{}"), label="agent", side_effects=False, runs_early=True)


def new_scenario(tool: ServerTool = LOOK_UP, **more: Any) -> Scenario:
    return Scenario(reply=ReplySettings(server_tools=(tool,)), **more)


def softly_called(tool: ServerTool = LOOK_UP) -> Scenario:
    """Return a scenario in which the LLM calls the function before the end of the turn is certain."""
    scenario = new_scenario(tool, end_of_turn="soft", silence_ms=720)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What is free?")
    scenario.is_silent(720)
    calls_now(scenario)
    return scenario


def calls_now(scenario: Scenario, arguments: str = "{}", *, reason: FinishReason = "tool_calls") -> None:
    scenario.model_requested()
    scenario.call(arguments)
    scenario.model_done(reason)
    scenario.voice_done()


def goes_on(scenario: Scenario) -> None:
    """The user goes on, the LLM answers in words, and the answer is played."""
    scenario.speaks(2_000)
    scenario.pauses()
    scenario.transcribes("No, never mind.")
    scenario.is_silent(2_500)
    scenario.passes(1_000)
    scenario.answers("Fine.")
    scenario.passes(5_000)


def ran(scenario: Scenario) -> list[RunTool]:
    return [command for command in scenario.driver.commands if isinstance(command, RunTool)]


def cancelled(scenario: Scenario) -> list[CancelTool]:
    return [command for command in scenario.driver.commands if isinstance(command, CancelTool)]


def ended(scenario: Scenario) -> list[FunctionCall]:
    """Return the calls whose results the client was notified of."""
    notices = (command.what for command in scenario.driver.commands if isinstance(command, Notify))
    return [what.call for what in notices if isinstance(what, a.ToolEnded)]


def outputs_read(scenario: Scenario) -> list[str | None]:
    """Return the results that the LLM reads for the latest reply."""
    return [item.output for item in scenario.started()[-1].items if isinstance(item, FunctionCall)]


def record(scenario: Scenario) -> TurnRecord:
    return next(iter(scenario.driver.records.values()))


def test_a_look_up_does_not_wait_for_the_certain_end() -> None:
    """Its result does: nobody learns of it before, and then it is there at once."""
    scenario = softly_called()
    (started,) = ran(scenario)
    assert started.revision == 0
    scenario.tool_ends("at nine")
    assert ended(scenario) == []
    n_started = len(scenario.started())
    scenario.is_silent(2_500)
    scenario.passes(3_000)
    assert [call.output for call in ended(scenario)] == ["at nine"]
    assert len(scenario.started()) == n_started + 1
    assert outputs_read(scenario) == ["at nine"]
    assert ran(scenario) == [started], "it runs once"
    scenario.answers("At nine.")
    scenario.passes(5_000)
    (tool,) = record(scenario).tools
    assert (tool.name, tool.outcome, tool.took_ms) == ("look_up", "returned", 0)
    assert tool.early_ms > 0
    assert scenario.driver.illegal_moves == []


def test_a_function_with_effects_waits() -> None:
    """It waits also if it is cancellable; and so does one that the client must approve."""
    for tool in (replace(LOOK_UP, side_effects=True, runs_early=False), replace(LOOK_UP, needs_approval=True)):
        assert ran(softly_called(tool)) == []


def test_a_look_up_that_takes_longer_is_waited_for() -> None:
    scenario = softly_called()
    scenario.is_silent(2_500)
    scenario.passes(3_000)
    assert (len(ran(scenario)), ended(scenario)) == (1, [])
    scenario.tool_ends("at nine")
    assert outputs_read(scenario) == ["at nine"]
    assert len(ended(scenario)) == 1


@pytest.mark.parametrize("returned", [False, True])
def test_a_user_who_goes_on_drops_it(returned: bool) -> None:
    """A look-up that runs is cancelled; nobody reads its result, also if it was on its way."""
    scenario = softly_called()
    if returned:
        scenario.tool_ends("at nine")
    goes_on(scenario)
    assert [(each.call_id, each.revision) for each in cancelled(scenario)] == ([] if returned else [("call_0", 0)])
    scenario.tool_ends("at nine")
    assert ended(scenario) == []
    assert not any(outputs_read(scenario))
    assert all(turn.tools == () for turn in scenario.driver.records.values())
    assert scenario.driver.core.context.turns.look_ups == {}
    assert scenario.driver.illegal_moves == []


def test_the_next_revision_has_a_look_up_of_its_own() -> None:
    """The LLM may give both calls the same id; the result of the first comes too late and counts for nothing."""
    scenario = softly_called()
    scenario.speaks(2_000)
    scenario.pauses()
    scenario.transcribes("What is free on Monday?")
    scenario.is_silent(2_500)
    calls_now(scenario, '{"day": 1}')
    first, second = ran(scenario)
    assert first.call_id == second.call_id
    assert first.revision != second.revision
    scenario.tool_ends("today at nine", of=0)
    scenario.tool_ends("on Monday at ten", of=1)
    scenario.passes(3_000)
    assert outputs_read(scenario) == ["on Monday at ten"]


def test_a_speculative_reply_looks_up() -> None:
    """The answer to the result begins when the user's turn ends."""
    scenario = new_scenario(speculate=True, speculation=SpeculationLimits(ms_per_1000_tokens=0))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What is free?")
    scenario.is_silent(300)
    assert scenario.started(), "the reply is speculative"
    calls_now(scenario)
    assert len(ran(scenario)) == 1
    scenario.tool_ends("at nine")
    assert ended(scenario) == []
    scenario.is_silent(900)
    assert outputs_read(scenario) == ["at nine"]


def test_a_look_up_that_fails_says_so() -> None:
    scenario = softly_called()
    scenario.tool_ends('{"error": "No."}', "failed")
    scenario.is_silent(2_500)
    scenario.passes(3_000)
    (call,) = ended(scenario)
    assert call.failed
    scenario.answers("I do not know.")
    scenario.passes(5_000)
    assert record(scenario).tools[0].outcome == "failed"


def test_a_reply_that_was_cut_short_looks_nothing_up() -> None:
    """Its calls never leave."""
    scenario = new_scenario()
    scenario.utters()
    calls_now(scenario, reason="length")
    assert ran(scenario) == []


def test_two_calls_with_one_id_look_up_once() -> None:
    scenario = new_scenario(end_of_turn="soft", silence_ms=720)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What is free?")
    scenario.is_silent(720)
    scenario.model_requested()
    scenario.call()
    key = scenario._key(-1)
    scenario._post(e.CallGrew(*key, 1, "call_0", "look_up", "{}"))
    scenario.model_done("tool_calls")
    assert len(ran(scenario)) == 1


def test_the_users_next_turn_cancels_a_look_up_that_may_be_cancelled() -> None:
    """It started early, and its call has left."""
    scenario = new_scenario(replace(LOOK_UP, cancellable=True))
    scenario.utters()
    calls_now(scenario)
    scenario.passes(500)
    scenario.utters("How are you?")
    (command,) = cancelled(scenario)
    assert command.revision == 0
    assert scenario.driver.core.context.turns.look_ups == {}


def test_a_user_who_hangs_up_cancels_it() -> None:
    scenario = softly_called()
    scenario._post(e.UserLeft("gone"))
    assert len(cancelled(scenario)) == 1
