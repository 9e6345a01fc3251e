"""The rows of the transition table for speech over the agent's: each has a plot, and the state after its event."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.turn.plots import Plot, check_moves, line, played, talking, then
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import AgentState, Move, UserState


def ducked(scenario: Scenario) -> None:
    """The user speaks over a reply that is not complete."""
    talking(scenario)
    scenario.speaks(100)


def ducked_by_a_murmur(scenario: Scenario) -> None:
    """They have paused already."""
    ducked(scenario)
    scenario.pauses()


def restored(scenario: Scenario) -> None:
    """No sign of an interruption comes in time."""
    ducked(scenario)
    scenario.passes(350)


def ducked_late(scenario: Scenario) -> None:
    """The user speaks over the last audio of a reply that is complete."""
    played(scenario)
    scenario.passes(600)
    scenario.speaks(100)


def murmured_late(scenario: Scenario) -> None:
    """And it was an acknowledgement."""
    scenario.changes(reply=ReplySettings())
    played(scenario)
    scenario.passes(400)
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("Mhm.")


def sustained(scenario: Scenario) -> None:
    """The voice lasts."""
    scenario.goes_on(1_000, voiced_ms=100)


TAKES: dict[type, Plot] = {
    e.SpeechWentOn: sustained,
    e.TranscriptGrew: lambda s: s.guesses("And what of the sun?"),
    e.TranscriptFinished: lambda s: s.ends_it("And what of the sun?"),
    e.CommitRequested: lambda s: s.commits(),
}


@pytest.mark.parametrize("event", TAKES, ids=lambda event: event.__name__)
@pytest.mark.parametrize("before", [ducked, restored])
def test_overlap_becomes_an_interruption(event: type, before: Plot) -> None:
    """Their words say so, or that their voice lasts, or the client."""
    check_interruption(event, before)


def check_interruption(event: type, before: Plot) -> Scenario:
    source = AgentState.SPEAKING if event is e.SpeechWentOn or before is restored else AgentState.DUCKED
    moves = (
        (source, AgentState.INTERRUPTED),
        (AgentState.INTERRUPTED, AgentState.IDLE),
        (UserState.QUIET, UserState.SPEAKING),
    )
    return check_moves(line(), before, TAKES[event], *(Move(this, event, then) for this, then in moves))


def check_long_word() -> Scenario:
    """The reports of it come in a burst, within the time for a verdict."""
    act = Move(AgentState.DUCKED, e.SpeechWentOn, AgentState.INTERRUPTED)
    return check_moves(line(), ducked, lambda s: s.driver.at(s.driver.now_ms + 10, e.SpeechWentOn(1_200)), act)


def test_sustained_speech_interrupts() -> None:
    """Silence and speech are counted in samples."""
    check_long_word()


MURMURS: dict[type, Plot] = {
    e.TranscriptFinished: lambda s: s.transcribes("And the sun?"),
    e.TranscriptGrew: lambda s: s.guesses("And the sun?"),
    e.CommitRequested: lambda s: s.commits(),
}


def check_murmur(event: type) -> Scenario:
    return check_moves(line(), ducked_by_a_murmur, MURMURS[event], Move(UserState.SPEAKING, event, UserState.HOLDING))


@pytest.mark.parametrize("event", MURMURS, ids=lambda event: event.__name__)
def test_paused_overlap_becomes_a_turn(event: type) -> None:
    """Their turn begins with a pause."""
    check_murmur(event)


def lost_early(scenario: Scenario) -> None:
    """They have paused for as long as after a turn; their words are still to come."""
    scenario.changes(silence_ms=60)
    ducked_by_a_murmur(scenario)
    scenario.driver.at(scenario.driver.now_ms + 20, e.SilenceGrew(100))


def lost_earlier(scenario: Scenario) -> None:
    """The transcriber has broken."""
    scenario.changes(silence_ms=60)
    ducked_by_a_murmur(scenario)
    scenario.stt_fails()


GOES_ON: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (ducked, lambda s: s.passes(350)),
    e.TranscriptFinished: (ducked_by_a_murmur, lambda s: s.transcribes("Mhm.")),
    e.TranscriberFailed: (lost_early, lambda s: s.stt_fails()),
    e.SilenceGrew: (lost_earlier, lambda s: s.driver.at(s.driver.now_ms + 20, e.SilenceGrew(100))),
    e.ClearRequested: (ducked, lambda s: s.clears()),
    e.SettingsChanged: (ducked, lambda s: s.changes(interrupt_response=False)),
    e.UserLeft: (ducked, lambda s: s.leaves()),
}


@pytest.mark.parametrize("event", GOES_ON, ids=lambda event: event.__name__)
def test_overlap_is_dismissed(event: type) -> None:
    """The agent goes on."""
    check_moves(line(), *GOES_ON[event], Move(AgentState.DUCKED, event, AgentState.SPEAKING))


def over_the_end(scenario: Scenario) -> None:
    """The user speaks in the last moments of what plays."""
    scenario.passes(850)
    scenario.speaks(100)


PLAYED: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (ducked_late, lambda s: s.passes(250)),
    e.StageFailed: (ducked, lambda s: s.breaks("tts")),
    e.CancelRequested: (ducked, lambda s: s.cancels()),
    e.ItemTruncateRequested: (ducked_late, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (ducked_late, lambda s: s.reports(1_000)),
    e.ConnectionResumed: (ducked_late, lambda s: s.is_away(2_000)),
    e.ModelFinished: (
        then(talking, lambda s: s.voice_done(), over_the_end),
        lambda s: s.model_done(),
    ),
    e.SynthesisFinished: (
        then(talking, lambda s: s.model_done(), over_the_end),
        lambda s: s.voice_done(),
    ),
}


@pytest.mark.parametrize("event", PLAYED, ids=lambda event: event.__name__)
def test_the_agent_has_finished_before_it_was_known(event: type) -> None:
    """The agent is silent, and the user's speech takes the turn."""
    moves = Move(AgentState.DUCKED, event, AgentState.IDLE), Move(UserState.QUIET, event, UserState.SPEAKING)
    check_moves(line(), *PLAYED[event], *moves)


