"""The caller's words: shown early and never taken back, late ones, lost ones, and turns that the client ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.testing.playbook import announced, names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Caller


def shown(story: Story) -> list[str]:
    """The transcript's deltas."""
    return [what.delta for what in story.said(a.TranscriptDelta)]


def user_texts(story: Story) -> list[str]:
    """What the conversation holds of the caller."""
    items = story.book.core.floor.conversation.items
    return [item.text() for item in items if isinstance(item, Message) and item.role == "user"]


# --- shown early ----------------------------------------------------------------------------------


def test_words_that_two_interim_texts_agree_on_are_shown() -> None:
    """Without the last one, which may still grow; the rest follows with the final text."""
    story = Story()
    story.speaks()
    for text in ("what", "what time", "what time is", "what time was it"):
        story.guesses(text)
    story.pauses()
    story.hears("what time was it in Rome")
    story.stops()
    assert shown(story) == ["what", " time", " was it in Rome"]


def test_what_was_shown_is_never_rewritten() -> None:
    """A final text that begins otherwise is told whole at the end, and not as another delta."""
    story = Story()
    story.speaks()
    for text in ("what time is", "what time is it"):
        story.guesses(text)
    story.pauses()
    story.hears("What time is it?")
    story.stops()
    assert shown(story) == ["what time"]
    assert [done.transcript for done in story.said(a.TranscriptDone)] == ["What time is it?"]


def test_nothing_is_shown_to_a_client_that_did_not_ask() -> None:
    """Without transcription the words stay here; the model reads them all the same."""
    story = Story()
    story.changes(transcribe=False)
    story.speaks()
    story.guesses("what time is")
    story.guesses("what time is it")
    story.pauses()
    story.hears("what time is it")
    story.stops()
    kinds = {type(what) for what in story.book.announced}
    assert not kinds & {a.TranscriptDelta, a.TranscriptDone, a.TranscriptFailed}
    assert user_texts(story) == ["what time is it"]


@given(texts=st.lists(st.text("ab ", max_size=12), max_size=8), final=st.text("ab ", max_size=12))
def test_deltas_only_ever_grow_a_prefix(texts: list[str], final: str) -> None:
    """Whatever the interim texts were: the joined deltas are the beginning of one of them, or of the final text."""
    story = Story()
    story.speaks()
    for text in texts:
        story.guesses(text)
    story.pauses()
    story.hears(final)
    story.stops()
    joined = "".join(shown(story))
    assert any(text.startswith(joined) for text in [*texts, final.strip()])
    if final.strip().startswith(joined):
        assert joined == final.strip() or not final.strip()


# --- late, and lost -------------------------------------------------------------------------------


def test_late_words_revise_the_turn_while_nothing_is_audible() -> None:
    """The model is asked again: the response that was announced ends, and another begins."""
    story = Story()
    story.says("What time is it in")
    story.hears("What time is it in Paris?")
    assert story.ended() == [("cancelled", "turn_detected")]
    assert [(reply.turn, reply.revision) for reply in story.started()] == [(1, 0), (1, 1)]
    assert len(story.said(a.TranscriptDone)) == 1


def test_late_words_join_their_item_once_the_reply_is_audible() -> None:
    """And start no second answer."""
    story = Story()
    story.says("What time is it in")
    story.begins_to_answer()
    story.hears("What time is it in Paris?")
    assert user_texts(story) == ["What time is it in Paris?"]
    assert len(story.started()) == 1
    assert len(story.said(a.TranscriptDone)) == 1


def test_words_of_a_pause_that_was_not_the_end_do_not_answer_for_the_next() -> None:
    """The turn waits for all that was said."""
    story = Story()
    story.speaks()
    story.pauses()
    story.speaks()
    story.pauses()
    story.stops()
    story.book.at(story.book.now_ms, e.TranscriptFinished(1, 1, "What time"))
    assert story.started() == []
    story.hears("What time is it?")
    assert len(story.started()) == 1


@pytest.mark.parametrize("flush", [2, 9])
def test_words_that_nobody_asked_for_change_nothing(flush: int) -> None:
    """A flush that is still to come can't have been answered."""
    story = Story()
    story.speaks()
    story.pauses()
    story.stops()
    assert story.book.at(story.book.now_ms, e.TranscriptFinished(1, flush, "of somebody else")) == []


def test_a_transcriber_that_ends_utterances_by_itself() -> None:
    """Its words count for the pause that they come in."""
    story = Story()
    story.speaks()
    story.book.at(story.book.now_ms, e.TranscriptFinished(1, 0, "too early"))
    story.pauses()
    story.stops()
    assert story.started() == []
    story.book.at(story.book.now_ms, e.TranscriptFinished(1, 0, "What time is it?"))
    assert user_texts(story) == ["What time is it?"]
    assert len(story.book.core.floor.conversation.items) == 1


def test_lost_words_fail_the_turn() -> None:
    """On the wire too, and the next turn works."""
    story = Story()
    story.speaks()
    story.goes_deaf()
    story.pauses()
    got = story.stops()
    assert names(got)[-4:] == ["TranscriptFailed", "ResponseStarted", "ResponseEnded", "KeepRecord"]
    assert story.ended() == [("failed", "stt_failed")]
    assert dict(story.book.records["turn_s_0001"].providers)["stt"] == "fake/stt"
    story.says()
    story.answers()
    story.passes(5_000)
    assert story.outcomes()[1] == ("completed", "")


def test_a_transcriber_that_breaks_when_all_is_known_loses_nothing() -> None:
    """The words of the pause are here, and are answered."""
    story = Story()
    story.speaks()
    story.pauses()
    story.hears()
    story.goes_deaf()
    story.stops()
    assert story.said(a.TranscriptFailed) == []
    assert len(story.started()) == 1


