"""Calls that the client must approve before the server runs them, in the core."""

from __future__ import annotations

import pytest

from voicepipe.session.messages import UNAPPROVED, messages_of
from voicepipe.testing.attribution import problems
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import RunTool
from voicepipe.turn.context import MAX_APPROVALS
from voicepipe.turn.conversation import ApprovalAnswer, FunctionCall
from voicepipe.turn.server_tools import REFUSED
from voicepipe.turn.settings import ReplySettings, ServerTool, Tool

REQUEST = "item_s_0002_call0"
"""The item that asks for approval of the first call."""


def new_scenario(*, side_effects: bool = True) -> Scenario:
    """The user asks, and the LLM calls a function that needs approval."""
    tool = ServerTool(tool=Tool("look_up", "", "{}"), label="clinic", needs_approval=True, side_effects=side_effects)
    scenario = Scenario(reply=ReplySettings(server_tools=(tool,)))
    scenario.utters()
    calls(scenario)
    return scenario


def calls(scenario: Scenario, n: int = 1) -> None:
    scenario.model_requested()
    for index in range(n):
        scenario.call(index=index)
    scenario.model_done("tool_calls")
    scenario.voice_done()


def answer(scenario: Scenario, *, approve: bool = True, reason: str = "", to: str = REQUEST) -> None:
    scenario.creates_item(ApprovalAnswer("", to, approve, reason))


def ran(scenario: Scenario) -> int:
    return sum(isinstance(command, RunTool) for command in scenario.driver.commands)


def read_by_llm(scenario: Scenario) -> list[str]:
    """Return the results that the LLM reads for the latest reply."""
    return [message.output for message in messages_of(scenario.started()[-1].items) if hasattr(message, "output")]


def test_a_call_runs_once_it_is_approved() -> None:
    """As an item of its own, which names the one that asked; its time is the client's, who was waited for."""
    scenario = new_scenario()
    scenario.passes(3_000)
    assert ran(scenario) == 0
    answer(scenario)
    assert ran(scenario) == 1
    scenario.tool_ends("sunny")
    assert read_by_llm(scenario) == ["sunny"]
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    (approved,) = scenario.notified(a.ToolApproved)
    (ended,) = scenario.notified(a.ToolEnded)
    assert approved.call.approval_request_id == REQUEST
    assert (ended.call.id, ended.call.output) == (approved.call.id, "sunny")
    (turn,) = scenario.driver.records.values()
    assert (turn.outcome, turn.agent_text) == ("completed", "It is sunny.")
    assert {span.stage: span for span in turn.stages}["tool"].owner == "client"
    assert problems(turn) == []
    assert scenario.driver.illegal_moves == []


def test_a_call_that_is_refused_never_runs() -> None:
    """The LLM reads why, and says so."""
    scenario = new_scenario()
    answer(scenario, approve=False, reason="Too late.")
    scenario.passes(0)
    assert ran(scenario) == 0
    assert read_by_llm(scenario) == ["Not run: the user has refused it. Too late."]
    scenario.answers()
    scenario.passes(5_000)
    (turn,) = scenario.driver.records.values()
    assert [call.outcome for call in turn.tools] == ["cancelled"]


def test_an_approval_counts_once_and_only_for_a_call_that_waits() -> None:
    scenario = new_scenario()
    answer(scenario, to="item_s_0001")
    answer(scenario)
    answer(scenario)
    refused = scenario.notified(a.Refused)
    assert [what.field for what in refused] == ["item.approval_request_id"] * 2
    assert ran(scenario) == 1


def test_one_of_two_calls_is_approved() -> None:
    """The answer waits for both decisions. The same call runs once, whichever is approved first."""
    scenario = new_scenario()
    answer(scenario)
    scenario.tool_ends()
    scenario.answers()
    scenario.passes(5_000)
    scenario.utters("Again.")
    calls(scenario, 2)
    first, second = (item.id for item in scenario.driver.core.context.conversation.items[-2:])
    answer(scenario, to=second)
    scenario.tool_ends("once")
    assert ran(scenario) == 2
    answer(scenario, to=first)
    assert ran(scenario) == 2
    assert read_by_llm(scenario)[-2:] == ["once", "once"]


@pytest.mark.parametrize("approve", [True, False])
def test_the_user_goes_on_meanwhile(approve: bool) -> None:
    """The next answer reads that nothing has run. A later decision is told when both sides are silent."""
    scenario = new_scenario()
    scenario.utters("What about Monday?")
    assert read_by_llm(scenario) == [UNAPPROVED]
    scenario.answers("Fine.")
    scenario.passes(5_000)
    answer(scenario, approve=approve)
    if approve:
        scenario.tool_ends("sunny")
    scenario.passes(0)
    assert ran(scenario) == approve
    last = [item for item in scenario.started()[-1].items if isinstance(item, FunctionCall)][-1]
    assert (last.output or "").startswith("sunny" if approve else REFUSED)
    assert len(scenario.started()) == 3


def test_a_request_that_the_client_deletes_can_not_be_approved() -> None:
    scenario = new_scenario()
    scenario.deletes_item(REQUEST)
    answer(scenario)
    assert [what.field for what in scenario.notified(a.Refused)] == ["item.approval_request_id"]
    assert ran(scenario) == 0


def test_only_the_latest_calls_wait() -> None:
    scenario = new_scenario()
    for _ in range(MAX_APPROVALS):
        scenario.utters()
        calls(scenario)
    answer(scenario)
    assert [what.field for what in scenario.notified(a.Refused)] == ["item.approval_request_id"]
    assert len(scenario.driver.core.context.turns.approvals) == MAX_APPROVALS