ANSWERED: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (murmured_late, lambda s: s.passes(600)),
    e.StageFailed: (lambda s: murmured(s), lambda s: s.breaks("tts")),
    e.CancelRequested: (lambda s: murmured(s), lambda s: s.cancels()),
    e.ItemTruncateRequested: (murmured_late, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (murmured_late, lambda s: s.reports(1_000)),
    e.ConnectionResumed: (murmured_late, lambda s: s.is_away(2_000)),
    e.ModelFinished: (lambda s: murmured(s, s.voice_done), lambda s: s.model_done()),
    e.SynthesisFinished: (lambda s: murmured(s, s.model_done), lambda s: s.voice_done()),
}


def murmured(scenario: Scenario, before: Callable[[], object] = lambda: None) -> None:
    """An acknowledgement as the sound so far ends; its silence is not over."""
    talking(scenario)
    before()
    scenario.passes(700)
    scenario.speaks(50)
    scenario.pauses()
    scenario.transcribes("Yes.")
    scenario.passes(50)


@pytest.mark.parametrize("event", ANSWERED, ids=lambda event: event.__name__)
def test_an_acknowledgement_at_the_end_is_an_answer(event: type) -> None:
    """It opens a turn, and work on that begins."""
    check_answer(event)


def check_answer(event: type) -> Scenario:
    moves = (
        Move(UserState.QUIET, event, UserState.SPEAKING),
        Move(UserState.SPEAKING, event, UserState.HOLDING),
        Move(AgentState.IDLE, event, AgentState.PREPARING),
    )
    return check_moves(line(), *ANSWERED[event], *moves)


def preparing_over_it(scenario: Scenario) -> None:
    """A reply plays on while the next is made, and the user speaks."""
    played_for_long(scenario)
    scenario.creates()
    scenario.speaks(100)


def ready_over_it(scenario: Scenario) -> None:
    """The same; the next has something to say, which is held until the verdict."""
    played_for_long(scenario)
    scenario.creates()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.speaks(100)
    scenario.sound()


def played_for_long(scenario: Scenario) -> None:
    scenario.creates()
    scenario.answers(duration_ms=60_000)


@pytest.mark.parametrize("before", [preparing_over_it, ready_over_it])
@pytest.mark.parametrize("event", [e.SpeechWentOn, e.TranscriptGrew], ids=lambda event: event.__name__)
def test_the_next_reply_yields_with_the_one_that_plays(before: Plot, event: type) -> None:
    """Both are put away."""
    check_both_machines(before, event)


def check_both_machines(before: Plot, event: type) -> Scenario:
    source = AgentState.PREPARING if before is preparing_over_it else AgentState.READY
    act = (
        TAKES[event]
        if event is e.TranscriptGrew
        else lambda s: s.driver.at(s.driver.now_ms + 10, e.SpeechWentOn(1_200))
    )
    return check_moves(line(), before, act, Move(source, event, AgentState.IDLE))


def requested_while_ducked(scenario: Scenario) -> None:
    """A reply plays on, the user speaks over it, and the client requests another."""
    played_for_long(scenario)
    scenario.speaks(100)
    scenario.creates()


def check_clear() -> Scenario:
    act = Move(AgentState.SPEAKING, e.ClearRequested, AgentState.PREPARING)
    return check_moves(line(), requested_while_ducked, lambda s: s.clears(), act)


def test_nothing_starts_during_an_undecided_overlap() -> None:
    """It begins as soon as that is known."""
    scenario = line()
    requested_while_ducked(scenario)
    assert scenario.driver.core.agent.state is AgentState.DUCKED
    assert len(scenario.started()) == 1
    check_clear()


def overlap_scenarios() -> list[Scenario]:
    """Every plot of this file."""
    return [
        *(check_interruption(event, before) for event, before in product(TAKES, (ducked, restored))),
        check_long_word(),
        *(check_murmur(event) for event in MURMURS),
        *(
            check_moves(line(), *plot, Move(AgentState.DUCKED, event, AgentState.SPEAKING))
            for event, plot in GOES_ON.items()
        ),
        *(
            check_moves(line(), *plot, Move(AgentState.DUCKED, event, AgentState.IDLE))
            for event, plot in PLAYED.items()
        ),
        *(check_answer(event) for event in ANSWERED),
        *(
            check_both_machines(*plot)
            for plot in product((preparing_over_it, ready_over_it), (e.SpeechWentOn, e.TranscriptGrew))
        ),
        check_clear(),
    ]
