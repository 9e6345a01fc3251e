"""The user's loudspeaker: what of an answer was audible, and when."""

from __future__ import annotations

import numpy as np

from voicepipe.audio.samples import Samples, silence, to_pcm
from voicepipe.client import RATE_HZ
from voicepipe.client import events as e
from voicepipe.evals.conversation import CHAR_MS, AgentReply, ObservedConversation, agent_audio

PER_MS = RATE_HZ // 1_000


def loud(duration_ms: int) -> Samples:
    return np.full(duration_ms * PER_MS, 8_000, dtype=np.int16)


def audio(duration_ms: int, *, silent_ms: int = 0) -> e.ReplyAudio:
    return e.ReplyAudio("r", to_pcm(np.concatenate((silence(silent_ms * PER_MS), loud(duration_ms)))))


def answered() -> ObservedConversation:
    """An answer that arrives at 1000 and 1100 ms, and plays from 1050 to 1550 ms."""
    conversation = ObservedConversation()
    conversation.handle(e.SpeechStarted(0), 100)
    conversation.handle(e.SpeechStopped(500), 900)
    conversation.handle(e.TranscriptionCompleted(" a table "), 910)
    assert conversation.answer_due
    conversation.handle(e.ReplyStarted("r", "t"), 920)
    conversation.handle(e.ReplyText("r", "It is free on Friday."), 930)
    conversation.handle(audio(250, silent_ms=50), 1_000)
    conversation.handle(audio(250), 1_100)
    return conversation


