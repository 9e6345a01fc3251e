"""Speech over the agent's: one test for each way in which the user and the agent overlap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import docs
from voicepipe.testing.core_driver import announced, names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import DropUtterance, Duck
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState

LONG = "One two three four five six seven eight nine ten."


def texts(scenario: Scenario) -> list[tuple[str, str]]:
    """The conversation's messages: (role, words)."""
    items = scenario.driver.core.context.conversation.items
    return [(item.role, item.text()) for item in items if isinstance(item, Message)]


def talking(*, duration_ms: int = 10_000, **settings: object) -> Scenario:
    """Answer a question with ten seconds of audio that plays; its client lowers the agent's volume on request."""
    scenario = Scenario(ducks=True, **settings)  # type: ignore[arg-type]
    scenario.utters()
    scenario.answers(LONG, duration_ms)
    scenario.passes(2_000)
    return scenario


def kinds(scenario: Scenario) -> list[str]:
    """Return the notifications about the agent's volume: kinds and reasons."""
    overlap_kinds = (a.AgentDucked, a.AgentUnducked, a.AgentInterrupted)
    notices = [notice for kind in overlap_kinds for notice in scenario.notified(kind)]
    ordered = [what for what in scenario.driver.announced if what in notices]
    return [getattr(what, "reason", "ducked") for what in ordered]


# --- before anything is audible -------------------------------------------------------------------


def test_resume_before_commit() -> None:
    """The user goes on within the pause: same turn, same item; the guess that was made is put away unheard."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    assert texts(scenario) == [("user", "What time is it?"), ("assistant", "It is noon.")]
    assert scenario.ended() == [("completed", "")]
    assert len(scenario.notified(a.InputSpeechStarted)) == 1


def test_resume_after_commit_before_sound() -> None:
    """The response on the wire is cancelled, a second item opens, and one answer reads both."""
    scenario = Scenario()
    scenario.utters("What time is it?")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("In Paris?")
    scenario.stops()
    scenario.answers("One o'clock.")
    scenario.passes(5_000)
    assert scenario.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    assert texts(scenario) == [("user", "What time is it?"), ("user", "In Paris?"), ("assistant", "One o'clock.")]
    assert scenario.outcomes() == [("completed", "")]


def test_resume_during_sound() -> None:
    """The user's addition takes the turn, and the LLM request for it holds the played part of the reply before."""
    scenario = talking()
    got = scenario.speaks(1_200)
    assert Duck(1) in got
    notified_kinds = [type(what) for what in announced(got)]
    assert notified_kinds == [a.AgentDucked, a.AgentUnducked, a.InputSpeechStarted, a.AgentInterrupted]
    scenario.pauses()
    scenario.transcribes("In Paris, I mean.")
    scenario.stops()
    assert scenario.outcomes()[0] == ("interrupted", "turn_detected")
    (played,) = [words for role, words in texts(scenario) if role == "assistant"]
    assert LONG.startswith(played)
    assert played != LONG
    context = [item.text() for item in scenario.started()[-1].items if isinstance(item, Message)]
    assert context == ["What time is it?", played, "In Paris, I mean."]


def test_late_final() -> None:
    """The words come after the turn has ended: they are the turn's, and are answered once."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    assert scenario.started() == []
    scenario.transcribes("What time is it?")
    scenario.answers()
    scenario.transcribes("What time is it, please?")
    scenario.passes(5_000)
    assert len(scenario.started()) == 1
    assert scenario.outcomes() == [("completed", "")]


def test_empty_turn() -> None:
    """A sound without words is no question."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.transcribes("")
    assert scenario.started() == []
    assert scenario.outcomes() == [("abandoned", "nothing was said")]


# --- a listener -----------------------------------------------------------------------------------


