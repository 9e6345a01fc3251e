"""Every row of the law, told: who was where, what happened, where that led; and no row that nobody can tell.

The plots of the agent are told twice: on a silent line, and over an earlier reply that is complete and plays on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from voicepipe.testing.story import Story
from voicepipe.turn import events as e
from voicepipe.turn import states
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.silence import Silence
from voicepipe.turn.endpointing.strategy import Decision, Evidence
from voicepipe.turn.settings import Deadlines, ReplySettings
from voicepipe.turn.states import Agent, Caller, Move

Plot = Callable[[Story], object]

PATIENT = Deadlines(utterance_ms=8_000)
HASTY = Deadlines(first_output_ms=1_000, reply_ms=1_500)
"""So short that a reply misses its deadlines while the caller's pause still lasts."""


class OnceScored(Silence):
    """Work begins when a model has judged the pause."""

    def decide(self, evidence: Evidence) -> Decision:
        wait_ms = self.longest_ms
        return Decision(wait_ms if evidence.score("p") is None else 0, wait_ms)


def line(*, playing: bool = False, deadlines: Deadlines = PATIENT) -> Story:
    """A caller on the line; perhaps an earlier reply still plays, which their voice does not interrupt."""
    story = Story(
        speculate=True,
        deadlines=deadlines,
        interrupt_response=not playing,
        strategies={**BUILT_IN, "scored": OnceScored},
    )
    if playing:
        story.says("How far is the moon?")
        story.answers("It is far away.", duration_ms=60_000)
    return story


def then(*plots: Plot) -> Plot:
    """Return the plot that tells these one after another."""

    def told(story: Story) -> None:
        for plot in plots:
            plot(story)

    return told


# --- how a reply comes to be where the plots need it ----------------------------------------------


def guessing(story: Story) -> None:
    """A pause, and its words: the model is asked before the turn is over."""
    story.speaks()
    story.pauses()
    story.hears()


def guessed(story: Story) -> None:
    """The answer is ready before the turn is over."""
    guessing(story)
    story.model_asked()
    story.token()
    story.clause()
    story.sound()


def answering(story: Story) -> None:
    """The turn is over, and the model was asked."""
    story.says()


def answering_in_text(story: Story) -> None:
    """The same, for a reply without sound."""
    story.creates(audible=False)
    story.model_asked()


def talking(story: Story) -> None:
    """The reply is on its way out and not complete."""
    story.creates()
    story.begins_to_answer()


def one_waits(story: Story) -> None:
    """A reply in text is being made; the caller has said something that is answered after it."""
    story.changes(interrupt_response=False)
    answering_in_text(story)
    story.token()
    story.sent(0)
    story.says("And the sun?")


def asked_before_the_words(story: Story) -> None:
    """Two pieces of speech were committed and a reply asked for; the words of the second are still to come."""
    story.changes(detection="none")
    story.commits()
    story.creates()
    story.commits()
    story.hears(of=-3)


# --- the caller -----------------------------------------------------------------------------------

PUT_AWAY: dict[type, Plot] = {
    e.ClearRequested: lambda s: s.clears(),
    e.CommitRequested: lambda s: s.commits(),
    e.SettingsChanged: lambda s: s.changes(detection="none"),
}
LEFT: dict[type, Plot] = {e.CallerLeft: lambda s: s.leaves()}


def speech(story: Story) -> None:
    """The caller speaks."""
    story.speaks()


def speech_said_to_be_over(story: Story) -> None:
    """The transcriber ends the utterance; the ear has not heard a pause."""
    speech(story)
    story.ends_it()


def a_pause(story: Story) -> None:
    """The caller has paused."""
    story.speaks()
    story.pauses()


def the_end(story: Story) -> None:
    """The turn is over; its words are still to come."""
    a_pause(story)
    story.stops()


