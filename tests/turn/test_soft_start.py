"""An answer that begins before the end of the turn is certain: when it begins, and from when on it stays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.turn.talk import ANSWER_MS, QUESTION, Talk, kinds, soft
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.settings import Deadlines, ReplySettings
from voicepipe.turn.states import AgentState, UserState
from voicepipe.values import replace


def test_the_answer_is_audible_when_the_end_is_likely() -> None:
    """A whole question: after 350 ms, and not earlier."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    assert len(talk.scene.started()) == 0
    talk.silent_until(180)
    assert len(talk.scene.started()) == 1, "work begins after 180 ms"
    talk.answers()
    assert talk.silent_until(340) == []
    assert kinds(talk.silent_until(360))[:4] == ["InputSpeechStopped", "AudioCommitted", "ResponseStarted", "OpenGate"]
    assert talk.agent() is AgentState.SPEAKING
    assert talk.user() is UserState.QUIET


def test_an_open_sentence_is_waited_for() -> None:
    """ "from" wants a place: 700 ms, though the answer is ready."""
    talk = Talk()
    talk.says("I want it from", from_ms=1_000)
    talk.silent_until(300)
    talk.answers()
    talk.silent_until(680)
    assert talk.agent() is AgentState.READY
    talk.silent_until(700)
    assert talk.agent() is AgentState.SPEAKING


def test_after_the_first_second_an_interruption_is_judged() -> None:
    """As for any answer."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    got = talk.at(audible_ms + 1_050)
    assert [type(each).__name__ for each in got if isinstance(each, c.FinalizeReply)] == ["FinalizeReply"]
    talk.at(audible_ms + 1_100, e.SpeechStarted(audible_ms + 1_040, audible_ms + 1_040))
    assert talk.agent() is AgentState.DUCKED


@pytest.mark.parametrize(
    "settings",
    [{"create_response": False}, {"interrupt_response": False}, {"reply": ReplySettings(audible=False)}],
    ids=["create_response", "interrupt_response", "text"],
)
def test_sessions_that_never_begin_softly(settings: dict[str, Any]) -> None:
    """Their turns end as `adaptive` ends them."""
    talk = Talk(**settings)
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(480)
    assert talk.user() is UserState.HOLDING
    talk.silent_until(500)
    assert talk.user() is not UserState.HOLDING


def test_push_to_talk_never_begins_softly() -> None:
    """A commit is the client's: its answer is interrupted like any other."""
    scene = soft(detection="none")
    scene._see(scene.driver.at(1_000, e.SettingsChanged(scene.driver.settings)))
    scene.commits()
    scene.transcribes(QUESTION)
    scene._see(scene.driver.at(scene.driver.now_ms, e.ReplyRequested("evt", scene.driver.settings.reply)))
    scene.begins_to_answer()
    assert not any(isinstance(each, c.OpenGate) and each.reversible for each in scene.driver.commands)