def test_backchannel() -> None:
    """The agent goes on, and nothing is left of it: no event, no item, no turn, no answer."""
    scenario = talking()
    notices = len(scenario.driver.announced)
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("Mm-hmm.")
    got = scenario.stops()
    assert any(isinstance(command, DropUtterance) for command in got)
    scenario.passes(20_000)
    assert kinds(scenario) == ["ducked", "acknowledgement"]
    others = [
        what for what in scenario.driver.announced[notices:] if not isinstance(what, a.AgentDucked | a.AgentUnducked)
    ]
    assert others == []
    assert texts(scenario) == [("user", "What time is it?"), ("assistant", LONG)]
    assert scenario.outcomes() == [("completed", "")]


def test_backchannel_is_not_notified_by_default() -> None:
    """Unaware clients see nothing at all."""
    scenario = talking()
    scenario.changes(ducks=False)
    notices = len(scenario.driver.announced)
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("Yeah.")
    scenario.stops()
    assert scenario.driver.announced[notices:] == []


@pytest.mark.parametrize(
    ("language", "words"),
    [("en-US", "Okay, I see."), ("de", "Ja, genau."), ("fr", "D'accord."), ("es", "Sí, claro."), ("pt-BR", "Tá bom.")],
)
def test_acknowledgements_are_of_the_session_s_language(language: str, words: str) -> None:
    """Each language has its list."""
    scenario = talking(language=language)
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes(words)
    assert kinds(scenario) == ["ducked", "acknowledgement"]


def test_an_acknowledgement_that_goes_on_is_none() -> None:
    """ "Yeah" is no verdict yet: "yeah, but" is."""
    scenario = talking()
    scenario.speaks(200)
    scenario.guesses("Yeah")
    assert kinds(scenario) == ["ducked"]
    scenario.passes(200)
    assert kinds(scenario) == ["ducked", "acknowledgement"]
    got = scenario.guesses("Yeah, but what about")
    assert [type(what) for what in announced(got)] == [a.InputSpeechStarted, a.AgentInterrupted]
    assert kinds(scenario)[-1] == "words"


def test_a_murmur_without_words_is_no_interruption() -> None:
    """The transcriber finds no words in it: the agent goes on at once."""
    scenario = talking()
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("")
    assert kinds(scenario) == ["ducked", "no_words"]
    assert scenario.driver.core.agent.state is AgentState.SPEAKING


def test_words_that_never_come_do_not_hold_anything() -> None:
    """The deadline for the transcript forgets the murmur; the next voice is judged anew."""
    scenario = talking(duration_ms=60_000, deadlines=Deadlines(transcript_ms=900))
    scenario.speaks(400)
    scenario.pauses()
    scenario.stops()
    got = scenario.passes(1_000)
    assert "DropUtterance" in names(got)
    assert scenario.transcribes("Stop!") == []
    assert "Duck" in names(scenario.speaks(100))


def test_a_murmur_in_two_parts_is_one() -> None:
    """The second lowers the voice again; together they are judged, and both are forgotten."""
    scenario = talking()
    scenario.speaks(300)
    scenario.pauses()
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("Okay, okay.")
    assert kinds(scenario) == ["ducked", "no_words", "ducked", "acknowledgement"]
    scenario.stops()
    scenario.passes(20_000)
    assert scenario.outcomes() == [("completed", "")]


def test_an_answer_at_the_end_is_no_backchannel() -> None:
    """ "Yes" over the last word of a question is an answer to it."""
    scenario = Scenario(ducks=True)
    scenario.utters()
    scenario.answers("Shall I go on?", 1_000)
    scenario.passes(700)
    scenario.speaks(100)
    scenario.pauses()
    scenario.transcribes("Yes.")
    scenario.passes(200)
    assert [type(what) for what in scenario.driver.announced][-1] is a.InputSpeechStarted
    scenario.stops()
    assert scenario.started()[-1].turn == 2
    assert texts(scenario)[-1] == ("user", "Yes.")


# --- an interruption ------------------------------------------------------------------------------