CALLER_PLOTS: list[tuple[Plot, Plot, Caller, type, Caller]] = [
    (lambda s: None, speech, Caller.QUIET, e.SpeechStarted, Caller.SPEAKING),
    (speech, lambda s: s.pauses(), Caller.SPEAKING, e.SpeechPaused, Caller.HOLDING),
    (speech, lambda s: s.passes(9_000), Caller.SPEAKING, e.TimePassed, Caller.ENDED),
    (speech, lambda s: s.ends_it(), Caller.SPEAKING, e.TranscriptFinished, Caller.HOLDING),
    (speech_said_to_be_over, lambda s: s.passes(400), Caller.HOLDING, e.TimePassed, Caller.SPEAKING),
    (a_pause, lambda s: s.speaks(), Caller.HOLDING, e.SpeechStarted, Caller.SPEAKING),
    (a_pause, lambda s: s.stops(), Caller.HOLDING, e.SilenceGrew, Caller.ENDED),
    (a_pause, lambda s: s.passes(3_000), Caller.HOLDING, e.TimePassed, Caller.ENDED),
    *((speech, act, Caller.SPEAKING, fact, Caller.QUIET) for fact, act in (PUT_AWAY | LEFT).items()),
    *((a_pause, act, Caller.HOLDING, fact, Caller.QUIET) for fact, act in (PUT_AWAY | LEFT).items()),
    (the_end, lambda s: s.speaks(), Caller.ENDED, e.SpeechStarted, Caller.SPEAKING),
    (the_end, lambda s: s.hears(""), Caller.ENDED, e.TranscriptFinished, Caller.QUIET),
    (the_end, lambda s: s.goes_deaf(), Caller.ENDED, e.TranscriberFailed, Caller.QUIET),
    (the_end, lambda s: s.passes(6_000), Caller.ENDED, e.TimePassed, Caller.QUIET),
    (the_end, lambda s: s.leaves(), Caller.ENDED, e.CallerLeft, Caller.QUIET),
    (guessed, lambda s: s.stops(), Caller.ENDED, e.SilenceGrew, Caller.QUIET),
    (answering, lambda s: s.breaks(), Caller.ENDED, e.StageFailed, Caller.QUIET),
    (answering, lambda s: s.cancels(), Caller.ENDED, e.CancelRequested, Caller.QUIET),
]


@pytest.mark.parametrize("plot", CALLER_PLOTS, ids=lambda p: f"{p[2].value}-{p[3].__name__}-{p[4].value}")
def test_where_the_caller_goes(plot: tuple[Plot, Plot, Caller, type, Caller]) -> None:
    """From each state, by each fact that matters there."""
    before, act, source, fact, target = plot
    tell(line(), before, act, Move(source, fact, target))


def test_a_caller_who_may_not_interrupt_begins_a_new_turn() -> None:
    """Their last one is answered as it is."""
    story = line()
    story.changes(interrupt_response=False)
    tell(story, answering, lambda s: s.speaks(), Move(Caller.ENDED, e.SpeechStarted, Caller.QUIET))
    assert story.book.core.caller.state is Caller.SPEAKING
    assert story.ended() == []


# --- the reply's output ---------------------------------------------------------------------------


def says_a_word_and_calls(story: Story) -> None:
    """Text that no clause was made of, then a call: only the end of it tells that there is nothing to speak."""
    story.model_asked()
    story.token("Well")
    story.call()


OUTPUT: dict[type, tuple[Plot, Plot]] = {
    e.SoundArrived: (lambda s: (s.model_asked(), s.token(), s.clause()), lambda s: s.sound()),
    e.CallGrew: (lambda s: s.model_asked(), lambda s: s.call()),
    e.ModelFinished: (says_a_word_and_calls, lambda s: s.model_done("tool_calls")),
    e.VoiceFinished: (lambda s: (s.model_asked(), s.token(), s.model_done()), lambda s: s.voice_done()),
    e.ModelSpoke: (lambda s: s.model_asked(), lambda s: s.token()),
}


@pytest.mark.parametrize("fact", OUTPUT, ids=lambda fact: fact.__name__)
@pytest.mark.parametrize("playing", [False, True])
def test_the_first_output_opens_the_gate_of_a_turn_that_is_over(fact: type, playing: bool) -> None:
    """And with it the turn can't be revised any more."""
    tell_of_output(fact, playing=playing)


def tell_of_output(fact: type, *, playing: bool = False) -> Story:
    before, act = OUTPUT[fact]
    story = line(playing=playing)
    if fact is e.ModelSpoke:  # a reply in text is ready with its first words
        story.changes(reply=text_only())
    story.says()
    before(story)
    moves: list[tuple[Caller | Agent, Caller | Agent]] = [
        (Agent.PREPARING, Agent.READY),
        (Agent.READY, Agent.SPEAKING),
        (Caller.ENDED, Caller.QUIET),
    ]
    return tell(story, lambda s: None, act, *(Move(source, fact, target) for source, target in moves))


