"""The caller speaks while something else is going on: who yields, who waits, and what is told of it."""

from __future__ import annotations

from voicepipe.testing.playbook import announced, names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.commands import StartReply, StopReply
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Agent, Caller


def texts(story: Story) -> list[tuple[str, str]]:
    """The conversation's messages: (role, words)."""
    items = story.book.core.floor.conversation.items
    return [(item.role, item.text()) for item in items if isinstance(item, Message)]


def test_a_greeting_that_was_not_heard_yet_gives_way() -> None:
    """The caller speaks while the reply to `response.create` is being prepared: it is cancelled, and they are heard."""
    story = Story()
    story.creates()
    got = story.speaks()
    assert announced(got)[0] == a.CallerSpoke("item_s_0002", 740)
    assert story.ended() == [("cancelled", "turn_detected")]
    assert story.outcomes() == [("abandoned", "turn_detected")]
    story.pauses()
    story.hears()
    story.stops()
    assert story.started()[-1].turn == 2


def test_a_reply_that_waits_for_words_gives_way_too() -> None:
    """It was asked for and not started: nothing is stopped, and the wire hears of its end."""
    story = Story()
    story.speaks()
    story.commits()
    story.creates()
    got = story.speaks()
    assert not any(isinstance(order, StopReply) for order in got)
    assert story.ended() == [("cancelled", "turn_detected")]
    story.hears()
    assert story.started() == []


def test_an_out_of_band_reply_does_not_give_way() -> None:
    """It is not part of the conversation."""
    story = Story()
    story.creates(in_conversation=False, audible=False)
    story.speaks()
    assert story.ended() == []
    story.model_asked()
    story.token()
    story.model_done()
    story.voice_done()
    assert story.ended() == [("completed", "")]


def test_the_reply_is_cut_where_it_was_heard() -> None:
    """Two clauses were sent, one and a bit was played: history ends there, and so does the record."""
    story = Story(announce="immediate")
    story.says()
    story.begins_to_answer("One two three four.", 1_000)
    story.clause("Five six seven eight.")
    story.sound(1_000)
    story.sent(1_000)
    story.passes(1_080)
    story.speaks()
    assert texts(story)[1] == ("assistant", "One two three four. Five six")
    assert story.book.records["turn_s_0001"].heard_text == "One two three four. Five six"
    assert story.outcomes()[0] == ("interrupted", "turn_detected")


def test_both_the_playing_and_the_coming_reply_are_interrupted() -> None:
    """One plays on while the next is made: the caller's voice ends both."""
    story = Story(announce="immediate")
    story.says()
    story.answers("It is noon.", 10_000)
    story.creates()
    story.speaks()
    assert story.book.core.agent.state is Agent.IDLE
    assert story.outcomes()[:2] == [("interrupted", "turn_detected"), ("abandoned", "turn_detected")]


def test_sound_after_an_interruption_is_counted_from_silence() -> None:
    """What the client dropped is not waited for: the next reply is heard when it is sent."""
    story = Story()
    story.says()
    story.answers("It is noon.", 30_000)
    story.says("And in Paris?")
    story.answers("One o'clock.")
    story.passes(5_000)
    marks = dict(story.book.records["turn_s_0002"].marks)
    assert marks["heard"] - marks["first_sent"] == 20


def test_a_caller_who_may_not_interrupt_is_answered_next() -> None:
    """The reply is made to its end; then theirs begins, with both in the context."""
    story = Story(interrupt_response=False)
    story.says()
    story.begins_to_answer()
    story.says("And in Paris?")
    assert len(story.started()) == 1
    assert story.ended() == []
    got = story.model_done(of=0) + story.voice_done(of=0)
    assert names(got)[-2:] == ["StartReply", "ResponseStarted"]
    assert [item.id for item in story.started()[-1].items] == ["item_s_0001", "item_s_0002", "item_s_0003"]
    story.answers("One o'clock.")
    story.passes(5_000)
    assert story.outcomes() == [("completed", ""), ("completed", "")]


def test_of_several_turns_that_wait_the_latest_is_answered() -> None:
    """Its reply has read the others; each has a record that says so, and none is answered twice."""
    story = Story(interrupt_response=False)
    story.says()
    story.begins_to_answer()
    story.says("And in Paris?")
    story.says("And in Rome?")
    story.says("Hm.")
    story.hears("")
    story.model_done(of=0)
    story.voice_done(of=0)
    assert [reply.turn for reply in story.started()] == [1, 3]
    records = story.book.records
    assert records["turn_s_0002"].reason == "answered with the next turn"
    assert records["turn_s_0004"].reason == "nothing was said"


