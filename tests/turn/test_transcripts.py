"""The user's words: shown early and never taken back, late ones, lost ones, and turns that the client ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.testing.core_driver import announced, names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import UserState


def sent(scenario: Scenario) -> list[str]:
    """The transcript's deltas."""
    return [what.delta for what in scenario.notified(a.TranscriptDelta)]


def user_texts(scenario: Scenario) -> list[str]:
    """What the conversation holds of the user."""
    items = scenario.driver.core.context.conversation.items
    return [item.text() for item in items if isinstance(item, Message) and item.role == "user"]


# --- shown early ----------------------------------------------------------------------------------


def test_words_common_to_two_interim_texts_are_sent() -> None:
    """Without the last one, which may still grow; the rest follows with the final text."""
    scenario = Scenario()
    scenario.speaks()
    for text in ("what", "what time", "what time is", "what time was it"):
        scenario.guesses(text)
    scenario.pauses()
    scenario.transcribes("what time was it in Rome")
    scenario.stops()
    assert sent(scenario) == ["what", " time", " was it in Rome"]


def test_sent_text_is_never_rewritten() -> None:
    """A final text that begins otherwise is sent whole at the end, and not as another delta."""
    scenario = Scenario()
    scenario.speaks()
    for text in ("what time is", "what time is it"):
        scenario.guesses(text)
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    assert sent(scenario) == ["what time"]
    assert [done.transcript for done in scenario.notified(a.TranscriptDone)] == ["What time is it?"]


def test_no_transcript_without_the_setting() -> None:
    """Without transcription the words stay here; the model reads them all the same."""
    scenario = Scenario()
    scenario.changes(transcribe=False)
    scenario.speaks()
    scenario.guesses("what time is")
    scenario.guesses("what time is it")
    scenario.pauses()
    scenario.transcribes("what time is it")
    scenario.stops()
    kinds = {type(what) for what in scenario.driver.announced}
    assert not kinds & {a.TranscriptDelta, a.TranscriptDone, a.TranscriptFailed}
    assert user_texts(scenario) == ["what time is it"]


@given(texts=st.lists(st.text("ab ", max_size=12), max_size=8), final=st.text("ab ", max_size=12))
def test_deltas_only_ever_grow_a_prefix(texts: list[str], final: str) -> None:
    """Whatever the interim texts were: the joined deltas are the beginning of one of them, or of the final text."""
    scenario = Scenario()
    scenario.speaks()
    for text in texts:
        scenario.guesses(text)
    scenario.pauses()
    scenario.transcribes(final)
    scenario.stops()
    joined = "".join(sent(scenario))
    assert any(text.startswith(joined) for text in [*texts, final.strip()])
    if final.strip().startswith(joined):
        assert joined == final.strip() or not final.strip()


# --- late, and lost -------------------------------------------------------------------------------


def test_late_words_revise_the_turn_while_nothing_is_audible() -> None:
    """The LLM gets a second request: the response that was announced ends, and another begins."""
    scenario = Scenario()
    scenario.utters("What time is it in")
    scenario.transcribes("What time is it in Paris?")
    assert scenario.ended() == [("cancelled", "turn_detected")]
    assert [(reply.turn, reply.revision) for reply in scenario.started()] == [(1, 0), (1, 1)]
    assert len(scenario.notified(a.TranscriptDone)) == 1


def test_late_words_join_their_item_once_the_reply_is_audible() -> None:
    """And start no second answer."""
    scenario = Scenario()
    scenario.utters("What time is it in")
    scenario.begins_to_answer()
    scenario.transcribes("What time is it in Paris?")
    assert user_texts(scenario) == ["What time is it in Paris?"]
    assert len(scenario.started()) == 1
    assert len(scenario.notified(a.TranscriptDone)) == 1