def test_audio_plays_in_order_from_its_arrival() -> None:
    conversation = answered()
    (reply,) = conversation.replies
    assert (reply.audible_ms, reply.played_until_ms(), conversation.plays_until_ms) == (1_050, 1_550, 1_550)
    assert conversation.replying
    conversation.handle(e.ReplyEnded("r", "completed", ""), 1_200)
    assert not conversation.replying
    assert not conversation.answer_due
    assert conversation.transcripts == ["a table"]
    track = agent_audio(conversation.replies, 2_000)
    assert len(track) == 2_000 * PER_MS
    assert list(np.flatnonzero(np.diff(track)) // PER_MS) == [1_049, 1_549]


def test_the_users_voice_stops_the_loudspeaker() -> None:
    conversation = answered()
    conversation.handle(e.SpeechStarted(0), 1_300)
    (reply,) = conversation.replies
    assert (reply.audible_ms, reply.played_until_ms(), conversation.plays_until_ms) == (1_050, 1_300, 1_300)
    conversation.handle(e.ReplyEnded("r", "cancelled", "turn_detected"), 1_320)
    assert reply.played_until_ms() == 1_300


def test_of_a_cut_answer_the_words_of_its_audio_were_played() -> None:
    """At 65 ms a character; of a word that was cut, nothing."""
    reply = AgentReply("r", "t", False, words={"item": ["This is ", "long."]})
    assert reply.played_text() == ""
    reply.pieces, reply.audible_ms = [(1_000, loud(600))], 1_000
    assert reply.played_text() == "This is"
    reply.pieces.append((1_600, loud(300)))
    assert reply.played_text() == "This is long."


def test_an_answer_that_is_dropped_before_it_plays_was_not_audible() -> None:
    conversation = answered()
    conversation.handle(e.ReplyEnded("r", "cancelled", "turn_detected"), 1_040)
    assert conversation.replies[0].audible_ms is None


def test_a_words_place_is_its_share_of_the_text() -> None:
    conversation = answered()
    (reply,) = conversation.replies
    assert reply.word_ms("friday") == 1_050 + 14 * CHAR_MS
    assert reply.word_ms("saturday") is None
    conversation.handle(e.ReplyEnded("r", "completed", ""), 1_200)
    assert reply.word_ms("Friday") == 1_050 + 14 * 500 // 21


def test_no_words_get_no_answer_and_errors_are_collected() -> None:
    conversation = ObservedConversation()
    conversation.handle(e.SpeechStopped(500), 900)
    conversation.handle(e.TranscriptionCompleted(" "), 910)
    assert not conversation.answer_due
    conversation.handle(e.TranscriptionFailed("broke"), 920)
    conversation.handle(e.ServerError("c", "wrong"), 930)
    conversation.handle(audio(5), 940)  # of no answer
    assert (conversation.errors, conversation.replies) == (["the transcription failed: broke", "wrong"], [])


def typed_with_a_tool() -> ObservedConversation:
    """The answer to a typed message calls a tool that the server runs."""
    conversation = ObservedConversation()
    conversation.answer_due = True
    conversation.handle(e.ReplyStarted("r1", "t1"), 100)
    conversation.handle(e.ReplyEnded("r1", "completed", "", goes_on=True), 110)
    return conversation


def test_a_turn_goes_on_until_the_tools_result_is_answered() -> None:
    """Neither a filler nor the late answer of another turn ends it."""
    conversation = typed_with_a_tool()
    assert (conversation.replying, conversation.turn_goes_on) == (False, True)
    for reply, turn, item in (("r2", "t1", f"{e.FILLER}1"), ("r3", "t0", "item_1")):
        conversation.handle(e.ReplyStarted(reply, turn), 200)
        conversation.handle(e.ReplyText(reply, "One moment.", item), 210)
        conversation.handle(e.ReplyEnded(reply, "completed", ""), 220)
        assert conversation.turn_goes_on
    conversation.handle(e.ReplyStarted("r4", "t1"), 1_600)
    conversation.handle(e.ReplyText("r4", "At nine.", "item_2"), 1_610)
    assert conversation.turn_goes_on
    conversation.handle(e.ReplyEnded("r4", "completed", ""), 1_620)
    assert (conversation.replying, conversation.turn_goes_on) == (False, False)


def test_a_turn_is_over_when_a_newer_one_is_answered() -> None:
    conversation = typed_with_a_tool()
    conversation.answer_due = True  # the user goes on meanwhile
    conversation.handle(e.ReplyStarted("r2", "t2"), 200)
    assert not conversation.turn_goes_on
    conversation.handle(e.ReplyEnded("r2", "failed", "broke"), 210)
    assert not conversation.turn_goes_on


def test_a_call_of_the_clients_tool_goes_on_as_well() -> None:
    conversation = ObservedConversation()
    conversation.handle(e.ReplyStarted("r1", "t1"), 100)
    conversation.handle(e.FunctionCalled("r1", "c1", "find_table", "{}"), 105)
    conversation.handle(e.ReplyEnded("r1", "completed", ""), 110)
    assert conversation.turn_goes_on


def test_a_filler_is_no_answer_and_stands_apart() -> None:
    conversation = ObservedConversation()
    conversation.handle(e.ReplyStarted("r", "t"), 100)
    conversation.handle(e.ReplyText("r", "One moment, please.", f"{e.FILLER}1"), 110)
    conversation.handle(e.ReplyAudio("r", to_pcm(loud(200)), f"{e.FILLER}1"), 120)
    (reply,) = conversation.replies
    assert (reply.audible_ms, reply.played_until_ms()) == (None, 320)
    conversation.handle(e.ReplyText("r", "The capital ", "item_1"), 130)
    conversation.handle(e.ReplyText("r", "is Paris.", "item_1"), 140)
    conversation.handle(e.ReplyAudio("r", to_pcm(loud(200)), "item_1"), 150)
    assert reply.text == "One moment, please. The capital is Paris."
    assert reply.audible_ms == 320


def test_an_answer_that_fails_behind_its_filler_ends_the_turn() -> None:
    conversation = typed_with_a_tool()
    conversation.handle(e.ReplyStarted("r2", "t1"), 200)
    conversation.handle(e.ReplyText("r2", "One moment.", f"{e.FILLER}1"), 210)
    assert conversation.turn_goes_on
    conversation.handle(e.ReplyEnded("r2", "failed", "llm: no output"), 220)
    assert not conversation.turn_goes_on
