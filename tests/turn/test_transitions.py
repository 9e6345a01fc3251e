"""Every row of the transition table has a plot: the state before, the event, the state after; no row lacks one.

The plots of the agent run twice: on a silent line, and over an earlier reply that is complete and plays on.
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.turn.plots import (
    Plot,
    answering,
    answering_in_text,
    check_moves,
    guessed,
    guessing,
    line,
    played,
    talking,
    then,
)
from tests.turn.test_overlap_transitions import overlap_scenarios
from tests.turn.test_soft_transitions import soft_start_scenarios
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.transitions import AGENT_TRANSITIONS, USER_TRANSITIONS
from voicepipe.turn import events as e
from voicepipe.turn.settings import Deadlines, ReplySettings, ServerTool, Tool
from voicepipe.turn.states import AgentState, Move, UserState

SHORT_DEADLINES = Deadlines(first_output_ms=1_000, reply_ms=1_500)
"""So short that a reply misses its deadlines while the user's pause still lasts."""


# --- the user -----------------------------------------------------------------------------------

PUT_AWAY: dict[type, Plot] = {
    e.ClearRequested: lambda s: s.clears(),
    e.CommitRequested: lambda s: s.commits(),
    e.SettingsChanged: lambda s: s.changes(detection="none"),
}
LEFT: dict[type, Plot] = {e.UserLeft: lambda s: s.leaves()}


def speech(scenario: Scenario) -> None:
    """The user speaks."""
    scenario.speaks()


def speech_said_to_be_over(scenario: Scenario) -> None:
    """The transcriber ends the utterance; the VAD has not reported a pause."""
    speech(scenario)
    scenario.ends_it()


def a_pause(scenario: Scenario) -> None:
    """The user has paused."""
    scenario.speaks()
    scenario.pauses()


def the_end(scenario: Scenario) -> None:
    """The turn is over; its words are still to come."""
    a_pause(scenario)
    scenario.stops()


USER_PLOTS: list[tuple[Plot, Plot, UserState, type, UserState]] = [
    (lambda s: None, speech, UserState.QUIET, e.SpeechStarted, UserState.SPEAKING),
    (speech, lambda s: s.pauses(), UserState.SPEAKING, e.SpeechPaused, UserState.HOLDING),
    (speech, lambda s: s.passes(9_000), UserState.SPEAKING, e.TimePassed, UserState.ENDED),
    (speech, lambda s: s.ends_it(), UserState.SPEAKING, e.TranscriptFinished, UserState.HOLDING),
    (speech_said_to_be_over, lambda s: s.passes(400), UserState.HOLDING, e.TimePassed, UserState.SPEAKING),
    (a_pause, lambda s: s.speaks(), UserState.HOLDING, e.SpeechStarted, UserState.SPEAKING),
    (a_pause, lambda s: s.stops(), UserState.HOLDING, e.SilenceGrew, UserState.ENDED),
    (a_pause, lambda s: s.passes(3_000), UserState.HOLDING, e.TimePassed, UserState.ENDED),
    *((speech, act, UserState.SPEAKING, event, UserState.QUIET) for event, act in (PUT_AWAY | LEFT).items()),
    *((a_pause, act, UserState.HOLDING, event, UserState.QUIET) for event, act in (PUT_AWAY | LEFT).items()),
    (the_end, lambda s: s.speaks(), UserState.ENDED, e.SpeechStarted, UserState.SPEAKING),
    (the_end, lambda s: s.transcribes(""), UserState.ENDED, e.TranscriptFinished, UserState.QUIET),
    (the_end, lambda s: s.stt_fails(), UserState.ENDED, e.TranscriberFailed, UserState.QUIET),
    (the_end, lambda s: s.passes(6_000), UserState.ENDED, e.TimePassed, UserState.QUIET),
    (the_end, lambda s: s.leaves(), UserState.ENDED, e.UserLeft, UserState.QUIET),
    (guessed, lambda s: s.stops(), UserState.ENDED, e.SilenceGrew, UserState.QUIET),
    (answering, lambda s: s.breaks(), UserState.ENDED, e.StageFailed, UserState.QUIET),
    (answering, lambda s: s.cancels(), UserState.ENDED, e.CancelRequested, UserState.QUIET),
]


@pytest.mark.parametrize("plot", USER_PLOTS, ids=lambda p: f"{p[2].value}-{p[3].__name__}-{p[4].value}")
def test_user_transitions(plot: tuple[Plot, Plot, UserState, type, UserState]) -> None:
    """From each state, by each event that matters there."""
    before, act, source, event, target = plot
    check_moves(line(), before, act, Move(source, event, target))


