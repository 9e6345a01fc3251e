"""Who has the floor: one playbook for each way in which two people get into each other's words."""

from __future__ import annotations

import pytest

from voicepipe.testing.playbook import announced, names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.commands import Duck, ForgetUtterance
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Agent, Caller

LONG = "One two three four five six seven eight nine ten."


def texts(story: Story) -> list[tuple[str, str]]:
    """The conversation's messages: (role, words)."""
    items = story.book.core.floor.conversation.items
    return [(item.role, item.text()) for item in items if isinstance(item, Message)]


def talking(*, duration_ms: int = 10_000, **settings: object) -> Story:
    """A question was answered, and the answer plays for ten seconds; its client lowers the agent's voice when told."""
    story = Story(ducks=True, **settings)  # type: ignore[arg-type]
    story.says()
    story.answers(LONG, duration_ms)
    story.passes(2_000)
    return story


def kinds(story: Story) -> list[str]:
    """What the client was told of the agent's voice: its kinds and reasons."""
    told = story.said(a.AgentDucked) + story.said(a.AgentRestored) + story.said(a.AgentYielded)
    ordered = [what for what in story.book.announced if what in told]
    return [getattr(what, "reason", "ducked") for what in ordered]


# --- before anything is audible -------------------------------------------------------------------


def test_resume_before_commit() -> None:
    """The caller goes on within the pause: same turn, same item; the guess that was made is put away unheard."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears("What time")
    story.speaks()
    story.pauses()
    story.hears("What time is it?")
    story.stops()
    story.answers()
    story.passes(5_000)
    assert texts(story) == [("user", "What time is it?"), ("assistant", "It is noon.")]
    assert story.ended() == [("completed", "")]
    assert len(story.said(a.CallerSpoke)) == 1


def test_resume_after_commit_before_sound() -> None:
    """The response on the wire is cancelled, a second item opens, and one answer reads both."""
    story = Story()
    story.says("What time is it?")
    story.speaks()
    story.pauses()
    story.hears("In Paris?")
    story.stops()
    story.answers("One o'clock.")
    story.passes(5_000)
    assert story.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    assert texts(story) == [("user", "What time is it?"), ("user", "In Paris?"), ("assistant", "One o'clock.")]
    assert story.outcomes() == [("completed", "")]


def test_resume_during_sound() -> None:
    """What the caller adds takes the floor, and the answer to it has read what was heard of the one before."""
    story = talking()
    got = story.speaks(1_200)
    assert Duck(1) in got
    kinds_told = [type(what) for what in announced(got)]
    assert kinds_told == [a.AgentDucked, a.AgentRestored, a.CallerSpoke, a.AgentYielded]
    story.pauses()
    story.hears("In Paris, I mean.")
    story.stops()
    assert story.outcomes()[0] == ("interrupted", "turn_detected")
    (heard,) = [words for role, words in texts(story) if role == "assistant"]
    assert LONG.startswith(heard)
    assert heard != LONG
    context = [item.text() for item in story.started()[-1].items if isinstance(item, Message)]
    assert context == ["What time is it?", heard, "In Paris, I mean."]


def test_late_final() -> None:
    """The words come after the turn has ended: they are the turn's, and are answered once."""
    story = Story()
    story.speaks()
    story.pauses()
    story.stops()
    assert story.started() == []
    story.hears("What time is it?")
    story.answers()
    story.hears("What time is it, please?")
    story.passes(5_000)
    assert len(story.started()) == 1
    assert story.outcomes() == [("completed", "")]


def test_empty_turn() -> None:
    """A sound without words is no question."""
    story = Story()
    story.speaks()
    story.pauses()
    story.stops()
    story.hears("")
    assert story.started() == []
    assert story.outcomes() == [("abandoned", "nothing was said")]


# --- a listener -----------------------------------------------------------------------------------


def test_backchannel() -> None:
    """The agent goes on, and nothing is left of it: no event, no item, no turn, no answer."""
    story = talking()
    told = len(story.book.announced)
    story.speaks(100)
    story.pauses()
    story.hears("Mm-hmm.")
    got = story.stops()
    assert any(isinstance(order, ForgetUtterance) for order in got)
    story.passes(20_000)
    assert kinds(story) == ["ducked", "acknowledgement"]
    others = [what for what in story.book.announced[told:] if not isinstance(what, a.AgentDucked | a.AgentRestored)]
    assert others == []
    assert texts(story) == [("user", "What time is it?"), ("assistant", LONG)]
    assert story.outcomes() == [("completed", "")]


def test_a_backchannel_is_told_to_nobody_who_did_not_ask() -> None:
    """Unaware clients see nothing at all."""
    story = talking()
    story.changes(ducks=False)
    told = len(story.book.announced)
    story.speaks(100)
    story.pauses()
    story.hears("Yeah.")
    story.stops()
    assert story.book.announced[told:] == []