def test_no_guess_is_made_of_lost_words() -> None:
    """Old words with a part missing are no question."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears("What time")
    story.speaks()
    story.goes_deaf()
    story.pauses()
    assert len(story.started()) == 1


def test_words_that_never_come_however_many_pieces_they_are_of() -> None:
    """Each committed piece has its deadline, and the oldest are not forgotten before it."""
    story = Story(deadlines=Deadlines(transcript_ms=20_000))
    for _ in range(12):
        story.speaks(100)
        story.pauses()
        story.stops()
    assert story.book.user_state() is Caller.ENDED
    story.passes(30_000)
    assert len(story.said(a.TranscriptFailed)) == 12
    assert story.ended() == [("failed", "stt_failed")]
    assert story.book.user_state() is Caller.QUIET


def test_more_pauses_than_flushes() -> None:
    """A provider that is asked per flush is not asked at every breath; the end of the turn asks in any case."""
    story = Story(max_flushes=2)
    for _ in range(4):
        story.speaks()
        story.pauses()
    assert names(story.book.orders).count("FlushTranscript") == 2
    got = story.stops()
    assert "FlushTranscript" in names(got)
    story.hears()
    assert len(story.started()) == 1


# --- the client ends the turn ---------------------------------------------------------------------


def manual() -> Story:
    """A session whose client says when a turn is over."""
    story = Story()
    story.changes(detection="none")
    return story


def test_push_to_talk() -> None:
    """No speech is announced; the commit makes the item, the request the reply; t0 is the last voiced sample."""
    story = manual()
    assert story.speaks() == []
    voiced_ms = story.book.now_ms - 200
    got = story.commits(2_000, voiced_ms)
    assert names(got) == ["FlushTranscript", "EndUtterance", "AudioCommitted", "ItemAdded", "BeginUtterance"]
    assert names(story.creates()) == ["ResponseStarted"]
    assert names(story.hears())[-1] == "StartReply"
    story.answers()
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert (record.cause, record.outcome) == ("commit", "completed")
    assert dict(record.marks)["voiced_last"] == voiced_ms
    assert {"stt_final", "gate_wait"} <= dict(record.parts).keys()
    assert story.said(a.TranscriptDone)[0].speech_ms == 2_000


def test_a_commit_without_speech_in_it() -> None:
    """It is answered if the client wants it: it may know better."""
    story = manual()
    story.commits()
    story.creates()
    story.hears("")
    assert len(story.started()) == 1


@pytest.mark.parametrize("buffered_ms", [0, 99])
def test_a_commit_of_too_little(buffered_ms: int) -> None:
    """Refused by the name that clients know, and with the numbers."""
    (refused,) = announced(manual().commits(buffered_ms))
    assert isinstance(refused, a.Refused)
    assert (refused.code, refused.event_id) == ("input_audio_buffer_commit_empty", "evt")
    assert f"got {buffered_ms} ms" in refused.message


def test_a_commit_while_nobody_speaks() -> None:
    """With detection on there is nothing to commit between the turns."""
    story = Story()
    (refused,) = announced(story.commits())
    assert isinstance(refused, a.Refused)
    assert refused.code == "input_audio_buffer_commit_empty"


def test_a_commit_in_mid_speech() -> None:
    """It ends the caller's turn as silence would, and starts no reply by itself."""
    story = Story()
    story.speaks()
    got = story.commits()
    assert names(got)[:2] == ["CallerStopped", "FlushTranscript"]
    story.hears()
    assert story.started() == []
    story.creates()
    assert story.started()[-1].turn == 1


def test_a_clear_forgets_what_is_not_committed() -> None:
    """The turn that had begun is given up, and the next speech is a new one."""
    story = Story()
    story.speaks()
    got = story.clears()
    assert names(got) == ["DropAudio", "AudioCleared", "KeepRecord"]
    assert story.outcomes() == [("abandoned", "cleared by the client")]
    story.says()
    assert story.started()[-1].turn == 2


def test_a_clear_by_hand() -> None:
    """Push to talk goes on with an empty buffer."""
    story = manual()
    assert names(story.clears()) == ["DropAudio", "AudioCleared", "BeginUtterance"]


def test_a_clear_leaves_a_turn_that_is_over() -> None:
    """Its audio is committed."""
    story = Story()
    story.says()
    assert names(story.clears()) == ["DropAudio", "AudioCleared"]
    story.answers()
    assert story.ended() == [("completed", "")]


def test_detection_is_turned_off_in_mid_speech() -> None:
    """The open turn is given up, and the ear means nothing any more."""
    story = Story()
    story.speaks()
    got = story.changes(detection="none")
    assert names(got)[:2] == ["DropAudio", "BeginUtterance"]
    assert story.outcomes() == [("abandoned", "turn detection changed")]
    assert story.speaks() == []


def test_detection_is_turned_on_again() -> None:
    """The buffer of the client's own turn is dropped, and the ear opens the next."""
    story = manual()
    assert names(story.changes(detection="vad")) == ["DropAudio"]
    story.says()
    assert len(story.started()) == 1


def test_the_same_settings_again() -> None:
    """An update of something else changes no turn."""
    story = manual()
    assert story.changes(transcribe=False) == []
    story.commits()
    assert len(story.said(a.AudioCommitted)) == 1


def test_speech_that_starts_twice_changes_nothing() -> None:
    story = Story()
    story.speaks()
    turn = story.book.core.caller.turn
    assert story.speaks() == []
    assert (story.book.core.caller.turn, story.book.user_state()) == (turn, Caller.SPEAKING)
