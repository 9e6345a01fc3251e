"""The last resort: it never has to step in (the property tests see to that), and if it had to, it would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.commands import ReportStuck
from voicepipe.turn.states import AgentState, UserState


def speaking(scenario: Scenario) -> None:
    scenario.speaks()


def request(scenario: Scenario) -> None:
    scenario.utters()


def talking(scenario: Scenario) -> None:
    scenario.creates()
    scenario.begins_to_answer()


def out_of_band(scenario: Scenario) -> None:
    scenario.creates(in_conversation=False)


@pytest.mark.parametrize("plot", [speaking, request, talking, out_of_band])
def test_what_nothing_would_end_is_ended(plot: Callable[[Scenario], None]) -> None:
    """Whatever lost the deadlines: the turn ends with a reason, it is counted, and the call goes on."""
    scenario = Scenario()
    plot(scenario)
    scenario.driver.core.context.timers.clear_all()
    scenario.truncates("nothing", 0)  # any event: it looks behind each
    scenario.passes(60_000)
    assert scenario.driver.core.n_stuck >= 1
    assert any(isinstance(command, ReportStuck) for command in scenario.driver.commands)
    assert scenario.driver.core.agent.state is AgentState.IDLE
    assert scenario.driver.core.user.state is UserState.QUIET
    assert scenario.driver.illegal_moves == []
    assert all(outcome is not None for outcome, _ in scenario.outcomes())
    scenario.utters("And now?")
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.outcomes()[-1] == ("completed", "")


def test_it_does_not_step_in_before_a_deadline() -> None:
    """A reply that makes no progress ends by its own."""
    scenario = Scenario()
    talking(scenario)
    scenario.passes(60_000)
    assert scenario.driver.core.n_stuck == 0
    assert scenario.outcomes()[0][0] == "failed"