def text_only() -> ReplySettings:
    """A reply without sound."""
    return ReplySettings(audible=False)


@pytest.mark.parametrize("playing", [False, True])
def test_an_answer_that_was_guessed_waits_for_the_end_of_the_turn(playing: bool) -> None:
    """Be it noticed by the ear, or by the clock when the ear falls silent."""
    for fact, act in ENDS_THE_PAUSE.items():
        tell(line(playing=playing), guessed, act, Move(Agent.READY, fact, Agent.SPEAKING))


ENDS_THE_PAUSE: dict[type, Plot] = {e.SilenceGrew: lambda s: s.stops(), e.TimePassed: lambda s: s.passes(2_500)}

# --- a reply is put away --------------------------------------------------------------------------

NO_USE: dict[type, Plot] = {
    **PUT_AWAY,
    e.SpeechStarted: lambda s: s.speaks(),
    e.TranscriptFinished: lambda s: s.hears("What time is it in Paris?"),
    e.TranscriberFailed: lambda s: s.goes_deaf(),
    e.ReplyRequested: lambda s: s.creates(),
    e.StageFailed: lambda s: s.breaks(),
    e.TimePassed: lambda s: s.passes(1_450),
}


@pytest.mark.parametrize("fact", [*NO_USE, e.CallerLeft], ids=lambda fact: fact.__name__)
@pytest.mark.parametrize("guess", [guessing, guessed])
@pytest.mark.parametrize("playing", [False, True])
def test_a_guess_that_is_no_use_is_put_away(fact: type, guess: Plot, playing: bool) -> None:
    """The client never hears of it; what still plays goes on playing."""
    story = tell_of_no_use(fact, guess, playing=playing)
    assert story.ended() == [("completed", "")] * playing


def tell_of_no_use(fact: type, guess: Plot, *, playing: bool = False) -> Story:
    source = Agent.PREPARING if guess is guessing else Agent.READY
    target = Agent.SPEAKING if playing and fact is not e.CallerLeft else Agent.IDLE
    before = ON_ITS_WORD[guess] if fact is e.TranscriberFailed else guess
    return tell(line(playing=playing, deadlines=HASTY), before, (NO_USE | LEFT)[fact], Move(source, fact, target))


def guessed_on_its_word(story: Story) -> None:
    """The answer, a text, is ready soon; only the transcriber has said that the caller stopped."""
    story.changes(reply=text_only())
    speech_said_to_be_over(story)
    story.model_asked()
    story.token()


ON_ITS_WORD: dict[Plot, Plot] = {guessing: speech_said_to_be_over, guessed: guessed_on_its_word}
"""Words that the ear has asked for are known; those of a transcriber that breaks can only have been its own."""


@pytest.mark.parametrize("playing", [False, True])
def test_the_client_cancels_a_reply_of_which_nothing_was_heard(playing: bool) -> None:
    """The turn is given up."""
    story = tell_of_a_cancel(playing=playing)
    assert story.outcomes()[-1] == ("abandoned", "client_cancelled")
    assert story.ended()[-1] == ("cancelled", "client_cancelled")


def tell_of_a_cancel(*, playing: bool = False) -> Story:
    target = Agent.SPEAKING if playing else Agent.IDLE
    return tell(
        line(playing=playing), answering, lambda s: s.cancels(), Move(Agent.PREPARING, e.CancelRequested, target)
    )


# --- a reply is over ------------------------------------------------------------------------------


def played(story: Story) -> None:
    """A spoken reply is complete and still playing."""
    story.creates()
    story.answers()


def only_called(story: Story) -> None:
    """A guess that is complete, and has nothing to play."""
    guessing(story)
    story.model_asked()
    story.call()
    story.model_done("tool_calls")
    story.voice_done()


