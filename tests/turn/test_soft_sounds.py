"""A sound over an answer that began softly: it takes the answer back, or the answer goes on where it stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.turn.talk import ANSWER, ANSWER_MS, QUESTION, Talk, kinds
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState


def test_a_voice_in_the_first_second_stops_the_answer_at_once() -> None:
    """Without a decision: the client is notified of the speech, then the response is cancelled where it was heard."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    talk.at(audible_ms + 500)
    got = talk.at(audible_ms + 500, e.SpeechStarted(audible_ms + 440, audible_ms + 440))
    assert kinds(got) == ["InputSpeechStarted", "SuspendReply", "ResponseEnded"]
    assert talk.scene.ended() == [("cancelled", "turn_detected")]
    assert any(isinstance(each, c.Duck) for each in got), "the voice is followed"
    assert talk.agent() is AgentState.READY
    assert talk.user() is UserState.SPEAKING


def test_what_follows_is_the_same_turn() -> None:
    """One user message, one answer, one record; the LLM reads nothing of the answer that was dropped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    got = talk.says("And tomorrow?", from_ms=audible_ms + 500)
    assert "StopReply" in kinds(got)
    talk.silent_until(200)
    start = talk.scene.started()[-1]
    spoken = [item for item in start.items if isinstance(item, Message) and not item.hidden_from_llm]
    assert [(item.role, item.text()) for item in spoken] == [("user", QUESTION), ("user", "And tomorrow?")]
    talk.answers("Tomorrow it will rain.")
    talk.silent_until(720)
    talk.sends()
    talk.at(talk.scene.driver.now_ms + 10_000)
    records = talk.scene.driver.records
    assert len(records) == 1
    record = next(iter(records.values()))
    assert (record.outcome, record.resumed, record.user_text) == ("completed", 1, f"{QUESTION} And tomorrow?")
    assert record.taken_back_ms == 560
    assert record.played_text == "Tomorrow it will rain."
    assert record.total_ms is not None
    assert 340 <= record.total_ms <= 720
    assert talk.items() == [
        ("user", QUESTION, False),
        ("assistant", "It will", True),
        ("user", "And tomorrow?", False),
        ("assistant", "Tomorrow it will rain.", False),
    ]
    assert talk.scene.driver.illegal_moves == []


@pytest.mark.parametrize("words", ["", "Mhm.", "um"])
def test_a_sound_without_words_does_not_end_the_answer(words: str) -> None:
    """It goes on at the word where it stopped, within 700 ms of the sound, in another response."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    stop_ms = audible_ms + 700
    talk.says(None, from_ms=stop_ms, for_ms=200)
    got = talk.gets(words, talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    assert resumed.text == "be sunny and warm all day long in town."
    assert resumed.from_ms == ANSWER.index("be") * ANSWER_MS // len(ANSWER), "where that word begins"
    assert talk.scene.driver.now_ms - talk.ended_ms <= 700
    assert kinds(got)[:2] == ["InputSpeechStopped", "AudioCommitted"], "as at the end of any speech"
    assert talk.agent() is AgentState.SPEAKING
    assert talk.user() is UserState.QUIET
    talk.sends(ANSWER_MS - resumed.from_ms)
    talk.at(talk.scene.driver.now_ms + 10_000)
    record = next(iter(talk.scene.driver.records.values()))
    assert (record.outcome, record.resumed, record.taken_back_ms) == ("completed", 0, 0)
    assert record.agent_text == record.played_text == ANSWER
    assert record.user_text == QUESTION
    assert record.total_ms == audible_ms - 2_000
    assert talk.items() == [
        ("user", QUESTION, False),
        ("assistant", "It will", False),
        ("user", words, True),
        ("assistant", "be sunny and warm all day long in town.", False),
    ]
    assert talk.scene.driver.illegal_moves == []


def test_the_answer_goes_on_when_no_text_comes() -> None:
    """600 ms after the sound; words that come later are an interruption like any other."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 590)
    assert talk.agent() is AgentState.READY
    got = talk.at(talk.ended_ms + 610)
    assert [type(each).__name__ for each in got if isinstance(each, c.ContinueReply)] == ["ContinueReply"]
    talk.sends(1_000)
    got = talk.gets("No, tomorrow.", talk.ended_ms + 900)
    assert talk.user() is UserState.HOLDING
    assert "StopReply" in kinds(got)
    assert "InputSpeechStarted" in kinds(got), "so that the client flushes what it plays"
    talk.silent_until(1_000)
    assert talk.scene.driver.illegal_moves == []


def test_no_reply_waits_for_the_text_of_a_sound() -> None:
    """It never comes; what the client requests afterwards is answered."""
    talk = Talk(deadlines=Deadlines(transcript_ms=900))
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 610)
    talk.sends(3_800)
    talk.at(talk.ended_ms + 12_000)
    n_started = len(talk.scene.started())
    talk.at(talk.ended_ms + 12_010, e.ReplyRequested("evt", talk.scene.driver.settings.reply))
    assert len(talk.scene.started()) == n_started + 1


def test_the_agents_own_echo_stops_it_once() -> None:
    """It goes on at the pause, without waiting for a text; the next such voice is judged before it stops anything."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 200, e.SpeechStarted(audible_ms + 140, audible_ms + 140))
    assert talk.agent() is AgentState.READY
    talk.at(audible_ms + 500, e.SpeechWentOn(360, echoes=True))
    got = talk.at(audible_ms + 600, e.SpeechPaused(audible_ms + 520, audible_ms + 520))
    assert any(isinstance(each, c.ContinueReply) for each in got)
    assert talk.agent() is AgentState.SPEAKING
    talk.sends(3_000)
    talk.at(audible_ms + 700, e.SpeechStarted(audible_ms + 660, audible_ms + 660))
    assert talk.agent() is AgentState.SPEAKING, "it is the agent's own again, as far as anybody knows"


def test_a_second_sound_in_what_is_left_of_the_second() -> None:
    """The second counts what was heard, however often it was stopped; nothing of the answer is lost."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says("", from_ms=audible_ms + 300, for_ms=100)
    talk.sends(3_000)
    again_ms = talk.scene.driver.now_ms + 300
    talk.says("", from_ms=again_ms, for_ms=100)
    talk.sends(3_000)
    turn = talk.scene.driver.core.agent.turn
    assert turn is not None
    assert f"{turn.reply.earlier_text} {turn.reply.text}" == ANSWER
    assert turn.audible_played_ms(talk.scene.driver.now_ms) < 1_000
    talk.at(talk.scene.driver.now_ms + 1_100)
    talk.at(talk.scene.driver.now_ms + 10, e.SpeechStarted(talk.scene.driver.now_ms, 0))
    assert talk.agent() is AgentState.DUCKED
    assert talk.scene.driver.illegal_moves == []


def test_the_clients_report_moves_the_word_at_which_it_goes_on() -> None:
    """The client truncates the answer to what was heard, as it does at every interruption."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    item_id = talk.scene.started()[-1].item_id
    talk.says(None, from_ms=audible_ms + 900, for_ms=100)
    talk.scene.truncates(item_id, 300)
    got = talk.gets("", talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    assert resumed.text == ANSWER.partition(" ")[2]
    assert resumed.from_ms < 300


def test_a_voice_that_pauses_before_its_words_come_is_one_voice() -> None:
    """The answer does not go on while the user speaks again; then the second pause counts."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    first_ms = talk.ended_ms
    got = talk.at(first_ms + 300, e.SpeechStarted(first_ms + 240, first_ms + 240))
    assert [type(each) for each in got if isinstance(each, c.Duck)] == [c.Duck]
    assert kinds(talk.at(first_ms + 700)) == []
    assert (talk.agent(), talk.user()) == (AgentState.READY, UserState.SPEAKING)
    second_ms = first_ms + 800
    talk.at(second_ms, e.SpeechWentOn(200), e.SpeechPaused(second_ms, second_ms))
    assert kinds(talk.at(second_ms + 590)) == []
    assert "ContinueReply" in kinds(talk.at(second_ms + 610))
    assert talk.scene.driver.illegal_moves == []


def test_two_halves_of_a_voice_are_as_long_as_one() -> None:
    """A second of voice in all has words, unless the STT says that it has none: the answer is dropped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 100, for_ms=600)
    talk.at(talk.ended_ms + 200, e.SpeechStarted(talk.ended_ms + 140, talk.ended_ms + 140))
    assert kinds(talk.at(talk.ended_ms + 300, e.SpeechWentOn(300))) == []
    ended_ms = talk.ended_ms + 500
    talk.at(ended_ms, e.SpeechWentOn(400))
    talk.at(ended_ms + 80, e.SpeechPaused(ended_ms, ended_ms))
    got = talk.at(ended_ms + 5_000)
    assert "StopReply" in kinds(got)
    assert "ContinueReply" not in kinds(got)


@pytest.mark.parametrize("for_ms", [1_100, 3_000])
def test_a_long_sound_without_words_does_not_end_the_answer(for_ms: int) -> None:
    """Laughter, a vacuum cleaner: once the STT says that it has no words, the answer goes on where it stopped."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=for_ms)
    assert talk.agent() is AgentState.READY
    got = talk.gets("", talk.ended_ms + 150)
    resumed = next(each for each in got if isinstance(each, c.ContinueReply))
    talk.sends(ANSWER_MS - resumed.from_ms)
    talk.at(talk.scene.driver.now_ms + 10_000)
    (record,) = talk.scene.driver.records.values()
    assert (record.outcome, record.resumed, record.played_text) == ("completed", 0, ANSWER)
    assert len(talk.scene.started()) == 1, "the LLM is asked once"
    assert talk.scene.driver.illegal_moves == []


def test_a_long_voice_with_words_resumes_the_turn_when_they_come() -> None:
    """With the first of them, in an interim text, or with all at the pause."""
    for interim in (True, False):
        talk = Talk()
        audible_ms = talk.is_answered_softly()
        talk.says(None, from_ms=audible_ms + 300, for_ms=2_000)
        at_ms = talk.ended_ms + 100
        event: e.Event = e.TranscriptFinished(talk.utterance, 1, "And tomorrow?", provider="fake/stt")
        if interim:
            event = e.TranscriptGrew(talk.utterance, "And tom")
        assert "StopReply" in kinds(talk.at(at_ms, event))
        assert talk.scene.driver.illegal_moves == []


def test_a_long_voice_whose_text_fails_is_taken_for_words() -> None:
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=2_000)
    got = talk.at(talk.ended_ms + 120, e.TranscriberFailed(talk.utterance, "fake/stt", "broke"))
    assert "StopReply" in kinds(got)
    assert "ContinueReply" not in kinds(got)


def test_what_is_reported_of_a_voice_after_its_pause_counts_for_nothing() -> None:
    """Its first pause is the one whose words are awaited."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    late = (e.SpeechWentOn(1_200), e.SpeechPaused(talk.ended_ms + 400, talk.ended_ms + 400))
    assert kinds(talk.at(talk.ended_ms + 500, *late)) == []
    assert "ContinueReply" in kinds(talk.at(talk.ended_ms + 610))


LATE_TEXTS = {
    "interim": lambda number: e.TranscriptGrew(number, QUESTION),
    "final": lambda number: e.TranscriptFinished(number, 1, QUESTION, provider="fake/stt"),
    "failed": lambda number: e.TranscriberFailed(number, "fake/stt", "broke"),
}


@pytest.mark.parametrize("late", LATE_TEXTS.values(), ids=LATE_TEXTS)
def test_a_late_text_of_what_was_said_before_is_none_of_the_voice(late: Any) -> None:
    """Neither its words nor its failure: the voice is still judged, by its own text."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    earlier = talk.utterance
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    assert talk.utterance != earlier
    assert kinds(talk.at(talk.ended_ms + 100, late(earlier))) == []
    assert talk.agent() is AgentState.READY
    assert "StopReply" in kinds(talk.gets("And tomorrow?", talk.ended_ms + 200))


def test_the_answer_goes_on_when_the_voices_text_fails() -> None:
    """But not while the user still speaks."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    number = talk.scene.driver.core.user.turn.question.utterances[-1].number  # type: ignore[union-attr]
    failed = e.TranscriberFailed(number, "fake/stt", "broke")
    assert kinds(talk.at(audible_ms + 320, failed)) == []
    talk.at(audible_ms + 480, e.SpeechPaused(audible_ms + 400, audible_ms + 400))
    assert "ContinueReply" in kinds(talk.at(audible_ms + 500, failed))


def test_an_answer_that_failed_after_the_voice_is_not_restored() -> None:
    """The time at which it was to go on finds none."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    talk.at(talk.ended_ms + 100, e.StageFailed(*talk.scene._key(-1), "tts", "fake/tts", "broke"))
    got = talk.at(talk.ended_ms + 610)
    assert not {"ContinueReply", "StopReply"} & set(kinds(got))
    assert talk.scene.driver.illegal_moves == []


def test_a_sound_after_a_short_answer_has_nothing_to_continue() -> None:
    """All of it was played, and its end was not yet certain: no response is made of nothing."""
    talk = Talk()
    talk.is_answered_softly("Yes.", 100)
    talk.at(2_490, e.SpeechStarted(2_470, 2_470))
    assert (talk.agent(), talk.user()) == (AgentState.READY, UserState.SPEAKING)
    talk.at(2_700, e.SpeechPaused(2_620, 2_620))
    got = talk.gets("", 2_720)
    assert kinds(got) == ["InputSpeechStopped", "AudioCommitted"]
    got = talk.at(4_000)
    assert (talk.agent(), talk.user()) == (AgentState.IDLE, UserState.QUIET)
    record = next(iter(talk.scene.driver.records.values()))
    assert (record.outcome, record.played_text, record.taken_back_ms) == ("completed", "Yes.", 0)
    assert talk.scene.ended() == [("completed", "")]
    assert talk.scene.driver.illegal_moves == []


def test_the_playback_report_moves_the_word_at_which_it_goes_on() -> None:
    """Unless the client has truncated the answer itself."""
    for truncates in (False, True):
        talk = Talk()
        audible_ms = talk.is_answered_softly()
        item_id = talk.scene.started()[-1].item_id
        talk.says(None, from_ms=audible_ms + 900, for_ms=100)
        if truncates:
            talk.scene.truncates(item_id, 700)
        talk.at(talk.ended_ms + 100, e.PlaybackReported(item_id, 300, 0, 3_000))
        got = talk.gets("", talk.ended_ms + 150)
        resumed = next(each for each in got if isinstance(each, c.ContinueReply))
        assert (resumed.from_ms < 300) is not truncates


def test_an_answer_that_fails_while_it_is_stopped_is_made_again() -> None:
    """The sound had no words; the answer isn't lost."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    key = talk.scene._key(-1)
    talk.at(audible_ms + 320, e.StageFailed(*key, "tts", "fake/tts", "broke"))
    talk.ended_ms = audible_ms + 400
    talk.at(talk.ended_ms + 80, e.SpeechPaused(talk.ended_ms, talk.ended_ms))
    talk.gets("", talk.ended_ms + 120)
    talk.silent_until(1_400)
    assert len(talk.scene.started()) == 2
    assert talk.scene.started()[-1].items[0].parts == (InputAudio(QUESTION),)  # type: ignore[union-attr]


def test_a_cleared_buffer_lets_the_answer_go_on() -> None:
    """The answer goes on at once."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    got = talk.at(audible_ms + 400, e.ClearRequested("evt"))
    assert any(isinstance(each, c.ContinueReply) for each in got)
    assert talk.agent() is AgentState.SPEAKING


def test_a_commit_that_is_refused_lets_the_answer_go_on() -> None:
    """Too little audio to commit: nothing is ended, neither softly nor by an interruption."""
    talk = Talk()
    started_ms = talk.is_answered_softly()
    talk.at(started_ms + 300, e.SpeechStarted(started_ms + 240, started_ms + 240))
    assert talk.agent() is AgentState.READY
    got = talk.at(started_ms + 320, e.CommitRequested("evt", 20, None))
    assert len(talk.scene.notified(a.Refused)) == 1
    assert kinds(got) == []
    assert talk.agent() is AgentState.READY


def test_a_watched_turn_says_nothing_of_a_voice_that_is_not_judged_yet() -> None:
    """Its marks are of two pauses then, and the new one lies behind the answer. All comes once the turn goes on."""
    talk = Talk(watched=True)
    audible_ms = talk.is_answered_softly()
    talk.says(None, from_ms=audible_ms + 300, for_ms=200)
    before = len(talk.scene.notified(a.TurnMarked))
    assert talk.at(talk.ended_ms + 100, e.SilenceGrew(100)) == []
    talk.gets("In Rome, please.", talk.ended_ms + 120)
    marked = talk.scene.notified(a.TurnMarked)[before:]
    assert {"voiced_last", "flushed", "transcribed"} <= {each.mark for each in marked}
    assert {each.revision for each in marked} == {1}
