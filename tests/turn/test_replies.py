"""What becomes of a reply: words, calls, both, neither; complete, cancelled, failed, cut; heard or not."""

from __future__ import annotations

import pytest

from voicepipe.testing.playbook import announced, names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.answers import MOST_ASIDES
from voicepipe.turn.commands import OpenGate, StopReply
from voicepipe.turn.conversation import FunctionCall, FunctionOutput, InputText, Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import Agent


def messages(story: Story) -> list[tuple[str, str, str]]:
    """The conversation's messages: (role, words, status)."""
    items = story.book.core.floor.conversation.items
    return [(item.role, item.text(), item.status) for item in items if isinstance(item, Message)]


# --- calls ----------------------------------------------------------------------------------------


def test_a_reply_of_calls_only() -> None:
    """Each call is an item of its own; nothing is played; the record is complete though nothing was heard."""
    story = Story()
    story.says()
    story.model_asked()
    story.call('{"city":')
    story.call('"Paris"}', first=False)
    story.call("", index=1)
    story.model_done("tool_calls")
    got = story.voice_done()
    assert names(got)[:2] == ["ResponseEnded", "KeepRecord"]
    assert story.outcomes() == [("completed", "")]
    assert story.book.core.floor.conversation.items[1:] == [
        FunctionCall("item_s_0002_call0", "call_0", "look_up", '{"city":"Paris"}', "completed"),
        FunctionCall("item_s_0002_call1", "call_1", "look_up", "{}", "completed"),
    ]
    record = story.book.records["turn_s_0001"]
    assert (record.total_ms, record.heard_by, record.heard_text) == (None, "nobody", "")
    assert {span.stage for span in record.stages} == {"endpoint", "llm_ttft"}


def test_words_and_a_call_together() -> None:
    """Both are announced, in the order in which they came; the answer to the call is another turn."""
    story = Story()
    story.says()
    story.begins_to_answer("Let me see.")
    story.call()
    story.model_done("tool_calls")
    story.voice_done()
    assert [type(what.item).__name__ for what in story.said(a.OutputStarted)] == ["Message", "FunctionCall"]
    story.offers(FunctionOutput("", "call_0", "12:00"))
    story.creates()
    story.answers("It is noon.")
    story.passes(5_000)
    assert story.book.records["turn_s_0002"].cause == "tool"
    assert story.outcomes() == [("completed", ""), ("completed", "")]


def test_words_after_a_call_are_not_lost() -> None:
    """A call opens the gate; the message begins with its first word, before any clause of it is closed."""
    story = Story()
    story.says()
    story.model_asked()
    story.call()
    got = story.token("Just a ")
    assert [type(what.item).__name__ for what in announced(got) if isinstance(what, a.OutputStarted)] == ["Message"]


def test_white_space_before_a_call_is_no_message() -> None:
    """Some models begin every answer with a line break."""
    story = Story()
    story.says()
    story.model_asked()
    story.token("\n\n")
    story.call()
    story.model_done("tool_calls")
    story.voice_done()
    assert [type(what.item).__name__ for what in story.said(a.OutputStarted)] == ["FunctionCall"]


def test_an_answer_without_anything() -> None:
    """The model has nothing to say: the response is empty and complete, and the turn is over."""
    story = Story()
    story.says()
    story.model_asked()
    story.model_done()
    story.voice_done()
    assert story.ended() == [("completed", "")]
    assert story.said(a.OutputStarted) == []
    assert story.outcomes() == [("completed", "")]