def test_words_of_a_pause_that_was_not_the_end_do_not_answer_for_the_next() -> None:
    """The turn waits for all that was said."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriptFinished(1, 1, "What time"))
    assert scenario.started() == []
    scenario.transcribes("What time is it?")
    assert len(scenario.started()) == 1


@pytest.mark.parametrize("flush", [2, 9])
def test_unrequested_text_is_ignored(flush: int) -> None:
    """A flush that is still to come can't have been answered."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    assert scenario.driver.at(scenario.driver.now_ms, e.TranscriptFinished(1, flush, "of somebody else")) == []


def test_a_transcriber_that_ends_utterances_by_itself() -> None:
    """Its words count for the pause that they come in."""
    scenario = Scenario()
    scenario.speaks()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriptFinished(1, 0, "too early"))
    scenario.pauses()
    scenario.stops()
    assert scenario.started() == []
    scenario.driver.at(scenario.driver.now_ms, e.TranscriptFinished(1, 0, "What time is it?"))
    assert user_texts(scenario) == ["What time is it?"]
    assert len(scenario.driver.core.context.conversation.items) == 1


def test_lost_words_fail_the_turn() -> None:
    """On the wire too, and the next turn works."""
    scenario = Scenario()
    scenario.speaks()
    scenario.stt_fails()
    scenario.pauses()
    got = scenario.stops()
    assert names(got)[-4:] == ["TranscriptFailed", "ResponseStarted", "ResponseEnded", "StoreRecord"]
    assert scenario.ended() == [("failed", "stt_failed")]
    assert dict(scenario.driver.records["turn_s_0001"].providers)["stt"] == "fake/stt"
    scenario.utters()
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.outcomes()[1] == ("completed", "")


def test_a_transcriber_that_breaks_when_all_is_known_loses_nothing() -> None:
    """The words of the pause are here, and are answered."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.stt_fails()
    scenario.stops()
    assert scenario.notified(a.TranscriptFailed) == []
    assert len(scenario.started()) == 1


def test_no_guess_is_made_of_lost_words() -> None:
    """Old words with a part missing are no question."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time")
    scenario.speaks()
    scenario.stt_fails()
    scenario.pauses()
    assert len(scenario.started()) == 1


def test_words_that_never_come_however_many_pieces_they_are_of() -> None:
    """Each committed piece has its deadline, and the oldest are not forgotten before it."""
    scenario = Scenario(deadlines=Deadlines(transcript_ms=20_000))
    for _ in range(12):
        scenario.speaks(100)
        scenario.pauses()
        scenario.stops()
    assert scenario.driver.user_state() is UserState.ENDED
    scenario.passes(30_000)
    assert len(scenario.notified(a.TranscriptFailed)) == 12
    assert scenario.ended() == [("failed", "stt_failed")]
    assert scenario.driver.user_state() is UserState.QUIET


def test_more_pauses_than_flushes() -> None:
    """A provider that works per flush gets no flush at every breath; the end of the turn flushes in any case."""
    scenario = Scenario(max_flushes=2)
    for _ in range(4):
        scenario.speaks()
        scenario.pauses()
    assert names(scenario.driver.commands).count("FlushTranscript") == 2
    got = scenario.stops()
    assert "FlushTranscript" in names(got)
    scenario.transcribes()
    assert len(scenario.started()) == 1


# --- the client ends the turn ---------------------------------------------------------------------


def manual() -> Scenario:
    """A session whose client says when a turn is over."""
    scenario = Scenario()
    scenario.changes(detection="none")
    return scenario


def test_push_to_talk() -> None:
    """No speech is announced; the commit makes the item, the request the reply; t0 is the last voiced sample."""
    scenario = manual()
    assert scenario.speaks() == []
    voiced_ms = scenario.driver.now_ms - 200
    got = scenario.commits(2_000, voiced_ms)
    assert names(got) == ["FlushTranscript", "EndUtterance", "AudioCommitted", "ItemAdded", "BeginUtterance"]
    assert names(scenario.creates()) == ["ResponseStarted"]
    assert names(scenario.transcribes())[-1] == "StartReply"
    scenario.answers()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert (record.cause, record.outcome) == ("commit", "completed")
    assert dict(record.marks)["voiced_last"] == voiced_ms
    assert {"stt_final", "gate_wait"} <= dict(record.parts).keys()
    assert scenario.notified(a.TranscriptDone)[0].speech_ms == 2_000