def test_speech_without_interruption_starts_a_turn() -> None:
    """Their last one is answered as it is."""
    scenario = line()
    scenario.changes(interrupt_response=False)
    check_moves(scenario, answering, lambda s: s.speaks(), Move(UserState.ENDED, e.SpeechStarted, UserState.QUIET))
    assert scenario.driver.core.user.state is UserState.SPEAKING
    assert scenario.ended() == []


# --- the reply's output ---------------------------------------------------------------------------


def says_a_word_and_calls(scenario: Scenario) -> None:
    """Text that made no clause, then a call: only its end shows that there is nothing to speak."""
    scenario.model_requested()
    scenario.token("Well")
    scenario.call()


OUTPUT: dict[type, tuple[Plot, Plot]] = {
    e.SoundArrived: (lambda s: (s.model_requested(), s.token(), s.clause()), lambda s: s.sound()),
    e.CallGrew: (lambda s: s.model_requested(), lambda s: s.call()),
    e.ModelFinished: (says_a_word_and_calls, lambda s: s.model_done("tool_calls")),
    e.SynthesisFinished: (lambda s: (s.model_requested(), s.token(), s.model_done()), lambda s: s.voice_done()),
    e.ModelTextReceived: (lambda s: s.model_requested(), lambda s: s.token()),
}


@pytest.mark.parametrize("event", OUTPUT, ids=lambda event: event.__name__)
@pytest.mark.parametrize("playing", [False, True])
def test_the_first_output_opens_the_gate_of_a_turn_that_is_over(event: type, playing: bool) -> None:
    """And with it the turn can't be revised any more."""
    check_output(event, playing=playing)


def check_output(event: type, *, playing: bool = False) -> Scenario:
    before, act = OUTPUT[event]
    scenario = line(playing=playing)
    if event is e.ModelTextReceived:  # a reply in text is ready with its first words
        scenario.changes(reply=text_only())
    scenario.utters()
    before(scenario)
    moves: list[tuple[UserState | AgentState, UserState | AgentState]] = [
        (AgentState.PREPARING, AgentState.READY),
        (AgentState.READY, AgentState.SPEAKING),
        (UserState.ENDED, UserState.QUIET),
    ]
    return check_moves(scenario, lambda s: None, act, *(Move(source, event, target) for source, target in moves))


def text_only() -> ReplySettings:
    """A reply without sound."""
    return ReplySettings(audible=False)


@pytest.mark.parametrize("playing", [False, True])
def test_an_answer_that_was_guessed_waits_for_the_end_of_the_turn(playing: bool) -> None:
    """The end of the turn is noticed by the VAD, or by the clock when the VAD reports nothing."""
    for event, act in ENDS_THE_PAUSE.items():
        check_moves(line(playing=playing), guessed, act, Move(AgentState.READY, event, AgentState.SPEAKING))


ENDS_THE_PAUSE: dict[type, Plot] = {e.SilenceGrew: lambda s: s.stops(), e.TimePassed: lambda s: s.passes(2_500)}

# --- a reply is put away --------------------------------------------------------------------------

NO_USE: dict[type, Plot] = {
    **PUT_AWAY,
    e.SpeechStarted: lambda s: s.speaks(),
    e.TranscriptFinished: lambda s: s.transcribes("What time is it in Paris?"),
    e.TranscriberFailed: lambda s: s.stt_fails(),
    e.ReplyRequested: lambda s: s.creates(),
    e.StageFailed: lambda s: s.breaks(),
    e.TimePassed: lambda s: s.passes(1_450),
}


@pytest.mark.parametrize("event", [*NO_USE, e.UserLeft], ids=lambda event: event.__name__)
@pytest.mark.parametrize("guess", [guessing, guessed])
@pytest.mark.parametrize("playing", [False, True])
def test_a_guess_that_is_no_use_is_put_away(event: type, guess: Plot, playing: bool) -> None:
    """The client gets no notice of the reply; audio that still plays goes on playing."""
    scenario = check_useless_reply(event, guess, playing=playing)
    assert scenario.ended() == [("completed", "")] * playing


def check_useless_reply(event: type, guess: Plot, *, playing: bool = False) -> Scenario:
    source = AgentState.PREPARING if guess is guessing else AgentState.READY
    target = AgentState.SPEAKING if playing and event is not e.UserLeft else AgentState.IDLE
    before = ON_ITS_WORD[guess] if event is e.TranscriberFailed else guess
    return check_moves(
        line(playing=playing, deadlines=SHORT_DEADLINES), before, (NO_USE | LEFT)[event], Move(source, event, target)
    )