def test_who_resumed_twice_is_waited_for_a_little_longer() -> None:
    """By 100 ms, and only from the third time on."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    for words in ("And on Monday?", "And on Tuesday?"):
        talk.says(words, from_ms=audible_ms + 300)
        talk.silent_until(200)
        talk.answers()
        talk.silent_until(460)
        talk.sends()
        audible_ms = talk.scene.driver.now_ms
    ended_ms = audible_ms - talk.ended_ms
    assert 450 <= ended_ms <= 460


def test_the_answer_to_an_earlier_turn_is_not_taken_back() -> None:
    """The user has said another turn since: a voice over the answer is judged as any interruption."""
    talk = Talk(deadlines=Deadlines(utterance_ms=1_150), speculate=False)
    talk.says(QUESTION, from_ms=1_000)
    talk.at(2_300)
    assert talk.user() is UserState.ENDED, "the user has spoken for the longest time allowed"
    talk.at(2_500, e.SpeechStarted(2_440, 2_440))
    assert talk.user() is UserState.SPEAKING, "in the next turn"
    talk.at(2_700, e.SpeechPaused(2_600, 2_600), e.TranscriptFinished(talk.utterance, 1, "And tomorrow?"))
    talk.at(3_400, e.SilenceGrew(800))
    assert (talk.user(), talk.agent()) == (UserState.QUIET, AgentState.PREPARING), (
        "the second turn waits for the first answer"
    )
    talk.answers(whole=False)
    talk.sends()
    got = talk.at(3_600, e.SpeechStarted(3_540, 3_540))
    assert "SuspendReply" not in kinds(got)
    assert talk.agent() is AgentState.DUCKED


def test_a_sound_after_the_words_of_an_answer_does_not_lose_its_calls() -> None:
    """The words were played, and the calls wait: they leave in a response of their own."""
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    key, now_ms = talk.scene._key(-1), talk.scene.driver.now_ms
    talk.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.ModelTextReceived(*key, "Yes."))
    talk.at(now_ms, e.ClauseHandedOver(*key, 0, "Yes.", "fake/tts"), e.SoundArrived(*key, 0, 100, 0))
    talk.at(now_ms, e.CallGrew(*key, 0, "call_1", "weather", "{}"))
    talk.at(now_ms, e.ModelFinished(*key, "tool_calls"), e.SynthesisFinished(*key))
    talk.silent_until(360)
    talk.sends(100)
    talk.at(2_490, e.SpeechStarted(2_470, 2_470))
    talk.at(2_600, e.SpeechPaused(2_520, 2_520))
    assert talk.agent() is AgentState.READY
    talk.gets("", 2_620)
    talk.at(4_000)
    assert talk.scene.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    started = [what for what in talk.scene.notified(a.OutputStarted) if isinstance(what.item, FunctionCall)]
    responses = talk.scene.notified(a.ResponseStarted)
    assert [each.response_id for each in started] == [responses[-1].response_id]


def test_a_short_answer_is_over_before_it_is_irrevocable() -> None:
    """The time that finds no reply makes none irrevocable, and nothing else happens then."""
    talk = Talk()
    talk.is_answered_softly("Yes.", 200)
    talk.at(2_700)
    assert talk.agent() is AgentState.IDLE
    assert kinds(talk.at(5_000)) == []


def test_an_outcome_that_waits_is_recorded_when_the_user_leaves() -> None:
    """The answer was played to its end, and the end of the turn was not yet certain."""
    talk = Talk()
    talk.is_answered_softly("Yes.", 100)
    talk.at(2_480)
    assert next(iter(talk.scene.driver.records.values())).outcome is None
    talk.at(2_490, e.UserLeft("client_left"))
    assert next(iter(talk.scene.driver.records.values())).outcome == "completed"


def test_a_failure_that_waits_is_recorded_when_the_user_leaves() -> None:
    """The answer broke before the end of the turn was certain."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    talk.at(audible_ms + 50, e.StageFailed(*talk.scene._key(-1), "llm", "fake/llm", "broke"))
    assert [record.outcome for record in talk.scene.driver.records.values()] == [None]
    talk.at(audible_ms + 100, e.UserLeft("client_left"))
    assert [record.outcome for record in talk.scene.driver.records.values()] == ["failed"]


def test_a_message_that_the_client_deleted_is_not_taken_back() -> None:
    """The user goes on: the answer's message is gone, and stays so."""
    talk = Talk()
    audible_ms = talk.is_answered_softly()
    item_id = talk.scene.started()[-1].item_id
    talk.at(audible_ms + 300, e.SpeechStarted(audible_ms + 240, audible_ms + 240))
    talk.at(audible_ms + 350, e.ItemDeleteRequested("evt", item_id))
    talk.ended_ms = audible_ms + 900
    talk.at(talk.ended_ms + 80, e.SpeechWentOn(600), e.SpeechPaused(talk.ended_ms, talk.ended_ms))
    assert "StopReply" in kinds(talk.gets("And tomorrow?", talk.ended_ms + 120))
    talk.silent_until(720)
    assert [words for _, words, _ in talk.items()] == [QUESTION, "And tomorrow?"]
    assert talk.scene.driver.illegal_moves == []


