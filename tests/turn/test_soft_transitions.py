"""The rows of the transition table for an answer that began softly: each has a plot, and the state after its event."""

from __future__ import annotations

import pytest

from tests.turn.plots import Plot, answering_in_text, check_moves, line, then
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn.states import AgentState, Move


def stopped_softly(scenario: Scenario) -> None:
    """The user's voice has stopped an answer in its first second."""
    scenario.changes(end_of_turn="soft")
    scenario.utters()
    scenario.begins_to_answer(duration_ms=5_000)
    scenario.speaks(200)


SOUNDS: dict[type, tuple[Plot, Plot]] = {
    e.SpeechPaused: (then(stopped_softly, lambda s: s.goes_on(100, echoes=True)), lambda s: s.pauses()),
    e.TranscriptFinished: (then(stopped_softly, lambda s: s.pauses()), lambda s: s.transcribes("")),
    e.TranscriberFailed: (then(stopped_softly, lambda s: s.pauses()), lambda s: s.stt_fails()),
    e.TimePassed: (then(stopped_softly, lambda s: s.pauses()), lambda s: s.passes(1_000)),
    e.ClearRequested: (stopped_softly, lambda s: s.clears()),
    e.SettingsChanged: (stopped_softly, lambda s: s.changes(detection="none")),
}


@pytest.mark.parametrize("event", SOUNDS, ids=lambda event: event.__name__)
def test_a_sound_does_not_end_an_answer(event: type) -> None:
    """The user's side is quiet again, and the answer goes on."""
    check_sound(event)


def check_sound(event: type) -> Scenario:
    before, act = SOUNDS[event]
    scenario = check_moves(line(), stopped_softly, lambda s: None)
    assert Move(AgentState.SPEAKING, e.SpeechStarted, AgentState.READY) in scenario.driver.moves
    return check_moves(line(), before, act, Move(AgentState.READY, event, AgentState.SPEAKING))


def check_cancelled_calls() -> Scenario:
    """The client cancels a reply of function calls that wait for a certain end."""

    def before(scenario: Scenario) -> None:
        scenario.changes(end_of_turn="soft", silence_ms=2_000)
        scenario.utters()
        scenario.model_requested()
        scenario.call()

    return check_moves(
        line(), before, lambda s: s.cancels(), Move(AgentState.READY, e.CancelRequested, AgentState.IDLE)
    )


def test_the_client_cancels_calls_that_wait() -> None:
    assert check_cancelled_calls().ended() == [("cancelled", "client_cancelled")]


def check_cancelled_calls_over_a_reply() -> Scenario:
    """The same while the reply before it is not known to be played, since the client is away: that one stays."""

    def before(scenario: Scenario) -> None:
        scenario.changes(end_of_turn="soft", silence_ms=2_000)
        scenario.speaks()
        scenario.driver.at(scenario.driver.now_ms, e.ConnectionLost())
        answering_in_text(scenario)
        scenario.pauses()
        scenario.transcribes()
        scenario.is_silent(1_500)
        scenario.model_done()
        scenario.voice_done()
        scenario.model_requested()
        scenario.call()

    return check_moves(
        line(), before, lambda s: s.cancels(), Move(AgentState.READY, e.CancelRequested, AgentState.SPEAKING)
    )


def test_a_cancelled_reply_leaves_the_one_before_it_alone() -> None:
    check_cancelled_calls_over_a_reply()


def soft_start_scenarios() -> list[Scenario]:
    """Every plot of this file."""
    return [
        *(check_sound(event) for event in SOUNDS),
        check_cancelled_calls(),
        check_cancelled_calls_over_a_reply(),
    ]