OVER: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (played, lambda s: s.passes(2_000)),
    e.StageFailed: (talking, lambda s: s.breaks("tts")),
    e.CancelRequested: (talking, lambda s: s.cancels()),
    e.CallerLeft: (talking, lambda s: s.leaves()),
    e.ItemTruncated: (played, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (played, lambda s: s.reports(1_000)),
    e.LineResumed: (played, lambda s: s.is_away(2_000)),
    e.ModelFinished: (
        then(answering_in_text, lambda s: (s.token(), s.sent(0), s.voice_done())),
        lambda s: s.model_done(),
    ),
    e.VoiceFinished: (
        then(answering_in_text, lambda s: (s.token(), s.sent(0), s.model_done())),
        lambda s: s.voice_done(),
    ),
    e.OutputSent: (
        then(answering_in_text, lambda s: (s.token(), s.model_done(), s.voice_done())),
        lambda s: s.sent(0),
    ),
    e.SilenceGrew: (only_called, lambda s: s.stops()),
}


@pytest.mark.parametrize("fact", OVER, ids=lambda fact: fact.__name__)
def test_a_reply_is_over(fact: type) -> None:
    """It was played, or broke, or was cut; then the line is silent."""
    story = tell(line(), *OVER[fact], Move(Agent.SPEAKING, fact, Agent.IDLE))
    assert story.outcomes()[-1][0] is not None


def test_any_voice_takes_the_floor_where_the_client_hears_of_it_at_once() -> None:
    """The reply yields, and is put away at once."""
    tell_of_an_immediate_interruption()


def tell_of_an_immediate_interruption() -> Story:
    steps = (Agent.SPEAKING, Agent.YIELDED), (Agent.YIELDED, Agent.IDLE)
    story = line()
    story.changes(announce="immediate")
    return tell(story, talking, speech, *(Move(source, e.SpeechStarted, target) for source, target in steps))


# --- a voice over the agent's ---------------------------------------------------------------------


def ducked(story: Story) -> None:
    """Somebody speaks over a reply that is not complete."""
    talking(story)
    story.speaks(100)


def ducked_by_a_murmur(story: Story) -> None:
    """They have paused already."""
    ducked(story)
    story.pauses()


def restored(story: Story) -> None:
    """Nothing has shown in time that they want the floor."""
    ducked(story)
    story.passes(350)


def ducked_late(story: Story) -> None:
    """Somebody speaks over the last sound of a reply that is complete."""
    played(story)
    story.passes(600)
    story.speaks(100)


def murmured_late(story: Story) -> None:
    """And it was an acknowledgement."""
    story.changes(reply=ReplySettings())
    played(story)
    story.passes(400)
    story.speaks(100)
    story.pauses()
    story.hears("Mhm.")


def sustained(story: Story) -> None:
    """The voice lasts."""
    story.goes_on(1_000, voiced_ms=100)


TAKES: dict[type, Plot] = {
    e.SpeechWentOn: sustained,
    e.TranscriptGrew: lambda s: s.guesses("And what of the sun?"),
    e.TranscriptFinished: lambda s: s.ends_it("And what of the sun?"),
    e.CommitRequested: lambda s: s.commits(),
}


@pytest.mark.parametrize("fact", TAKES, ids=lambda fact: fact.__name__)
@pytest.mark.parametrize("before", [ducked, restored])
def test_somebody_wants_the_floor(fact: type, before: Plot) -> None:
    """Their words say so, or that their voice lasts, or the client."""
    tell_of_taking(fact, before)


def tell_of_taking(fact: type, before: Plot) -> Story:
    source = Agent.SPEAKING if fact is e.SpeechWentOn or before is restored else Agent.DUCKED
    moves = ((source, Agent.YIELDED), (Agent.YIELDED, Agent.IDLE), (Caller.QUIET, Caller.SPEAKING))
    return tell(line(), before, TAKES[fact], *(Move(this, fact, then) for this, then in moves))


def tell_of_a_long_word() -> Story:
    """The reports of it come in a burst, within the time for a verdict."""
    act = Move(Agent.DUCKED, e.SpeechWentOn, Agent.YIELDED)
    return tell(line(), ducked, lambda s: s.book.at(s.book.now_ms + 10, e.SpeechWentOn(1_200)), act)


def test_who_speaks_for_long_in_a_burst_has_the_floor() -> None:
    """Silence and speech are counted in samples."""
    tell_of_a_long_word()


