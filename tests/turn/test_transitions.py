"""Every row of the transition table has a plot: the state before, the event, the state after; no row lacks one.

The plots of the agent run twice: on a silent line, and over an earlier reply that is complete and plays on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.testing.transitions import AGENT_TRANSITIONS, USER_TRANSITIONS
from voicepipe.turn import events as e
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategies import Silence
from voicepipe.turn.endpointing.strategy import Decision, Evidence
from voicepipe.turn.settings import Deadlines, ReplySettings, ServerTool, Tool
from voicepipe.turn.states import AgentState, Move, UserState

Plot = Callable[[Scenario], object]

LONG_DEADLINES = Deadlines(utterance_ms=8_000)
SHORT_DEADLINES = Deadlines(first_output_ms=1_000, reply_ms=1_500)
"""So short that a reply misses its deadlines while the user's pause still lasts."""


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


# --- how a reply comes to be where the plots need it ----------------------------------------------


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


def played(scenario: Scenario) -> None:
    """A spoken reply is complete and still playing."""
    scenario.creates()
    scenario.answers()


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


# --- a voice over the agent's ---------------------------------------------------------------------


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


def broken_off(scenario: Scenario) -> None:
    """The audio so far was played, and the rest is late; the user speaks meanwhile."""
    talking(scenario)
    scenario.passes(900)
    scenario.speaks(100)


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


# --- an answer that began softly ------------------------------------------------------------------


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


def check_moves(scenario: Scenario, before: Plot, act: Plot, *moves: Move) -> Scenario:
    """Run a plot; check that its act makes these moves, and that all of them are allowed."""
    before(scenario)
    n_before = len(scenario.driver.moves)
    act(scenario)
    assert set(moves) <= set(scenario.driver.moves[n_before:])
    assert scenario.driver.illegal_moves == []
    return scenario


def all_scenarios() -> list[Scenario]:
    """Every plot of this file."""
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
        *(check_sound(event) for event in SOUNDS),
        check_cancelled_calls(),
        check_cancelled_calls_over_a_reply(),
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