def test_an_earlier_answer_that_still_plays_is_interrupted_for_good() -> None:
    """It was not interruptible when the user spoke over it; the answer behind it may go on, and this one may not."""
    talk = Talk(interrupt_response=False)
    driver = talk.scene.driver
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(720)
    talk.answers("A long story.", 20_000)
    talk.sends(20_000)
    talk.says("And tomorrow?", from_ms=4_000)
    talk.at(driver.now_ms, e.SettingsChanged(replace(driver.settings, interrupt_response=True)))
    talk.silent_until(200)
    talk.answers()
    talk.silent_until(360)
    talk.sends()
    got = talk.at(driver.now_ms + 100, e.SpeechStarted(driver.now_ms + 60, driver.now_ms + 60))
    assert kinds(got) == ["InputSpeechStarted", "StopReply", "SuspendReply"]
    stopped = next(each for each in got if isinstance(each, c.StopReply))
    suspended = next(each for each in got if isinstance(each, c.SuspendReply))
    assert (stopped.turn, suspended.turn) == (1, 2)
    assert driver.records["turn_s_0001"].outcome == "interrupted"
    talk.at(driver.now_ms + 200, e.SpeechPaused(driver.now_ms + 100, driver.now_ms + 100))
    assert "ContinueReply" in kinds(talk.at(driver.now_ms + 700))
    assert driver.illegal_moves == []


def test_a_report_of_playback_ends_no_answer_that_is_still_written() -> None:
    """All that came was played; the LLM may write more."""
    talk = Talk()
    audible_ms = talk.is_answered_softly(whole=False)
    item_id = talk.scene.started()[-1].item_id
    talk.at(audible_ms + 1_500, e.PlaybackReported(item_id, 1_400, 0, 4_000))
    talk.at(audible_ms + 5_000, e.PlaybackReported(item_id, ANSWER_MS, 0, 7_500))
    assert talk.agent() is AgentState.SPEAKING
    talk.completes()
    talk.at(audible_ms + 6_000)
    assert talk.agent() is AgentState.IDLE
    assert [record.outcome for record in talk.scene.driver.records.values()] == ["completed"]


def test_an_answer_is_not_taken_back_once_another_is_requested() -> None:
    """A sound would open a second response of the conversation beside the requested one, which waits for words."""
    talk = Talk()
    scene = talk.scene
    scene.speaks(100)
    scene.commits()
    talk.says(QUESTION, from_ms=scene.driver.now_ms)
    talk.silent_until(300)
    talk.answers()
    talk.silent_until(380)
    assert talk.agent() is AgentState.SPEAKING
    got = scene.creates()
    assert "FinalizeReply" in kinds(got)
    requested = scene.notified(a.ResponseStarted)[-1].response_id
    at_ms = scene.driver.now_ms + 40
    assert "SuspendReply" not in kinds(talk.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 60)))
    talk.at(at_ms + 100, e.SpeechPaused(at_ms, at_ms))
    talk.gets("", at_ms + 120)
    assert talk.agent() is AgentState.SPEAKING
    assert scene.notified(a.ResponseStarted)[-1].response_id == requested


def test_a_turn_that_waits_is_answered_with_the_one_that_goes_on() -> None:
    """The words of an overlong turn are late. An answer to it alone would be spoken while the user goes on."""
    talk = Talk(deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900))
    scene = talk.scene
    talk.at(1_000, e.SpeechStarted(940, 940))
    talk.at(6_100)
    talk.says(QUESTION, from_ms=6_200, for_ms=200)
    talk.silent_until(380)
    talk.answers(whole=False)
    talk.sends(200)
    talk.says(None, from_ms=scene.driver.now_ms, for_ms=1_100)
    assert len(scene.started()) == 1
    talk.gets("And tomorrow?", talk.ended_ms + 120)
    assert talk.user() is UserState.HOLDING
    assert scene.outcomes() == [("abandoned", "answered with the next turn")]
    assert len(scene.started()) == 1
    assert scene.driver.illegal_moves == []