MURMURS: dict[type, Plot] = {
    e.TranscriptFinished: lambda s: s.hears("And the sun?"),
    e.TranscriptGrew: lambda s: s.guesses("And the sun?"),
    e.CommitRequested: lambda s: s.commits(),
}


def tell_of_a_murmur(fact: type) -> Story:
    return tell(line(), ducked_by_a_murmur, MURMURS[fact], Move(Caller.SPEAKING, fact, Caller.HOLDING))


@pytest.mark.parametrize("fact", MURMURS, ids=lambda fact: fact.__name__)
def test_who_has_paused_already_is_heard_out(fact: type) -> None:
    """Their turn begins with a pause."""
    tell_of_a_murmur(fact)


def lost_early(story: Story) -> None:
    """They have paused for as long as after a turn; their words are still to come."""
    story.changes(silence_ms=60)
    ducked_by_a_murmur(story)
    story.book.at(story.book.now_ms + 20, e.SilenceGrew(100))


def lost_earlier(story: Story) -> None:
    """The transcriber has broken."""
    story.changes(silence_ms=60)
    ducked_by_a_murmur(story)
    story.goes_deaf()


GOES_ON: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (ducked, lambda s: s.passes(350)),
    e.TranscriptFinished: (ducked_by_a_murmur, lambda s: s.hears("Mhm.")),
    e.TranscriberFailed: (lost_early, lambda s: s.goes_deaf()),
    e.SilenceGrew: (lost_earlier, lambda s: s.book.at(s.book.now_ms + 20, e.SilenceGrew(100))),
    e.ClearRequested: (ducked, lambda s: s.clears()),
    e.SettingsChanged: (ducked, lambda s: s.changes(interrupt_response=False)),
    e.CallerLeft: (ducked, lambda s: s.leaves()),
}


@pytest.mark.parametrize("fact", GOES_ON, ids=lambda fact: fact.__name__)
def test_nobody_wanted_the_floor(fact: type) -> None:
    """The agent goes on."""
    tell(line(), *GOES_ON[fact], Move(Agent.DUCKED, fact, Agent.SPEAKING))


def broken_off(story: Story) -> None:
    """The sound so far was played, and what is to come is late; somebody speaks meanwhile."""
    talking(story)
    story.passes(900)
    story.speaks(100)


def over_the_end(story: Story) -> None:
    """The user speaks in the last moments of what plays."""
    story.passes(850)
    story.speaks(100)


PLAYED: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (ducked_late, lambda s: s.passes(250)),
    e.StageFailed: (ducked, lambda s: s.breaks("tts")),
    e.CancelRequested: (ducked, lambda s: s.cancels()),
    e.ItemTruncated: (ducked_late, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (ducked_late, lambda s: s.reports(1_000)),
    e.LineResumed: (ducked_late, lambda s: s.is_away(2_000)),
    e.ModelFinished: (
        then(talking, lambda s: s.voice_done(), over_the_end),
        lambda s: s.model_done(),
    ),
    e.VoiceFinished: (
        then(talking, lambda s: s.model_done(), over_the_end),
        lambda s: s.voice_done(),
    ),
}


@pytest.mark.parametrize("fact", PLAYED, ids=lambda fact: fact.__name__)
def test_the_agent_has_finished_before_it_was_known(fact: type) -> None:
    """The floor is free, and whoever speaks has it."""
    moves = Move(Agent.DUCKED, fact, Agent.IDLE), Move(Caller.QUIET, fact, Caller.SPEAKING)
    tell(line(), *PLAYED[fact], *moves)


ANSWERED: dict[type, tuple[Plot, Plot]] = {
    e.TimePassed: (murmured_late, lambda s: s.passes(600)),
    e.StageFailed: (lambda s: murmured(s), lambda s: s.breaks("tts")),
    e.CancelRequested: (lambda s: murmured(s), lambda s: s.cancels()),
    e.ItemTruncated: (murmured_late, lambda s: s.truncates(s.started()[-1].item_id, 300)),
    e.PlaybackReported: (murmured_late, lambda s: s.reports(1_000)),
    e.LineResumed: (murmured_late, lambda s: s.is_away(2_000)),
    e.ModelFinished: (lambda s: murmured(s, s.voice_done), lambda s: s.model_done()),
    e.VoiceFinished: (lambda s: murmured(s, s.model_done), lambda s: s.voice_done()),
}