@pytest.mark.parametrize(("reason", "cut_by"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_reply_that_the_model_cut_short(reason: str, cut_by: str) -> None:
    """It is incomplete on the wire; what there is of it was played, and the record says why it is short."""
    story = Story()
    story.says()
    story.begins_to_answer("It is no")
    story.model_done(reason)  # type: ignore[arg-type]
    story.voice_done()
    story.passes(5_000)
    assert story.ended() == [("incomplete", cut_by)]
    assert story.outcomes() == [("completed", reason)]
    assert messages(story)[1] == ("assistant", "It is no", "incomplete")


# --- cancelled ------------------------------------------------------------------------------------


def test_a_cancel_before_anything_was_sent() -> None:
    """The turn is over, the caller is not held up, and their next words are a new turn."""
    story = Story()
    story.says()
    got = story.cancels()
    assert names(got) == ["StopReply", "ResponseEnded", "KeepRecord"]
    assert story.outcomes() == [("abandoned", "client_cancelled")]
    story.says("And in Paris?")
    assert story.started()[-1].turn == 2


def test_a_cancel_in_mid_reply() -> None:
    """Cut where it was heard."""
    story = Story()
    story.says()
    story.begins_to_answer("One two three four five six.", 2_000)
    story.passes(950)
    story.cancels("resp_s_0001")
    assert story.outcomes() == [("interrupted", "client_cancelled")]
    assert messages(story)[1] == ("assistant", "One two three", "incomplete")


def test_a_cancel_that_comes_too_late() -> None:
    """The response is done and plays on: the cancel is refused in the words that clients look for."""
    story = Story()
    story.says()
    story.answers()
    (refused,) = announced(story.cancels())
    assert isinstance(refused, a.Refused)
    assert (refused.code, refused.event_id) == ("response_cancel_not_active", "evt")
    assert refused.message.startswith("Cancellation failed")
    story.passes(5_000)
    assert story.outcomes() == [("completed", "")]


def test_a_cancel_of_another_response() -> None:
    """The one that runs is not touched."""
    story = Story()
    story.says()
    (refused,) = announced(story.cancels("resp_nobody"))
    assert isinstance(refused, a.Refused)
    assert "resp_nobody" in refused.message
    assert story.ended() == []


def test_a_cancel_of_a_reply_that_waits_for_words() -> None:
    """It was announced, so it ends on the wire; the model is never asked."""
    story = Story()
    story.changes(detection="none")
    story.commits()
    story.creates()
    story.cancels()
    story.hears()
    assert story.ended() == [("cancelled", "client_cancelled")]
    assert story.started() == []


def test_a_guess_can_not_be_cancelled() -> None:
    """The client knows of none."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    assert names(story.cancels()) == ["Refused"]
    assert story.book.core.agent.state is Agent.PREPARING


# --- failed ---------------------------------------------------------------------------------------


def test_a_voice_that_breaks_in_mid_reply() -> None:
    """What was sent is played to its end: history ends there, and the next turn works."""
    story = Story()
    story.says()
    story.begins_to_answer("One two three.", 2_000)
    story.clause("Four five six.")
    story.breaks("tts")
    assert story.ended() == [("failed", "tts_failed")]
    assert story.outcomes() == [("failed", "tts: fake/tts: broke")]
    assert messages(story)[1] == ("assistant", "One two three.", "incomplete")
    assert story.book.records["turn_s_0001"].heard_text == "One two three."
    story.says("Hello?")
    story.answers()
    story.passes(5_000)
    assert story.outcomes()[1] == ("completed", "")


def test_a_model_that_never_says_that_it_is_done() -> None:
    """All sound has come and was played, and no end of the text: the deadline of its next step ends the turn."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.voice_done()
    story.passes(9_000)
    assert story.ended() == []
    story.passes(2_000)
    assert story.ended() == [("failed", "llm_failed")]
    assert story.outcomes() == [("failed", "llm: no progress for 10000 ms")]


def test_a_voice_that_never_says_that_it_is_done() -> None:
    """The other way round."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.model_done()
    story.passes(11_000)
    assert story.outcomes() == [("failed", "tts: no progress for 10000 ms")]


def test_a_client_that_takes_nothing() -> None:
    """The reply is complete and does not leave: the turn ends, and the client is to blame."""
    story = Story()
    story.says()
    story.model_asked()
    story.token()
    story.clause()
    story.sound()
    story.model_done()
    story.voice_done()
    assert story.ended() == [("completed", "")]
    story.passes(11_000)
    assert story.outcomes() == [("failed", "client: no progress for 10000 ms")]
    assert story.book.core.agent.state is Agent.IDLE


def test_a_voice_that_never_begins() -> None:
    """There was a clause and no sound: the voice had the floor."""
    story = Story()
    story.says()
    story.model_asked()
    story.token()
    story.clause()
    story.passes(11_000)
    assert story.outcomes() == [("failed", "tts: nothing to say within 10000 ms")]


def test_a_reply_without_end() -> None:
    """It goes on step by step, and is ended by the limit of a whole reply."""
    story = Story(deadlines=Deadlines(reply_ms=2_000))
    story.says()
    story.model_asked()
    story.token()
    story.clause()
    for _ in range(60):
        if story.ended():
            break
        story.sound(20)
        story.sent(20)
    assert story.outcomes() == [("failed", "reply: not complete within 2000 ms")]


def test_a_guess_that_breaks_is_forgotten() -> None:
    """Nobody knew of it: the end of the turn asks again, and that one is answered."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    story.breaks()
    story.stops()
    story.answers()
    story.passes(5_000)
    assert [(reply.turn, reply.revision) for reply in story.started()] == [(1, 0), (1, 1)]
    assert story.outcomes() == [("completed", "")]


# --- out of band, in text -------------------------------------------------------------------------


def test_an_out_of_band_reply_runs_beside_another() -> None:
    """It joins no history, and both are played."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.creates(in_conversation=False, context=(Message("m", "user", (InputText("Sum up."),)),))
    assert story.started()[-1].items == (Message("m", "user", (InputText("Sum up."),)),)
    story.answers("A summary.", 2_000)
    story.model_done(of=0)
    story.voice_done(of=0)
    assert story.ended() == [("completed", ""), ("completed", "")]
    assert [role for role, *_ in messages(story)] == ["user", "assistant"]
    story.passes(5_000)
    assert story.outcomes() == [("completed", ""), ("completed", "")]
    assert story.book.records["turn_s_0002"].heard_text == "A summary."


def test_out_of_band_replies_are_bounded() -> None:
    """Each costs a question to the model; a client can't ask without end."""
    story = Story()
    for _ in range(MOST_ASIDES):
        story.creates(in_conversation=False)
    (refused,) = announced(story.creates(in_conversation=False))
    assert isinstance(refused, a.Refused)
    assert refused.code == "too_many_active_responses"
    story.breaks(of=0)
    assert names(story.creates(in_conversation=False)) == ["ResponseStarted", "StartReply"]


def test_one_reply_of_the_conversation_at_a_time() -> None:
    """A second one is refused while one is made, not while one only plays."""
    story = Story()
    story.creates()
    (refused,) = announced(story.creates())
    assert isinstance(refused, a.Refused)
    assert refused.code == "conversation_already_has_active_response"
    story.answers()
    assert names(story.creates()) == ["ResponseStarted", "StartReply"]


def test_a_reply_in_text_lasts_until_it_was_sent() -> None:
    """A model that is faster than the line does not end the turn before its text has left."""
    story = Story()
    story.creates(audible=False)
    story.model_asked()
    story.token()
    story.model_done()
    story.voice_done()
    assert story.ended() == [("completed", "")]
    story.sent(0)
    record = story.book.records["turn_s_0001"]
    assert record.outcome == "completed"
    assert record.total_ms is not None
    assert (record.heard_text, record.unattributed_ms) == ("It is noon.", 0)


def test_a_reply_in_text_that_was_cancelled() -> None:
    """Text that has left stays left: history holds all of it, as incomplete."""
    story = Story()
    story.creates(audible=False)
    story.model_asked()
    story.token("It is ")
    story.sent(0)
    story.cancels()
    assert messages(story) == [("assistant", "It is ", "incomplete")]
    assert story.outcomes() == [("interrupted", "client_cancelled")]


# --- what is settled while it waits ---------------------------------------------------------------


def test_settings_that_change_do_not_end_a_reply_that_was_announced() -> None:
    """The client was told that a response is being made."""
    story = Story()
    story.says()
    story.changes(create_response=False)
    story.answers()
    assert story.ended() == [("completed", "")]


def test_a_turn_that_nobody_answers_has_a_record() -> None:
    """When the next one comes, or when the caller leaves."""
    story = Story(create_response=False)
    story.says()
    story.says("And in Paris?")
    assert story.outcomes() == [("abandoned", "no reply was asked for")]
    story.leaves()
    assert story.outcomes() == [("abandoned", "no reply was asked for"), ("abandoned", "the caller left")]


def test_leaving_in_mid_reply() -> None:
    """Everything is stopped, and the record holds what was heard."""
    story = Story()
    story.says()
    story.begins_to_answer("One two three four five six.", 2_000)
    story.passes(950)
    got = story.leaves()
    assert [type(order).__name__ for order in got if isinstance(order, StopReply)] == ["StopReply"]
    assert story.outcomes() == [("abandoned", "the caller left")]
    assert story.book.records["turn_s_0001"].heard_text == "One two three"


def test_the_gate_opens_once() -> None:
    """However much comes after."""
    story = Story()
    story.says()
    story.answers()
    assert sum(isinstance(order, OpenGate) for order in story.book.orders) == 1


def test_tokens_are_told_with_the_response() -> None:
    """In `response.done` and in the record."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.counts(120, 24, 96)
    story.model_done()
    story.voice_done()
    (ended,) = story.said(a.ResponseEnded)
    assert (ended.input_tokens, ended.output_tokens, ended.cached_tokens) == (120, 24, 96)
    assert story.book.records["turn_s_0001"].tokens.cached == 96
