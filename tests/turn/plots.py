"""Plots for tests of the transition table: a line, how a reply comes to be where a plot needs it, and the check."""

from __future__ import annotations

from collections.abc import Callable

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategies import Silence
from voicepipe.turn.endpointing.strategy import Decision, Evidence
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Move

Plot = Callable[[Scenario], object]

LONG_DEADLINES = Deadlines(utterance_ms=8_000)


class OnceScored(Silence):
    """Work begins when a model has judged the pause."""

    def decide(self, evidence: Evidence) -> Decision:
        wait_ms = self.max_wait_ms
        return Decision(wait_ms if evidence.score("p") is None else 0, wait_ms)


def line(*, playing: bool = False, deadlines: Deadlines = LONG_DEADLINES) -> Scenario:
    """A user on the line; perhaps an earlier reply still plays, which their voice does not interrupt."""
    scenario = Scenario(
        speculate=True,
        deadlines=deadlines,
        interrupt_response=not playing,
        strategies={**BUILT_IN, "scored": OnceScored},
    )
    if playing:
        scenario.utters("How far is the moon?")
        scenario.answers("It is far away.", duration_ms=60_000)
    return scenario


def then(*plots: Plot) -> Plot:
    """Return the plot that runs these one after another."""

    def covered(scenario: Scenario) -> None:
        for plot in plots:
            plot(scenario)

    return covered


def guessing(scenario: Scenario) -> None:
    """A pause, and its words: the LLM request goes out before the turn is over."""
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()


def guessed(scenario: Scenario) -> None:
    """The answer is ready before the turn is over."""
    guessing(scenario)
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound()


def answering(scenario: Scenario) -> None:
    """The turn is over, and the LLM request went out."""
    scenario.utters()


def answering_in_text(scenario: Scenario) -> None:
    """The same, for a reply without sound."""
    scenario.creates(audible=False)
    scenario.model_requested()


def talking(scenario: Scenario) -> None:
    """The reply is on its way out and not complete."""
    scenario.creates()
    scenario.begins_to_answer()


def played(scenario: Scenario) -> None:
    """A spoken reply is complete and still playing."""
    scenario.creates()
    scenario.answers()


def check_moves(scenario: Scenario, before: Plot, act: Plot, *moves: Move) -> Scenario:
    """Run a plot; check that its act makes these moves, and that all of them are allowed."""
    before(scenario)
    n_before = len(scenario.driver.moves)
    act(scenario)
    assert set(moves) <= set(scenario.driver.moves[n_before:])
    assert scenario.driver.illegal_moves == []
    return scenario