@pytest.mark.parametrize(
    ("language", "words"),
    [("en-US", "Okay, I see."), ("de", "Ja, genau."), ("fr", "D'accord."), ("es", "Sí, claro."), ("pt-BR", "Tá bom.")],
)
def test_acknowledgements_are_of_the_session_s_language(language: str, words: str) -> None:
    """Each language has its list."""
    story = talking(language=language)
    story.speaks(100)
    story.pauses()
    story.hears(words)
    assert kinds(story) == ["ducked", "acknowledgement"]


def test_an_acknowledgement_that_goes_on_is_none() -> None:
    """ "Yeah" is no verdict yet: "yeah, but" is."""
    story = talking()
    story.speaks(200)
    story.guesses("Yeah")
    assert kinds(story) == ["ducked"]
    story.passes(200)
    assert kinds(story) == ["ducked", "acknowledgement"]
    got = story.guesses("Yeah, but what about")
    assert [type(what) for what in announced(got)] == [a.CallerSpoke, a.AgentYielded]
    assert kinds(story)[-1] == "words"


def test_a_murmur_without_words_is_no_interruption() -> None:
    """The transcriber hears nothing in it: the agent goes on at once."""
    story = talking()
    story.speaks(100)
    story.pauses()
    story.hears("")
    assert kinds(story) == ["ducked", "no_words"]
    assert story.book.core.agent.state is Agent.SPEAKING


def test_words_that_never_come_do_not_hold_anything() -> None:
    """The deadline for the transcript forgets the murmur; the next voice is judged anew."""
    story = talking(duration_ms=60_000, deadlines=Deadlines(transcript_ms=900))
    story.speaks(400)
    story.pauses()
    story.stops()
    got = story.passes(1_000)
    assert "ForgetUtterance" in names(got)
    assert story.hears("Stop!") == []
    assert "Duck" in names(story.speaks(100))


def test_a_murmur_in_two_parts_is_one() -> None:
    """The second lowers the voice again; together they are judged, and both are forgotten."""
    story = talking()
    story.speaks(300)
    story.pauses()
    story.speaks(100)
    story.pauses()
    story.hears("Okay, okay.")
    assert kinds(story) == ["ducked", "no_words", "ducked", "acknowledgement"]
    story.stops()
    story.passes(20_000)
    assert story.outcomes() == [("completed", "")]


def test_an_answer_at_the_end_is_no_backchannel() -> None:
    """ "Yes" over the last word of a question is an answer to it."""
    story = Story(ducks=True)
    story.says()
    story.answers("Shall I go on?", 1_000)
    story.passes(700)
    story.speaks(100)
    story.pauses()
    story.hears("Yes.")
    story.passes(200)
    assert [type(what) for what in story.book.announced][-1] is a.CallerSpoke
    story.stops()
    assert story.started()[-1].turn == 2
    assert texts(story)[-1] == ("user", "Yes.")


# --- an interruption ------------------------------------------------------------------------------


def test_a_word_to_stop_stops_at_once() -> None:
    """No deadline is waited for, and `response.done` and the record say why."""
    story = talking()
    story.speaks(100)
    got = story.guesses("Wait a")
    assert [type(what) for what in announced(got)] == [a.CallerSpoke, a.AgentYielded]
    (yielded,) = story.said(a.AgentYielded)
    assert (yielded.reason, yielded.after_ms) == ("stop_word", 150)
    assert story.outcomes()[0] == ("interrupted", "turn_detected")


def test_a_running_response_is_cancelled_when_somebody_takes_the_floor() -> None:
    """The client hears of their voice first, then of what it puts an end to."""
    story = Story(ducks=True)
    story.says()
    story.begins_to_answer(LONG, 10_000)
    story.speaks(100)
    got = story.guesses("I have a question")
    assert [type(what) for what in announced(got)] == [a.CallerSpoke, a.AgentYielded, a.ResponseEnded]
    assert story.ended() == [("cancelled", "turn_detected")]


def test_double_talk() -> None:
    """Both speak on: a voice that lasts for a second has the floor, words or none."""
    story = talking()
    story.speaks(950)
    assert story.book.core.agent.state is Agent.SPEAKING
    assert kinds(story) == ["ducked", "no_words"]
    story.goes_on(100, voiced_ms=900)
    assert kinds(story)[-1] == "sustained"
    assert story.book.core.caller.state is Caller.SPEAKING


def test_an_acknowledgement_among_others_does_not_add_up() -> None:
    """What was excused by its words does not count towards a voice that lasts."""
    story = talking()
    story.speaks(700)
    story.guesses("Yeah yeah")
    story.goes_on(600, voiced_ms=700)
    assert kinds(story) == ["ducked", "no_words"]
    story.goes_on(500, voiced_ms=1_300)
    assert kinds(story)[-1] == "sustained"


def test_a_transcriber_that_hears_words_in_a_hum_is_not_believed() -> None:
    """Of a hum of less than a second, only a word to stop counts; of a sound that only words have, all do."""
    for words, ends_as in (("And six and six", "no_words"), ("Stop.", "stop_word")):
        story = talking(believes_short=False)
        story.speaks(100)
        story.pauses()
        story.hears(words)
        assert kinds(story)[-1] == ends_as
    story = talking(believes_short=False)
    story.speaks(0)
    story.book.at(story.book.now_ms + 150, e.SpeechWentOn(150, hums=False))
    story.pauses()
    story.hears("Six of them")
    assert kinds(story)[-1] == "words"