def test_a_commit_without_speech_in_it() -> None:
    """It is answered if the client wants it: it may know better."""
    scenario = manual()
    scenario.commits()
    scenario.creates()
    scenario.transcribes("")
    assert len(scenario.started()) == 1


@pytest.mark.parametrize("buffered_ms", [0, 99])
def test_a_commit_of_too_little(buffered_ms: int) -> None:
    """Refused by the name that clients know, and with the numbers."""
    (refused,) = announced(manual().commits(buffered_ms))
    assert isinstance(refused, a.Refused)
    assert (refused.code, refused.event_id) == ("input_audio_buffer_commit_empty", "evt")
    assert f"got {buffered_ms} ms" in refused.message


def test_commit_during_silence() -> None:
    """With detection on there is nothing to commit between the turns."""
    scenario = Scenario()
    (refused,) = announced(scenario.commits())
    assert isinstance(refused, a.Refused)
    assert refused.code == "input_audio_buffer_commit_empty"


def test_a_commit_in_mid_speech() -> None:
    """It ends the user's turn as silence would, and starts no reply by itself."""
    scenario = Scenario()
    scenario.speaks()
    got = scenario.commits()
    assert names(got)[:2] == ["InputSpeechStopped", "FlushTranscript"]
    scenario.transcribes()
    assert scenario.started() == []
    scenario.creates()
    assert scenario.started()[-1].turn == 1


def test_a_clear_forgets_what_is_not_committed() -> None:
    """The turn that had begun is dropped, and the next speech is a new one."""
    scenario = Scenario()
    scenario.speaks()
    got = scenario.clears()
    assert names(got) == ["DropAudio", "AudioCleared", "StoreRecord"]
    assert scenario.outcomes() == [("abandoned", "cleared by the client")]
    scenario.utters()
    assert scenario.started()[-1].turn == 2


def test_a_clear_by_hand() -> None:
    """Push to talk goes on with an empty buffer."""
    scenario = manual()
    assert names(scenario.clears()) == ["DropAudio", "AudioCleared", "BeginUtterance"]


def test_a_clear_leaves_a_turn_that_is_over() -> None:
    """Its audio is committed."""
    scenario = Scenario()
    scenario.utters()
    assert names(scenario.clears()) == ["DropAudio", "AudioCleared"]
    scenario.answers()
    assert scenario.ended() == [("completed", "")]


def test_detection_is_turned_off_in_mid_speech() -> None:
    """The open turn is dropped, and events of the VAD have no effect any more."""
    scenario = Scenario()
    scenario.speaks()
    got = scenario.changes(detection="none")
    assert names(got)[:2] == ["DropAudio", "BeginUtterance"]
    assert scenario.outcomes() == [("abandoned", "turn detection changed")]
    assert scenario.speaks() == []


def test_detection_is_turned_on_again() -> None:
    """The buffer of the client's own turn is dropped, and the VAD opens the next turn."""
    scenario = manual()
    assert names(scenario.changes(detection="vad")) == ["DropAudio"]
    scenario.utters()
    assert len(scenario.started()) == 1


def test_the_same_settings_again() -> None:
    """An update of something else changes no turn."""
    scenario = manual()
    assert scenario.changes(transcribe=False) == []
    scenario.commits()
    assert len(scenario.notified(a.AudioCommitted)) == 1


def test_speech_that_starts_twice_changes_nothing() -> None:
    scenario = Scenario()
    scenario.speaks()
    turn = scenario.driver.core.user.turn
    assert scenario.speaks() == []
    assert (scenario.driver.core.user.turn, scenario.driver.user_state()) == (turn, UserState.SPEAKING)