def test_a_word_to_stop_stops_at_once() -> None:
    """No deadline is waited for, and `response.done` and the record say why."""
    scenario = talking()
    scenario.speaks(100)
    got = scenario.guesses("Wait a")
    assert [type(what) for what in announced(got)] == [a.InputSpeechStarted, a.AgentInterrupted]
    (yielded,) = scenario.notified(a.AgentInterrupted)
    assert (yielded.reason, yielded.after_ms) == ("stop_word", 150)
    assert scenario.outcomes()[0] == ("interrupted", "turn_detected")


def test_running_response_is_cancelled_by_an_interruption() -> None:
    """The client is notified of the user's voice first, then of the response that the voice cancels."""
    scenario = Scenario(ducks=True)
    scenario.utters()
    scenario.begins_to_answer(LONG, 10_000)
    scenario.speaks(100)
    got = scenario.guesses("I have a question")
    assert [type(what) for what in announced(got)] == [a.InputSpeechStarted, a.AgentInterrupted, a.ResponseEnded]
    assert scenario.ended() == [("cancelled", "turn_detected")]


def test_double_talk() -> None:
    """Both speak on: a voice that lasts for a second has the floor, words or none."""
    scenario = talking()
    scenario.speaks(950)
    assert scenario.driver.core.agent.state is AgentState.SPEAKING
    assert kinds(scenario) == ["ducked", "no_words"]
    scenario.goes_on(100, voiced_ms=900)
    assert kinds(scenario)[-1] == "sustained"
    assert scenario.driver.core.user.state is UserState.SPEAKING


def test_an_acknowledgement_among_others_does_not_add_up() -> None:
    """What was excused by its words does not count towards a voice that lasts."""
    scenario = talking()
    scenario.speaks(700)
    scenario.guesses("Yeah yeah")
    scenario.goes_on(600, voiced_ms=700)
    assert kinds(scenario) == ["ducked", "no_words"]
    scenario.goes_on(500, voiced_ms=1_300)
    assert kinds(scenario)[-1] == "sustained"


def test_words_of_a_nonlexical_sound_are_ignored() -> None:
    """Of a hum of less than a second, only a word to stop counts; of a sound that only words have, all do."""
    for words, ends_as in (("And six and six", "no_words"), ("Stop.", "stop_word")):
        scenario = talking(short_words=False)
        scenario.speaks(100)
        scenario.pauses()
        scenario.transcribes(words)
        assert kinds(scenario)[-1] == ends_as
    scenario = talking(short_words=False)
    scenario.speaks(0)
    scenario.driver.at(scenario.driver.now_ms + 150, e.SpeechWentOn(150, nonlexical=False))
    scenario.pauses()
    scenario.transcribes("Six of them")
    assert kinds(scenario)[-1] == "words"


def test_the_verdict_falls_in_time() -> None:
    """Within 300 ms of lowering the agent's voice, and time for the news to travel."""
    scenario = talking()
    scenario.speaks(0)
    ducked_ms = scenario.driver.now_ms
    scenario.passes(279)
    assert kinds(scenario) == ["ducked"]
    scenario.passes(1)
    assert kinds(scenario) == ["ducked", "no_words"]
    (restored,) = scenario.notified(a.AgentUnducked)
    assert restored.after_ms == scenario.driver.now_ms - ducked_ms == 280


def test_no_ducking_without_interruption() -> None:
    """`interrupt_response: false`: the speech is transcribed, reported, and answered next."""
    scenario = talking(interrupt_response=False)
    scenario.utters("And in Paris?")
    assert kinds(scenario) == []
    assert scenario.driver.core.agent.state is not AgentState.DUCKED
    assert scenario.outcomes()[0] in [("completed", ""), (None, "")]
    assert scenario.started()[-1].turn == 2


def test_immediate_brings_back_what_hosted_services_do() -> None:
    """Every voice is reported at once and interrupts."""
    scenario = talking(interruption="immediate")
    got = scenario.speaks(0)
    assert announced(got)[0] == a.InputSpeechStarted("item_s_0003", scenario.driver.now_ms - 360)
    assert scenario.outcomes()[0] == ("interrupted", "turn_detected")