def murmured(story: Story, before: Callable[[], object] = lambda: None) -> None:
    """An acknowledgement as the sound so far ends; its silence is not over."""
    talking(story)
    before()
    story.passes(700)
    story.speaks(50)
    story.pauses()
    story.hears("Yes.")
    story.passes(50)


@pytest.mark.parametrize("fact", ANSWERED, ids=lambda fact: fact.__name__)
def test_an_acknowledgement_at_the_end_is_an_answer(fact: type) -> None:
    """It opens a turn, and work on that begins."""
    tell_of_an_answer(fact)


def tell_of_an_answer(fact: type) -> Story:
    moves = (
        Move(Caller.QUIET, fact, Caller.SPEAKING),
        Move(Caller.SPEAKING, fact, Caller.HOLDING),
        Move(Agent.IDLE, fact, Agent.PREPARING),
    )
    return tell(line(), *ANSWERED[fact], *moves)


def preparing_over_it(story: Story) -> None:
    """A reply plays on while the next is made, and somebody speaks."""
    played_for_long(story)
    story.creates()
    story.speaks(100)


def ready_over_it(story: Story) -> None:
    """The same; the next has something to say, which is held until the verdict."""
    played_for_long(story)
    story.creates()
    story.model_asked()
    story.token()
    story.clause()
    story.speaks(100)
    story.sound()


def played_for_long(story: Story) -> None:
    story.creates()
    story.answers(duration_ms=60_000)


@pytest.mark.parametrize("before", [preparing_over_it, ready_over_it])
@pytest.mark.parametrize("fact", [e.SpeechWentOn, e.TranscriptGrew], ids=lambda fact: fact.__name__)
def test_the_next_reply_yields_with_the_one_that_plays(before: Plot, fact: type) -> None:
    """Both are put away."""
    tell_of_two(before, fact)


def tell_of_two(before: Plot, fact: type) -> Story:
    source = Agent.PREPARING if before is preparing_over_it else Agent.READY
    act = TAKES[fact] if fact is e.TranscriptGrew else lambda s: s.book.at(s.book.now_ms + 10, e.SpeechWentOn(1_200))
    return tell(line(), before, act, Move(source, fact, Agent.IDLE))


def asked_while_ducked(story: Story) -> None:
    """A reply plays on, somebody speaks over it, and the client asks for another."""
    played_for_long(story)
    story.speaks(100)
    story.creates()


def tell_of_a_clear() -> Story:
    act = Move(Agent.SPEAKING, e.ClearRequested, Agent.PREPARING)
    return tell(line(), asked_while_ducked, lambda s: s.clears(), act)


def test_nothing_begins_while_it_is_open_who_has_the_floor() -> None:
    """It begins as soon as that is known."""
    story = line()
    asked_while_ducked(story)
    assert story.book.core.agent.state is Agent.DUCKED
    assert len(story.started()) == 1
    tell_of_a_clear()


# --- a reply begins -------------------------------------------------------------------------------


def unwanted(story: Story) -> None:
    """A pause with words, while the session wants no replies."""
    story.changes(create_response=False)
    a_pause(story)
    story.hears()


def unguessed(story: Story) -> None:
    """A pause with words, and no guess made of them: one broke."""
    guessing(story)
    story.breaks()


def unscored(story: Story) -> None:
    """A pause with words, that no model has judged yet."""
    story.changes(end_of_turn="scored")
    guessing(story)


BEGINS: dict[type, tuple[Plot, Plot]] = {
    e.EndpointScored: (unscored, lambda s: s.is_scored("p", 0.9)),
    e.ReplyRequested: (lambda s: None, lambda s: s.creates()),
    e.SilenceGrew: (unguessed, lambda s: s.stops()),
    e.TimePassed: (unguessed, lambda s: s.passes(3_000)),
    e.TranscriptFinished: (the_end, lambda s: s.hears()),
    e.SettingsChanged: (unwanted, lambda s: s.changes(create_response=True)),
    e.TranscriberFailed: (asked_before_the_words, lambda s: s.goes_deaf(of=-2)),
    e.StageFailed: (one_waits, lambda s: s.breaks()),
    e.CancelRequested: (one_waits, lambda s: s.cancels()),
    e.ModelFinished: (then(one_waits, lambda s: s.voice_done()), lambda s: s.model_done()),
    e.VoiceFinished: (then(one_waits, lambda s: s.model_done()), lambda s: s.voice_done()),
}