def test_an_answer_that_waits_does_not_begin_under_the_caller() -> None:
    """A guess of the new turn does not overtake the turn that waits."""
    story = Story(interrupt_response=False, speculate=True)
    story.says()
    story.begins_to_answer()
    story.says("And in Paris?")
    story.speaks()
    story.pauses()
    story.hears("And in Rome?")
    story.model_done(of=0)
    story.voice_done(of=0)
    assert [reply.turn for reply in story.started()] == [1, 2]


def test_who_may_not_interrupt_does_not_revise_either() -> None:
    """Speech before anything is audible is the next turn; the reply that is being made is answered as it is."""
    story = Story(interrupt_response=False)
    story.says()
    story.says("And in Paris?")
    assert [(reply.turn, reply.revision) for reply in story.started()] == [(1, 0)]
    story.answers(of=0)
    assert [(reply.turn, reply.revision) for reply in story.started()] == [(1, 0), (2, 0)]


def test_a_guess_with_old_words_is_not_let_out() -> None:
    """The turn was cut by its deadline with words still to come: what was guessed before them is made again."""
    story = Story(speculate=True, max_flushes=1, deadlines=Deadlines(utterance_ms=4_000))
    story.speaks()
    story.pauses()
    story.hears("What time")
    story.speaks(4_000)
    assert story.book.core.caller.state is Caller.ENDED
    story.speaks(0)
    story.hears("What time is it?")
    assert [item.text() for item in story.started()[-1].items if isinstance(item, Message)] == ["What time is it?"]


def test_noise_does_not_hold_the_floor() -> None:
    """Speech without a pause ends with its deadline; what goes on is the next turn, and the answer is heard over it."""
    story = Story(deadlines=Deadlines(utterance_ms=4_000))
    story.speaks(4_500)
    assert names(story.book.orders)[-5:] == [
        "CallerStopped",
        "FlushTranscript",
        "EndUtterance",
        "AudioCommitted",
        "ItemAdded",
    ]
    story.speaks(200)  # the ear hears the same voice anew
    assert story.book.core.caller.state is Caller.SPEAKING
    story.hears("A very long story")
    assert [(reply.turn, reply.revision) for reply in story.started()] == [(1, 0)]
    story.answers()
    story.passes(1_500)
    assert story.outcomes()[0] == ("completed", "")
    assert story.book.core.caller.state is Caller.SPEAKING
    assert story.book.core.unlawful == []


def test_noise_without_words_is_put_away() -> None:
    """However long it lasts: each stretch of it is a turn in which nothing was said."""
    story = Story(deadlines=Deadlines(utterance_ms=4_000))
    for _ in range(3):
        story.speaks(4_500)
        story.hears("")
    story.passes(10_000)
    assert story.outcomes() == [("abandoned", "nothing was said")] * 3
    assert story.started() == []


def test_an_ear_that_says_twice_that_speech_started() -> None:
    """The second one means nothing: one utterance, announced once."""
    story = Story()
    story.speaks()
    assert story.speaks() == []
    assert len(story.said(a.CallerSpoke)) == 1


def test_speech_beside_a_wished_reply_interrupts_it() -> None:
    """The client asked for a reply in the midst of the caller's words: when they go on, that ends it."""
    story = Story()
    story.speaks()
    story.creates()
    story.begins_to_answer()
    story.pauses()
    story.stops()
    story.speaks()
    assert story.ended() == [("cancelled", "turn_detected")]
    assert story.book.core.agent.state is Agent.IDLE
    assert story.book.core.caller.state is Caller.SPEAKING


def test_stale_facts_change_nothing() -> None:
    """What an earlier revision still sends is counted and dropped."""
    story = Story()
    story.says()
    story.says("And in Paris?")
    n_before = story.book.core.ignored
    assert story.token("old", of=0) == []
    assert story.book.core.ignored == n_before + 1
    starts = [order for order in story.book.orders if isinstance(order, StartReply)]
    assert [(start.turn, start.revision) for start in starts] == [(1, 0), (1, 1)]


def test_several_revisions() -> None:
    """Each pause that was not the end is a revision; the answer reads all that was said as one question."""
    story = Story(speculate=True)
    for words in ("What", "What time", "What time is it"):
        story.speaks()
        story.pauses()
        story.hears(words)
    story.stops()
    story.speaks()
    story.pauses()
    story.hears("in Paris?")
    story.stops()
    story.answers("One o'clock.")
    story.passes(5_000)
    assert story.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    record = story.book.records["turn_s_0001"]
    assert (record.revision, record.caller_text) == (3, "What time is it in Paris?")
    assert texts(story) == [("user", "What time is it"), ("user", "in Paris?"), ("assistant", "One o'clock.")]


def test_the_client_hears_of_speech_before_it_hears_of_its_consequences() -> None:
    """`speech_started` at once, then `response.done`."""
    story = Story(announce="immediate")
    story.says()
    story.begins_to_answer()
    kinds = [type(what) for what in announced(story.speaks())]
    assert kinds == [a.CallerSpoke, a.ResponseEnded]