def test_a_commit_is_the_client_s_word() -> None:
    """What it commits is a turn, whatever it sounds like."""
    scenario = talking()
    scenario.speaks(200)
    scenario.commits()
    assert kinds(scenario) == ["ducked", "client"]
    assert len(scenario.notified(a.AudioCommitted)) == 2


def test_a_pause_that_is_reported_again_requests_no_other_transcript() -> None:
    scenario = talking()
    scenario.speaks(0)
    assert names(scenario.pauses()) == ["FlushTranscript"]
    assert names(scenario.pauses()) == []


def test_transcripts_of_one_overlap_are_bounded() -> None:
    """Its second pause costs no transcript; its end does, since the words of all of it are judged."""
    scenario = talking(max_flushes=1)
    scenario.speaks(0)
    assert "FlushTranscript" in names(scenario.pauses())
    scenario.speaks(0)
    assert "FlushTranscript" not in names(scenario.pauses())
    assert "FlushTranscript" in names(scenario.stops())


def test_nothing_is_ducked_while_only_the_next_answer_is_generated() -> None:
    """The overlap outlasts the answer: it goes on when that was played, and the next one is not audible yet."""
    scenario = talking(duration_ms=3_000)
    scenario.speaks(0)
    scenario.pauses()
    scenario.creates()
    scenario.passes(2_000)
    assert scenario.driver.agent_state() is AgentState.PREPARING
    assert not any(isinstance(order, Duck) for order in scenario.speaks(0))
    assert kinds(scenario).count("ducked") == 1


# --- the agent's own voice ------------------------------------------------------------------------


def test_echo_by_its_words() -> None:
    """What the agent is saying comes back: it goes on, however much of it there is."""
    scenario = talking()
    scenario.speaks(500)
    scenario.guesses("two three four")
    scenario.goes_on(700, voiced_ms=500)
    scenario.pauses()
    scenario.transcribes("Two, tree, four.")
    scenario.stops()
    assert kinds(scenario) == ["ducked", "no_words"]
    scenario.passes(20_000)
    assert scenario.outcomes() == [("completed", "")]


def test_words_that_the_agent_said_long_ago_are_no_echo() -> None:
    """A user who repeats them wants something."""
    scenario = talking(duration_ms=20_000)
    scenario.passes(15_000)
    scenario.speaks(100)
    scenario.guesses("One two three")
    assert kinds(scenario)[-1] == "words"


def test_echo_by_its_sound() -> None:
    """A voice that sounds like the agent is the agent's, as long as it does; it is not ducked for it again."""
    scenario = talking()
    scenario.speaks(0)
    scenario.goes_on(3_000, echoes=True)
    scenario.pauses()
    scenario.transcribes("")
    scenario.stops()
    assert kinds(scenario) == ["ducked", "echo"]
    scenario.speaks(0)
    scenario.goes_on(1_000, echoes=True)
    assert kinds(scenario) == ["ducked", "echo"]
    scenario.goes_on(200, voiced_ms=1_000)
    assert kinds(scenario)[-1] == "sustained"


def test_echo_outlasts_the_agent() -> None:
    """The echo ends when the agent is silent already: there is no reply to it."""
    scenario = Scenario(ducks=True)
    scenario.utters()
    scenario.answers(duration_ms=1_500)
    scenario.speaks(0)
    scenario.goes_on(1_500, echoes=True)
    assert scenario.driver.core.agent.state is AgentState.IDLE
    assert scenario.driver.core.user.state is UserState.QUIET
    scenario.pauses()
    scenario.passes(3_000)
    assert len(scenario.notified(a.InputSpeechStarted)) == 1
    assert len(scenario.started()) == 1
    assert not scenario.driver.core.context.timers.due