def guessed_on_its_word(scenario: Scenario) -> None:
    """The answer, a text, is ready soon; only the transcriber has said that the user stopped."""
    scenario.changes(reply=text_only())
    speech_said_to_be_over(scenario)
    scenario.model_requested()
    scenario.token()


ON_ITS_WORD: dict[Plot, Plot] = {guessing: speech_said_to_be_over, guessed: guessed_on_its_word}
"""Words that the VAD's pause requested are known; a transcriber that breaks can only have ended the utterance
itself.
"""


@pytest.mark.parametrize("playing", [False, True])
def test_client_cancels_an_unplayed_reply(playing: bool) -> None:
    """The turn is dropped."""
    scenario = check_cancel(playing=playing)
    assert scenario.outcomes()[-1] == ("abandoned", "client_cancelled")
    assert scenario.ended()[-1] == ("cancelled", "client_cancelled")


def check_cancel(*, playing: bool = False) -> Scenario:
    target = AgentState.SPEAKING if playing else AgentState.IDLE
    return check_moves(
        line(playing=playing), answering, lambda s: s.cancels(), Move(AgentState.PREPARING, e.CancelRequested, target)
    )


# --- a reply is over ------------------------------------------------------------------------------


def only_called(scenario: Scenario) -> None:
    """A guess that is complete, and has nothing to play."""
    guessing(scenario)
    scenario.model_requested()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()


OVER: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (played, lambda s: s.passes(2_000)),
    e.StageFailed: (talking, lambda s: s.breaks("tts")),
    e.CancelRequested: (talking, lambda s: s.cancels()),
    e.UserLeft: (talking, lambda s: s.leaves()),
    e.ItemTruncateRequested: (played, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (played, lambda s: s.reports(1_000)),
    e.ConnectionResumed: (played, lambda s: s.is_away(2_000)),
    e.ModelFinished: (
        then(answering_in_text, lambda s: (s.token(), s.sent(0), s.voice_done())),
        lambda s: s.model_done(),
    ),
    e.SynthesisFinished: (
        then(answering_in_text, lambda s: (s.token(), s.sent(0), s.model_done())),
        lambda s: s.voice_done(),
    ),
    e.OutputSent: (
        then(answering_in_text, lambda s: (s.token(), s.model_done(), s.voice_done())),
        lambda s: s.sent(0),
    ),
    e.SilenceGrew: (only_called, lambda s: s.stops()),
}


@pytest.mark.parametrize("event", OVER, ids=lambda event: event.__name__)
def test_a_reply_is_over(event: type) -> None:
    """It was played, or broke, or was cut; then the line is silent."""
    scenario = check_moves(line(), *OVER[event], Move(AgentState.SPEAKING, event, AgentState.IDLE))
    assert scenario.driver.agent_state() is AgentState.IDLE
    scenario.leaves()  # what awaits the result of a call is over now
    assert scenario.outcomes()[-1][0] is not None


def test_immediate_mode_interrupts_at_any_speech() -> None:
    """The reply yields, and is put away at once."""
    check_immediate_interruption()


def check_immediate_interruption() -> Scenario:
    steps = (AgentState.SPEAKING, AgentState.INTERRUPTED), (AgentState.INTERRUPTED, AgentState.IDLE)
    scenario = line()
    scenario.changes(interruption="immediate")
    return check_moves(scenario, talking, speech, *(Move(source, e.SpeechStarted, target) for source, target in steps))


# --- a reply begins -------------------------------------------------------------------------------


def unwanted(scenario: Scenario) -> None:
    """A pause with words, while the session wants no replies."""
    scenario.changes(create_response=False)
    a_pause(scenario)
    scenario.transcribes()


def unguessed(scenario: Scenario) -> None:
    """A pause with words, and no guess made of them: one broke."""
    guessing(scenario)
    scenario.breaks()


def unscored(scenario: Scenario) -> None:
    """A pause with words, that no model has judged yet."""
    scenario.changes(end_of_turn="scored")
    guessing(scenario)


def one_waits(scenario: Scenario) -> None:
    """A reply in text is being made; the user has said something that is answered after it."""
    scenario.changes(interrupt_response=False)
    answering_in_text(scenario)
    scenario.token()
    scenario.sent(0)
    scenario.utters("And the sun?")


def requested_before_the_transcript(scenario: Scenario) -> None:
    """Two pieces of speech were committed and a reply requested; the words of the second are still to come."""
    scenario.changes(detection="none")
    scenario.commits()
    scenario.creates()
    scenario.commits()
    scenario.transcribes(of=-3)


