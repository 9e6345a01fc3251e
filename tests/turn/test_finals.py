"""A final text that is late: what the transcriber has guessed must do, and is put right when it comes."""

from __future__ import annotations

import pytest

from voicepipe.testing.playbook import names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.commands import Announce
from voicepipe.turn.finals import FinalTimes
from voicepipe.turn.machine import Core
from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.states import Agent, Caller
from voicepipe.turn.transcripts import REMEMBERED_UTTERANCES


def heard_quickly(story: Story, times: int = 3) -> None:
    """Turns whose final text comes 130 ms after the last voiced sample."""
    for _ in range(times):
        story.says()
        story.answers()
        story.passes(5_000)


def half_heard(story: Story, guess: str = "What time is it", *, silent: bool = True) -> None:
    """The caller asks, and the transcriber has only guessed yet."""
    story.speaks(500)
    story.guesses(guess)
    story.pauses()
    if silent:
        story.stops()


def test_a_guess_answers_when_the_final_text_is_later_than_usual() -> None:
    """It usually takes 130 ms from the last voiced sample, so 300 are waited for; the turn is over after 530."""
    story = Story()
    heard_quickly(story)
    half_heard(story)
    assert [reply.turn for reply in story.started()] == [1, 2, 3, 4]
    assert story.book.core.floor.conversation.items[-1].text() == "What time is it"  # type: ignore[union-attr]
    assert len(story.said(a.TranscriptDone)) == 3, "nothing is final"


def test_the_time_counts_from_the_last_voiced_sample() -> None:
    """Not from when the pause was noticed, nor from the end of the turn."""
    story = Story(speculate=True)
    heard_quickly(story)
    half_heard(story, silent=False)
    story.passes(200)
    assert len(story.started()) == 3
    story.passes(50)
    story.is_silent(400)
    assert len(story.started()) == 4


def test_a_final_text_with_the_same_words_changes_nothing_but_the_record() -> None:
    """The client is told it once."""
    story = Story()
    heard_quickly(story)
    half_heard(story)
    story.begins_to_answer()
    assert "StopReply" not in names(story.hears("What time is it?"))
    assert [what.transcript for what in story.said(a.TranscriptDone)][3:] == ["What time is it?"]
    assert len(story.started()) == 4


def test_a_late_text_with_other_words_revises_the_turn_while_nothing_is_audible() -> None:
    """The same turn, its next revision; one answer is heard."""
    story = Story()
    heard_quickly(story)
    half_heard(story)
    story.model_asked()
    assert names(story.hears("What time is it in Paris?"))[-4:] == [
        "StopReply",
        "ResponseEnded",
        "StartReply",
        "ResponseStarted",
    ]
    assert (story.started()[-1].turn, story.started()[-1].revision) == (4, 1)
    assert story.book.core.unlawful == []


def test_a_text_that_comes_when_the_answer_is_audible_starts_no_second_one() -> None:
    """It is put into the caller's message, where the next answer reads it."""
    story = Story()
    heard_quickly(story)
    half_heard(story)
    story.begins_to_answer()
    story.hears("What time is it in Paris?")
    assert len(story.started()) == 4
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    texts = [item.text() for item in story.book.core.floor.conversation.items]  # type: ignore[union-attr]
    assert texts[-2:] == ["What time is it in Paris?", "It is noon."]
    assert story.book.core.caller.state is Caller.QUIET
    assert story.book.core.unlawful == []


@pytest.mark.parametrize("ending", ["never", "breaks"])
def test_without_a_final_text_the_guess_stays(ending: str) -> None:
    """The client is told that it is all."""
    story = Story()
    heard_quickly(story)
    half_heard(story)
    story.answers()
    if ending == "breaks":
        story.goes_deaf()
    story.passes(20_000)
    assert [what.transcript for what in story.said(a.TranscriptDone)][3:] == ["What time is it"]
    assert story.said(a.TranscriptFailed) == []
    assert story.outcomes()[3] == ("completed", "")


def test_who_has_guessed_nothing_is_waited_for() -> None:
    """Until the deadline of the state: there is nothing to answer."""
    story = Story()
    heard_quickly(story)
    story.speaks()
    story.pauses()
    story.stops()
    story.passes(2_000)
    assert story.book.agent_state() is Agent.IDLE
    story.hears()
    assert story.book.agent_state() is Agent.PREPARING


def test_a_caller_who_goes_on_has_more_to_say() -> None:
    """The time of a pause that was none is no deadline."""
    story = Story()
    heard_quickly(story)
    half_heard(story, silent=False)
    story.speaks(2_000)
    assert story.book.core.caller.state is Caller.SPEAKING
    assert len(story.started()) == 3
    assert story.book.core.unlawful == []


def test_each_provider_has_its_own_time() -> None:
    """Unknown: a second. One slow text is no rule, and none is given less than 300 ms."""
    times = FinalTimes()
    assert times.patience_ms == 1_000
    for took_ms in (240, 250, 2_000):
        times.note("slow/stt", took_ms)
    assert times.patience_ms == 500
    times.note("quick/stt", 90)
    assert times.patience_ms == 1_000
    for _ in range(2):
        times.note("quick/stt", 90)
    assert times.patience_ms == 300


def test_a_commit_long_after_the_last_word_is_counted_from_itself() -> None:
    """Push to talk may be let go late: that is not the transcriber's time."""
    times = FinalTimes()
    assert times.due_ms(5_000, 5_100) == (5_000, 6_000)
    assert times.due_ms(5_000, 9_000) == (9_000, 10_000)


def test_many_short_utterances_are_all_told_of() -> None:
    """Their guesses stand for a while, and more of them are on their way than are remembered otherwise."""
    settings = TurnSettings(detection="none", transcribe=True, create_response=False)
    core, now_ms, told = Core("sess_s", settings), 0, list[a.Announcement]()

    def tell(fact: e.Fact) -> None:
        told.extend(order.what for order in core.handle(fact, now_ms) if isinstance(order, Announce))

    tell(e.SettingsChanged(settings))
    for number in range(1, 2 * REMEMBERED_UTTERANCES):
        tell(e.TranscriptGrew(number, "What time is it"))
        tell(e.CommitRequested(None, 300, None))
        now_ms += 300
        tell(e.TimePassed())
    while core.floor.timers.due:
        now_ms = min(core.floor.timers.due.values())
        tell(e.TimePassed())
    done = [what.item_id for what in told if isinstance(what, a.TranscriptDone)]
    assert len(set(done)) == len(done) == 2 * REMEMBERED_UTTERANCES - 1
