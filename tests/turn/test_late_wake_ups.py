"""The event loop was stalled, and one wake-up finds several timers run out: each takes effect once, and only if due."""

from __future__ import annotations

from typing import Any

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Decision, Evidence
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState

STALL_MS = 9_000


class IrrevocableLater:
    """A strategy whose end of turn is irrevocable 900 ms after the answer may be audible."""

    max_wait_ms = 1_000

    def __init__(self, silence_ms: int) -> None:
        self.silence_ms = silence_ms

    def decide(self, evidence: Evidence) -> Decision:
        return Decision(600, 600, 1_500)


def stalls(scenario: Scenario) -> None:
    """Every timer of the next seconds is late, and they all run out at once."""
    scenario.driver.late_ms = STALL_MS
    scenario.passes(STALL_MS + 2_000)
    scenario.driver.late_ms = 0


def test_a_reply_that_failed_is_not_started_again() -> None:
    """The turn's end becomes irrevocable in the wake-up that fails its reply: there is nothing left to answer."""
    strategies: Any = {**BUILT_IN, "mine": IrrevocableLater}
    scenario = Scenario(end_of_turn="mine", strategies=strategies, deadlines=Deadlines(first_output_ms=700))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.is_silent(600)
    stalls(scenario)
    scenario.passes(60_000)
    assert [(order.turn, order.revision) for order in scenario.started()] == [(1, 0)]
    assert scenario.ended() == [("failed", "llm_failed")]
    assert (scenario.driver.user_state(), scenario.driver.agent_state()) == (UserState.QUIET, AgentState.IDLE)


def test_two_timeouts_of_a_reply_end_it_once() -> None:
    scenario = Scenario(deadlines=Deadlines(first_output_ms=700, reply_ms=700))
    scenario.utters()
    scenario.passes(2_000)
    assert scenario.ended() == [("failed", "llm_failed")]
    assert scenario.outcomes() == [("failed", "llm: no output within 700 ms")]


def test_an_overlap_that_was_dropped_is_restored_once() -> None:
    """The overlap ends with the time of its verdict: the client raises the agent's volume once."""
    scenario = Scenario(ducks=True, deadlines=Deadlines(interruption_ms=500, utterance_ms=500))
    scenario.utters()
    scenario.answers(duration_ms=10_000)
    scenario.speaks(50)
    assert scenario.driver.agent_state() is AgentState.DUCKED
    scenario.passes(1_000)
    assert len(scenario.notified(a.AgentUnducked)) == 1
    assert scenario.driver.agent_state() is AgentState.SPEAKING


def test_a_turn_that_its_pause_ended_is_not_overlong() -> None:
    """The longest time to speak runs out with the pause: the user who goes on continues the turn."""
    scenario = Scenario(deadlines=Deadlines(utterance_ms=8_000))
    scenario.speaks(500)
    scenario.pauses()
    scenario.transcribes()
    stalls(scenario)
    assert scenario.driver.user_state() is UserState.ENDED
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("In Rome?")
    scenario.stops()
    assert {order.turn for order in scenario.started()} == {1}