BEGINS: dict[type, tuple[Plot, Plot]] = {
    e.EndpointScored: (unscored, lambda s: s.is_scored("p", 0.9)),
    e.ReplyRequested: (lambda s: None, lambda s: s.creates()),
    e.SilenceGrew: (unguessed, lambda s: s.stops()),
    e.TimePassed: (unguessed, lambda s: s.passes(3_000)),
    e.TranscriptFinished: (the_end, lambda s: s.transcribes()),
    e.SettingsChanged: (unwanted, lambda s: s.changes(create_response=True)),
    e.TranscriberFailed: (requested_before_the_transcript, lambda s: s.stt_fails(of=-2)),
    e.StageFailed: (one_waits, lambda s: s.breaks()),
    e.CancelRequested: (one_waits, lambda s: s.cancels()),
    e.ModelFinished: (then(one_waits, lambda s: s.voice_done()), lambda s: s.model_done()),
    e.SynthesisFinished: (then(one_waits, lambda s: s.model_done()), lambda s: s.voice_done()),
}


@pytest.mark.parametrize("event", BEGINS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("playing", [False, True])
def test_a_reply_begins(event: type, playing: bool) -> None:
    """Its turn is over and its words are known, or what was in the way is gone."""
    check_beginning(event, playing=playing)


def check_beginning(event: type, *, playing: bool = False) -> Scenario:
    source = AgentState.SPEAKING if playing else AgentState.IDLE
    scenario = line(playing=playing)
    before, act = BEGINS[event]
    before(scenario)
    n_started = len(scenario.started())
    check_moves(scenario, lambda s: None, act, Move(source, event, AgentState.PREPARING))
    assert len(scenario.started()) == n_started + 1
    return scenario


# --- all transitions ------------------------------------------------------------------------------


def all_scenarios() -> list[Scenario]:
    """Every plot of this file, of the overlaps and of the answers that began softly."""
    both = (False, True)
    return [
        *(check_moves(line(), before, act, Move(was, event, now)) for before, act, was, event, now in USER_PLOTS),
        *(check_output(event, playing=playing) for event, playing in product(OUTPUT, both)),
        *(
            check_moves(line(), guessed, act, Move(AgentState.READY, event, AgentState.SPEAKING))
            for event, act in ENDS_THE_PAUSE.items()
        ),
        *(
            check_useless_reply(event, guess, playing=playing)
            for event, guess, playing in product([*NO_USE, e.UserLeft], (guessing, guessed), both)
        ),
        *(check_cancel(playing=playing) for playing in both),
        *(
            check_moves(line(), *plot, Move(AgentState.SPEAKING, event, AgentState.IDLE))
            for event, plot in OVER.items()
        ),
        check_immediate_interruption(),
        *overlap_scenarios(),
        *soft_start_scenarios(),
        *(check_beginning(event, playing=playing) for event, playing in product(BEGINS, both)),
        postponed_turn(),
        prompt(),
        greeting(),
        tool(),
    ]


def postponed_turn() -> Scenario:
    scenario = line()
    scenario.changes(interrupt_response=False)
    return check_moves(scenario, answering, speech, Move(UserState.ENDED, e.SpeechStarted, UserState.QUIET))


def prompt() -> Scenario:
    scenario = Scenario(idle_timeout_ms=4_000)
    act = Move(AgentState.IDLE, e.SilenceCommitted, AgentState.PREPARING)
    return check_moves(scenario, then(played, lambda s: s.passes(6_000)), lambda s: s.goes_silent(20_000), act)


def greeting() -> Scenario:
    act = Move(AgentState.IDLE, e.GreetingDue, AgentState.PREPARING)
    return check_moves(Scenario(), lambda s: None, lambda s: s.is_greeted(), act)


def tool() -> Scenario:
    function = ServerTool(tool=Tool("look_up", "", "{}"), label="agent")
    scenario = Scenario(reply=ReplySettings(audible=False, server_tools=(function,)))

    def calls(scenario: Scenario) -> None:
        scenario.creates(audible=False, server_tools=(function,))
        scenario.model_requested()
        scenario.call()
        scenario.model_done("tool_calls")
        scenario.voice_done()

    return check_moves(
        scenario, calls, lambda s: s.tool_ends(), Move(AgentState.IDLE, e.ToolFinished, AgentState.PREPARING)
    )


def test_every_transition_is_covered() -> None:
    """A row without a plot is one that can't happen, or one that the tests forgot."""
    covered = {move for scenario in all_scenarios() for move in scenario.driver.moves}
    table = USER_TRANSITIONS.items() | AGENT_TRANSITIONS.items()
    rows = {Move(source, event, target) for (source, event), targets in table for target in targets}
    assert {str(row) for row in rows - covered} == set()
    assert {str(move) for move in covered - rows} == set()
