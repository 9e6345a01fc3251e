"""A transcriber that ends the utterance by itself, sooner than the ear can: permission to work, until proved wrong."""

from __future__ import annotations

from voicepipe.testing.playbook import names
from voicepipe.testing.story import Story
from voicepipe.turn import budget
from voicepipe.turn.states import Agent, Caller


def test_its_final_starts_the_reply_before_the_ear_hears_a_pause() -> None:
    """The model is asked at once; the pause that follows changes nothing, and the gate opens at the turn's end."""
    story = Story(speculate=True)
    story.speaks()
    assert names(story.ends_it()) == ["StartReply"]
    story.model_asked()
    story.pauses()
    assert "StartReply" not in names(story.hears())
    story.token()
    story.clause()
    story.sound()
    assert story.book.core.agent.state is Agent.READY
    assert "OpenGate" in names(story.stops())
    assert story.book.core.unlawful == []


def test_a_caller_who_speaks_on_takes_it_back() -> None:
    """No pause within 300 ms: the guess is put away, and the caller was speaking all along."""
    story = Story(speculate=True)
    story.speaks()
    story.ends_it("What time")
    got = names(story.passes(400))
    assert got == ["StopReply"]
    assert story.book.core.caller.state is Caller.SPEAKING
    story.pauses()
    story.hears("What time is it?")
    story.stops()
    assert story.book.core.caller.turn is not None
    assert story.book.core.caller.turn.question.text == "What time is it?"
    assert story.book.core.unlawful == []


def test_more_words_start_the_reply_again() -> None:
    """A second final in the same breath: the question is the longer one."""
    story = Story(speculate=True)
    story.speaks()
    story.ends_it("What time")
    assert names(story.ends_it("What time is it?")) == ["StopReply", "StartReply"]
    story.pauses()
    story.hears("What time is it?")
    assert story.book.core.unlawful == []


def test_its_word_counts_for_nothing_without_leave_to_guess() -> None:
    """An agent that must not spend tokens on guesses waits for the end of the turn."""
    story = Story(speculate=False)
    story.speaks()
    assert story.ends_it() == []
    assert story.book.core.caller.state is Caller.SPEAKING


def test_guesses_are_few() -> None:
    """A caller who stops and goes on again and again costs three starts before the turn is over, and one at its end."""
    story = Story(speculate=True, max_flushes=3)
    started = 0
    story.speaks(200)
    for n in range(6):
        started += names(story.ends_it("and" + " so on" * n)).count("StartReply")
        story.passes(400)
    assert started == 3
    story.pauses()
    story.hears("and so on")
    assert "StartReply" in names(story.stops())
    assert story.book.core.unlawful == []


def test_a_commit_while_in_doubt_counts_as_speech() -> None:
    """The client ends the turn before the ear could: t0 is what the client's commit says."""
    story = Story(speculate=True)
    story.speaks()
    story.ends_it()
    got = names(story.commits(last_voiced_ms=story.book.now_ms))
    assert got[:2] == ["CallerStopped", "FlushTranscript"]
    story.hears()
    story.creates()
    story.answers("It is noon.")
    story.passes(60_000)
    record = story.book.records["turn_s_0001"]
    assert budget.VOICED_LAST in dict(record.marks)
    assert record.outcome == "completed"
    assert story.book.core.unlawful == []