@pytest.mark.parametrize("fact", BEGINS, ids=lambda fact: fact.__name__)
@pytest.mark.parametrize("playing", [False, True])
def test_a_reply_begins(fact: type, playing: bool) -> None:
    """Its turn is over and its words are known, or what was in the way is gone."""
    tell_of_a_beginning(fact, playing=playing)


def tell_of_a_beginning(fact: type, *, playing: bool = False) -> Story:
    source = Agent.SPEAKING if playing else Agent.IDLE
    story = line(playing=playing)
    before, act = BEGINS[fact]
    before(story)
    n_started = len(story.started())
    tell(story, lambda s: None, act, Move(source, fact, Agent.PREPARING))
    assert len(story.started()) == n_started + 1
    return story


# --- the whole law --------------------------------------------------------------------------------


def tell(story: Story, before: Plot, act: Plot, *moves: Move) -> Story:
    """Tell a plot, and see that its act makes these moves, and that all of it is lawful."""
    before(story)
    n_before = len(story.book.moves)
    act(story)
    assert set(moves) <= set(story.book.moves[n_before:])
    assert story.book.core.unlawful == []
    return story


def all_stories() -> list[Story]:
    """Every plot of this file."""
    both = (False, True)
    return [
        *(tell(line(), before, act, Move(was, fact, now)) for before, act, was, fact, now in CALLER_PLOTS),
        *(tell_of_output(fact, playing=playing) for fact, playing in product(OUTPUT, both)),
        *(tell(line(), guessed, act, Move(Agent.READY, fact, Agent.SPEAKING)) for fact, act in ENDS_THE_PAUSE.items()),
        *(
            tell_of_no_use(fact, guess, playing=playing)
            for fact, guess, playing in product([*NO_USE, e.CallerLeft], (guessing, guessed), both)
        ),
        *(tell_of_a_cancel(playing=playing) for playing in both),
        *(tell(line(), *plot, Move(Agent.SPEAKING, fact, Agent.IDLE)) for fact, plot in OVER.items()),
        tell_of_an_immediate_interruption(),
        *(tell_of_taking(fact, before) for fact, before in product(TAKES, (ducked, restored))),
        tell_of_a_long_word(),
        *(tell_of_a_murmur(fact) for fact in MURMURS),
        *(tell(line(), *plot, Move(Agent.DUCKED, fact, Agent.SPEAKING)) for fact, plot in GOES_ON.items()),
        *(tell(line(), *plot, Move(Agent.DUCKED, fact, Agent.IDLE)) for fact, plot in PLAYED.items()),
        *(tell_of_an_answer(fact) for fact in ANSWERED),
        *(
            tell_of_two(*plot)
            for plot in product((preparing_over_it, ready_over_it), (e.SpeechWentOn, e.TranscriptGrew))
        ),
        tell_of_a_clear(),
        *(tell_of_a_beginning(fact, playing=playing) for fact, playing in product(BEGINS, both)),
        kept_turn(),
        prompt(),
    ]


def kept_turn() -> Story:
    story = line()
    story.changes(interrupt_response=False)
    return tell(story, answering, speech, Move(Caller.ENDED, e.SpeechStarted, Caller.QUIET))


def prompt() -> Story:
    story = Story(idle_timeout_ms=4_000)
    act = Move(Agent.IDLE, e.SilenceCommitted, Agent.PREPARING)
    return tell(story, then(played, lambda s: s.passes(6_000)), lambda s: s.goes_silent(20_000), act)


def test_every_row_of_the_law_is_told() -> None:
    """A row that no plot tells is one that can't happen, or one that nobody has thought through."""
    told = {move for story in all_stories() for move in story.book.moves}
    law = states.CALLER_LAW.items() | states.AGENT_LAW.items()
    rows = {Move(source, fact, target) for (source, fact), targets in law for target in targets}
    assert {str(row) for row in rows - told} == set()
    assert {str(move) for move in told - rows} == set()