def test_echo_that_pauses_ends_with_the_agent() -> None:
    """No verdict has fallen when the agent falls silent: the echo is no turn."""
    scenario = Scenario(ducks=True, deadlines=Deadlines(interruption_ms=5_000))
    scenario.utters()
    scenario.answers()
    scenario.speaks(0)
    scenario.goes_on(300, echoes=True)
    scenario.pauses()
    assert scenario.driver.agent_state() is AgentState.DUCKED
    scenario.passes(2_000)
    assert (scenario.driver.user_state(), scenario.driver.agent_state()) == (UserState.QUIET, AgentState.IDLE)
    assert kinds(scenario) == ["ducked"]
    assert scenario.outcomes() == [("completed", "")]
    assert not scenario.driver.core.context.timers.due


# --- what was played ------------------------------------------------------------------------------


def test_client_truncate() -> None:
    """The client silences the agent by itself and says where: the user has the floor, and history ends there."""
    scenario = talking()
    scenario.speaks(100)
    scenario.truncates(scenario.started()[0].item_id, 2_100)
    assert texts(scenario)[1] == ("assistant", "One two three")
    assert [type(what) for what in scenario.driver.announced][-1] is a.InputSpeechStarted
    assert scenario.driver.core.user.state is UserState.SPEAKING


def test_no_playback_reports() -> None:
    """Sound is taken to play as soon as it was sent; the record says that it is an estimate."""
    scenario = talking()
    scenario.speaks(100)
    scenario.guesses("Hold on")
    record = scenario.driver.records["turn_s_0001"]
    assert (record.outcome, record.latency_source) == ("interrupted", "estimated")
    assert record.played_text == texts(scenario)[1][1] == "One two three"


def test_a_word_between_turns_is_not_the_last_turn_s() -> None:
    """A streaming transcriber transcribes the agent too: its text of an answered utterance changes nothing."""
    scenario = talking()
    scenario.driver.at(
        scenario.driver.now_ms + 50, e.TranscriptFinished(1, 0, "What time is it? It is noon.", provider="fake/stt")
    )
    assert texts(scenario)[0] == ("user", "What time is it?")


# --- the drawing for people -----------------------------------------------------------------------


def moved(scenario: Scenario, *steps: Callable[[Scenario], object]) -> tuple[str, str]:
    """Return the states of the overlap before and after the last step; `[*]`: there is none."""
    seen = ["[*]"]
    for step in steps:
        step(scenario)
        overlap = scenario.driver.core._interruptions.overlap
        seen.append("[*]" if overlap is None else overlap.state.value)
    return seen[-2], seen[-1]


@pytest.mark.parametrize(
    ("interruption_ms", "steps", "arrow"),
    [
        (5_000, "pauses stops says_stop", "undecided_over --> [*]: an interruption"),
        (280, "passes pauses stops says_stop", "over --> [*]: an interruption"),
        (280, "passes pauses speaks", "tolerated --> undecided: speech again"),
        (1_500, "pauses stops passes", "undecided_over --> over: no evidence within deadlines.interruption_ms"),
    ],
)
def test_the_drawing_has_each_move_of_an_overlap(interruption_ms: int, steps: str, arrow: str) -> None:
    """Words may come after the silence; speech may begin again before it is long enough."""
    known: dict[str, Callable[[Scenario], object]] = {
        "speaks": lambda scenario: scenario.speaks(100),
        "passes": lambda scenario: scenario.passes(interruption_ms),
        "pauses": lambda scenario: scenario.pauses(),
        "stops": lambda scenario: scenario.stops(),
        "says_stop": lambda scenario: scenario.transcribes("Stop!"),
    }
    scenario = talking(deadlines=Deadlines(interruption_ms=interruption_ms))
    before, after = moved(scenario, known["speaks"], *(known[name] for name in steps.split()))
    assert arrow.startswith(f"{before} --> {after}: ")
    assert bool(scenario.notified(a.AgentInterrupted)) == arrow.endswith("an interruption")
    assert arrow in docs.code(r"mermaid turn_overlap", docs.section("The states"))[0]