def test_the_verdict_falls_in_time() -> None:
    """Within 300 ms of lowering the agent's voice, and time for the news to travel."""
    story = talking()
    story.speaks(0)
    ducked_ms = story.book.now_ms
    story.passes(279)
    assert kinds(story) == ["ducked"]
    story.passes(1)
    assert kinds(story) == ["ducked", "no_words"]
    (restored,) = story.said(a.AgentRestored)
    assert restored.after_ms == story.book.now_ms - ducked_ms == 280


def test_who_may_not_interrupt_ducks_nobody() -> None:
    """`interrupt_response: false`: they are heard, told of, and answered next."""
    story = talking(interrupt_response=False)
    story.says("And in Paris?")
    assert kinds(story) == []
    assert story.book.core.agent.state is not Agent.DUCKED
    assert story.outcomes()[0] in [("completed", ""), (None, "")]
    assert story.started()[-1].turn == 2


def test_immediate_brings_back_what_hosted_services_do() -> None:
    """Every voice is told of at once and interrupts."""
    story = talking(announce="immediate")
    got = story.speaks(0)
    assert announced(got)[0] == a.CallerSpoke("item_s_0003", story.book.now_ms - 360)
    assert story.outcomes()[0] == ("interrupted", "turn_detected")


def test_a_commit_is_the_client_s_word() -> None:
    """What it commits is a turn, whatever it sounds like."""
    story = talking()
    story.speaks(200)
    story.commits()
    assert kinds(story) == ["ducked", "client"]
    assert len(story.said(a.AudioCommitted)) == 2


# --- the agent's own voice ------------------------------------------------------------------------


def test_echo_by_its_words() -> None:
    """What the agent is saying comes back: it goes on, however much of it there is."""
    story = talking()
    story.speaks(500)
    story.guesses("two three four")
    story.goes_on(700, voiced_ms=500)
    story.pauses()
    story.hears("Two, tree, four.")
    story.stops()
    assert kinds(story) == ["ducked", "no_words"]
    story.passes(20_000)
    assert story.outcomes() == [("completed", "")]


def test_words_that_the_agent_said_long_ago_are_no_echo() -> None:
    """Who repeats them wants something."""
    story = talking(duration_ms=20_000)
    story.passes(15_000)
    story.speaks(100)
    story.guesses("One two three")
    assert kinds(story)[-1] == "words"


def test_echo_by_its_sound() -> None:
    """A voice that sounds like the agent is the agent's, as long as it does; it is not ducked for it again."""
    story = talking()
    story.speaks(0)
    story.goes_on(3_000, echoes=True)
    story.pauses()
    story.hears("")
    story.stops()
    assert kinds(story) == ["ducked", "echo"]
    story.speaks(0)
    story.goes_on(1_000, echoes=True)
    assert kinds(story) == ["ducked", "echo"]
    story.goes_on(200, voiced_ms=1_000)
    assert kinds(story)[-1] == "sustained"


def test_echo_outlasts_the_agent() -> None:
    """The end of it is heard when the agent is silent already: nobody is answered."""
    story = Story(ducks=True)
    story.says()
    story.answers(duration_ms=1_500)
    story.speaks(0)
    story.goes_on(1_500, echoes=True)
    assert story.book.core.agent.state is Agent.IDLE
    assert story.book.core.caller.state is Caller.QUIET
    story.pauses()
    story.passes(3_000)
    assert len(story.said(a.CallerSpoke)) == 1
    assert len(story.started()) == 1
    assert not story.book.core.floor.timers.due


# --- what was heard -------------------------------------------------------------------------------


def test_client_truncate() -> None:
    """The client silences the agent by itself and says where: the caller has the floor, and history ends there."""
    story = talking()
    story.speaks(100)
    story.truncates(story.started()[0].item_id, 2_100)
    assert texts(story)[1] == ("assistant", "One two three")
    assert [type(what) for what in story.book.announced][-1] is a.CallerSpoke
    assert story.book.core.caller.state is Caller.SPEAKING


def test_no_playback_reports() -> None:
    """Sound is taken to play as soon as it was sent; the record says that it is an estimate."""
    story = talking()
    story.speaks(100)
    story.guesses("Hold on")
    record = story.book.records["turn_s_0001"]
    assert (record.outcome, record.heard_by) == ("interrupted", "estimated")
    assert record.heard_text == texts(story)[1][1] == "One two three"


def test_a_word_between_turns_is_not_the_last_turn_s() -> None:
    """A streaming transcriber hears the agent too: what it says of an utterance that is answered changes nothing."""
    story = talking()
    story.book.at(
        story.book.now_ms + 50, e.TranscriptFinished(1, 0, "What time is it? It is noon.", provider="fake/stt")
    )
    assert texts(story)[0] == ("user", "What time is it?")
