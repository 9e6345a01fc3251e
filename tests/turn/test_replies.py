"""The outcomes of a reply: words, calls, both, neither; complete, cancelled, failed, cut; played or not."""

from __future__ import annotations

import pytest

from voicepipe.testing.core_driver import announced, names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import OpenGate, StopReply
from voicepipe.turn.conversation import FunctionCall, FunctionOutput, InputText, Message
from voicepipe.turn.reply_queue import MAX_OUT_OF_BAND
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState


def messages(scenario: Scenario) -> list[tuple[str, str, str]]:
    """The conversation's messages: (role, words, status)."""
    items = scenario.driver.core.context.conversation.items
    return [(item.role, item.text(), item.status) for item in items if isinstance(item, Message)]


# --- calls ----------------------------------------------------------------------------------------


def test_a_reply_of_calls_only() -> None:
    """Each call is an item of its own; nothing is played; the record awaits the results."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.call('{"city":')
    scenario.call('"Paris"}', first=False)
    scenario.call("", index=1)
    scenario.model_done("tool_calls")
    got = scenario.voice_done()
    assert names(got)[:2] == ["ResponseEnded", "StoreRecord"]
    assert scenario.outcomes() == [(None, "")]
    assert scenario.driver.core.context.conversation.items[1:] == [
        FunctionCall("item_s_0002_call0", "call_0", "look_up", '{"city":"Paris"}', "completed"),
        FunctionCall("item_s_0002_call1", "call_1", "look_up", "{}", "completed"),
    ]
    record = scenario.driver.records["turn_s_0001"]
    assert (record.total_ms, record.latency_source, record.played_text) == (None, "none", "")
    assert {span.stage for span in record.stages} == {"silence", "endpoint", "llm_ttft"}


def test_words_and_a_call_together() -> None:
    """Both are announced, in the order in which they came; the answer to the call is the same turn."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("Let me see.")
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert [type(what.item).__name__ for what in scenario.notified(a.OutputStarted)] == ["Message", "FunctionCall"]
    scenario.creates_item(FunctionOutput("", "call_0", "12:00"))
    scenario.creates()
    scenario.answers("It is noon.")
    scenario.passes(5_000)
    assert scenario.outcomes() == [("completed", "")]


def test_words_after_a_call_are_not_lost() -> None:
    """A call opens the gate; the message begins with its first word, before any clause of it is closed."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.call()
    got = scenario.token("Just a ")
    assert [type(what.item).__name__ for what in announced(got) if isinstance(what, a.OutputStarted)] == ["Message"]


def test_white_space_before_a_call_is_no_message() -> None:
    """Some models begin every answer with a line break."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token("\n\n")
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    assert [type(what.item).__name__ for what in scenario.notified(a.OutputStarted)] == ["FunctionCall"]


def test_an_answer_without_anything() -> None:
    """The model has nothing to say: the response is empty and complete, and the turn is over."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.model_done()
    scenario.voice_done()
    assert scenario.ended() == [("completed", "")]
    assert scenario.notified(a.OutputStarted) == []
    assert scenario.outcomes() == [("completed", "")]


@pytest.mark.parametrize(("reason", "cut_by"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_reply_that_the_model_cut_short(reason: str, cut_by: str) -> None:
    """It is incomplete on the wire; what there is of it was played, and the record says why it is short."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("It is no")
    scenario.model_done(reason)  # type: ignore[arg-type]
    scenario.voice_done()
    scenario.passes(5_000)
    assert scenario.ended() == [("incomplete", cut_by)]
    assert scenario.outcomes() == [("completed", reason)]
    assert messages(scenario)[1] == ("assistant", "It is no", "incomplete")


# --- cancelled ------------------------------------------------------------------------------------


def test_a_cancel_before_anything_was_sent() -> None:
    """The turn is over, the user is not held up, and their next words are a new turn."""
    scenario = Scenario()
    scenario.utters()
    got = scenario.cancels()
    assert names(got) == ["StopReply", "ResponseEnded", "StoreRecord"]
    assert scenario.outcomes() == [("abandoned", "client_cancelled")]
    scenario.utters("And in Paris?")
    assert scenario.started()[-1].turn == 2


def test_a_cancel_in_mid_reply() -> None:
    """The reply is cut where playback stopped."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("One two three four five six.", 2_000)
    scenario.passes(950)
    scenario.cancels("resp_s_0001")
    assert scenario.outcomes() == [("interrupted", "client_cancelled")]
    assert messages(scenario)[1] == ("assistant", "One two three", "incomplete")


def test_a_cancel_that_comes_too_late() -> None:
    """The response is done and plays on: the cancel is refused in the words that clients look for."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    (refused,) = announced(scenario.cancels())
    assert isinstance(refused, a.Refused)
    assert (refused.code, refused.event_id) == ("response_cancel_not_active", "evt")
    assert refused.message.startswith("Cancellation failed")
    scenario.passes(5_000)
    assert scenario.outcomes() == [("completed", "")]


def test_a_cancel_of_another_response() -> None:
    """The one that runs is not touched."""
    scenario = Scenario()
    scenario.utters()
    (refused,) = announced(scenario.cancels("resp_unknown"))
    assert isinstance(refused, a.Refused)
    assert "resp_unknown" in refused.message
    assert scenario.ended() == []


def test_a_cancel_of_a_reply_that_waits_for_words() -> None:
    """The reply was announced, so it ends on the wire; the LLM gets no request."""
    scenario = Scenario()
    scenario.changes(detection="none")
    scenario.commits()
    scenario.creates()
    scenario.cancels()
    scenario.transcribes()
    assert scenario.ended() == [("cancelled", "client_cancelled")]
    assert scenario.started() == []


def test_a_guess_can_not_be_cancelled() -> None:
    """The client knows of none."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    assert names(scenario.cancels()) == ["Refused"]
    assert scenario.driver.core.agent.state is AgentState.PREPARING


# --- failed ---------------------------------------------------------------------------------------


def test_a_voice_that_breaks_in_mid_reply() -> None:
    """What was sent is played to its end: history ends there, and the next turn works."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("One two three.", 2_000)
    scenario.clause("Four five six.")
    scenario.breaks("tts")
    assert scenario.ended() == [("failed", "tts_failed")]
    assert scenario.outcomes() == [("failed", "tts: fake/tts: broke")]
    assert messages(scenario)[1] == ("assistant", "One two three.", "incomplete")
    assert scenario.driver.records["turn_s_0001"].played_text == "One two three."
    scenario.utters("Hello?")
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.outcomes()[1] == ("completed", "")


def test_a_model_that_never_says_that_it_is_done() -> None:
    """All sound has come and was played, and no end of the text: the deadline of its next step ends the turn."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.voice_done()
    scenario.passes(9_000)
    assert scenario.ended() == []
    scenario.passes(2_000)
    assert scenario.ended() == [("failed", "llm_failed")]
    assert scenario.outcomes() == [("failed", "llm: no progress for 10000 ms")]


def test_a_voice_that_never_says_that_it_is_done() -> None:
    """The other way round."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.model_done()
    scenario.passes(11_000)
    assert scenario.outcomes() == [("failed", "tts: no progress for 10000 ms")]


def test_a_client_that_takes_nothing() -> None:
    """The reply is complete and does not leave: the turn ends, and the client is to blame."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.model_done()
    scenario.voice_done()
    assert scenario.ended() == [("completed", "")]
    scenario.passes(11_000)
    assert scenario.outcomes() == [("failed", "client: no progress for 10000 ms")]
    assert scenario.driver.core.agent.state is AgentState.IDLE


def test_a_voice_that_never_begins() -> None:
    """There was a clause and no sound: the voice had the floor."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.passes(11_000)
    assert scenario.outcomes() == [("failed", "tts: no output within 10000 ms")]


def test_a_reply_without_end() -> None:
    """It goes on step by step, and is ended by the limit of a whole reply."""
    scenario = Scenario(deadlines=Deadlines(reply_ms=2_000))
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    for _ in range(60):
        if scenario.ended():
            break
        scenario.sound(20)
        scenario.sent(20)
    assert scenario.outcomes() == [("failed", "reply: not complete within 2000 ms")]
    assert [record.failed_stage for record in scenario.driver.records.values()] == ["reply"]


def test_failed_speculative_reply_is_dropped() -> None:
    """The client had no notice of it: the end of the turn sends the request again, and that reply is played."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.breaks()
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    assert [(reply.turn, reply.revision) for reply in scenario.started()] == [(1, 0), (1, 1)]
    assert scenario.outcomes() == [("completed", "")]


# --- out of band, in text -------------------------------------------------------------------------


def test_an_out_of_band_reply_runs_beside_another() -> None:
    """It joins no history, and both are played."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.creates(in_conversation=False, context=(Message("m", "user", (InputText("Sum up."),)),))
    assert scenario.started()[-1].items == (Message("m", "user", (InputText("Sum up."),)),)
    scenario.answers("A summary.", 2_000)
    scenario.model_done(of=0)
    scenario.voice_done(of=0)
    assert scenario.ended() == [("completed", ""), ("completed", "")]
    assert [role for role, *_ in messages(scenario)] == ["user", "assistant"]
    scenario.passes(5_000)
    assert scenario.outcomes() == [("completed", ""), ("completed", "")]
    assert scenario.driver.records["turn_s_0002"].played_text == "A summary."


def test_out_of_band_replies_are_bounded() -> None:
    """Each costs a question to the model; a client can't ask without end."""
    scenario = Scenario()
    for _ in range(MAX_OUT_OF_BAND):
        scenario.creates(in_conversation=False)
    (refused,) = announced(scenario.creates(in_conversation=False))
    assert isinstance(refused, a.Refused)
    assert refused.code == "too_many_active_responses"
    scenario.breaks(of=0)
    assert names(scenario.creates(in_conversation=False)) == ["ResponseStarted", "StartReply"]


def test_one_reply_of_the_conversation_at_a_time() -> None:
    """A second one is refused while one is made, not while one only plays."""
    scenario = Scenario()
    scenario.creates()
    (refused,) = announced(scenario.creates())
    assert isinstance(refused, a.Refused)
    assert refused.code == "conversation_already_has_active_response"
    scenario.answers()
    assert names(scenario.creates()) == ["ResponseStarted", "StartReply"]


def test_a_reply_in_text_lasts_until_it_was_sent() -> None:
    """A model that is faster than the line does not end the turn before its text has left."""
    scenario = Scenario()
    scenario.creates(audible=False)
    scenario.model_requested()
    scenario.token()
    scenario.model_done()
    scenario.voice_done()
    assert scenario.ended() == [("completed", "")]
    scenario.sent(0)
    record = scenario.driver.records["turn_s_0001"]
    assert record.outcome == "completed"
    assert record.total_ms is not None
    assert (record.played_text, record.unattributed_ms) == ("It is noon.", 0)


def test_a_reply_in_text_that_was_cancelled() -> None:
    """Text that has left stays left: history holds all of it, as incomplete."""
    scenario = Scenario()
    scenario.creates(audible=False)
    scenario.model_requested()
    scenario.token("It is ")
    scenario.sent(0)
    scenario.cancels()
    assert messages(scenario) == [("assistant", "It is ", "incomplete")]
    assert scenario.outcomes() == [("interrupted", "client_cancelled")]


# --- what is decided while it waits ---------------------------------------------------------------


def test_settings_that_change_do_not_end_a_reply_that_was_announced() -> None:
    """The client was notified that a response is being made."""
    scenario = Scenario()
    scenario.utters()
    scenario.changes(create_response=False)
    scenario.answers()
    assert scenario.ended() == [("completed", "")]


def test_unanswered_turn_has_a_record() -> None:
    """When the next one comes, or when the user leaves."""
    scenario = Scenario(create_response=False)
    scenario.utters()
    scenario.utters("And in Paris?")
    assert scenario.outcomes() == [("abandoned", "no reply was requested")]
    scenario.leaves()
    assert scenario.outcomes() == [("abandoned", "no reply was requested"), ("abandoned", "the user left")]


def test_leaving_in_mid_reply() -> None:
    """Everything is stopped, and the record holds what was played."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("One two three four five six.", 2_000)
    scenario.passes(950)
    got = scenario.leaves()
    assert [type(command).__name__ for command in got if isinstance(command, StopReply)] == ["StopReply"]
    assert scenario.outcomes() == [("abandoned", "the user left")]
    assert scenario.driver.records["turn_s_0001"].played_text == "One two three"


def test_typed_words_are_in_the_record() -> None:
    """All since the agent's last words, and none of before."""
    scenario = Scenario()
    for words in ("Good morning.", "What time is it?"):
        scenario.creates_item(Message("", "user", (InputText(words),)))
        scenario.creates_item(Message("", "user", (InputText("Please."),)))
        scenario.creates()
        scenario.answers()
        scenario.passes(5_000)
    texts = [scenario.driver.records[f"turn_s_000{n}"].user_text for n in (1, 2)]
    assert texts == ["Good morning. Please.", "What time is it? Please."]


def test_leaving_after_the_response_is_done() -> None:
    """Nothing is abandoned; the record holds what was played by then, and why it ended there."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers("One two three four five six.", 2_000)
    scenario.passes(950)
    scenario.leaves()
    assert scenario.outcomes() == [("completed", "the user left")]
    assert scenario.driver.records["turn_s_0001"].played_text == "One two three four"


def test_the_gate_opens_once() -> None:
    """However much comes after."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    assert sum(isinstance(command, OpenGate) for command in scenario.driver.commands) == 1


def test_tokens_are_sent_with_the_response() -> None:
    """In `response.done` and in the record."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.counts(120, 24, 96)
    scenario.model_done()
    scenario.voice_done()
    (ended,) = scenario.notified(a.ResponseEnded)
    assert (ended.input_tokens, ended.output_tokens, ended.cached_tokens) == (120, 24, 96)
    assert scenario.driver.records["turn_s_0001"].tokens.cached == 96


# --- the settings or the transcript change while a turn is answered -------------------------------


def test_other_words_stop_an_answer_that_is_no_longer_to_be_given() -> None:
    """Automatic replies are off by then: the turn waits for the client's request."""
    scenario = Scenario()
    scenario.utters()
    scenario.changes(create_response=False)
    assert scenario.ended() == []
    scenario.transcribes("Something else entirely")
    assert scenario.ended() == [("cancelled", "turn_detected")]
    assert scenario.driver.agent_state() is AgentState.IDLE
    scenario.creates()
    assert [(order.turn, order.revision) for order in scenario.started()] == [(1, 0), (1, 1)]


def test_a_turn_that_waits_is_left_open_once_replies_are_off() -> None:
    """It waited for the end of a reply that the user may not interrupt."""
    scenario = Scenario(interrupt_response=False)
    scenario.utters()
    scenario.begins_to_answer()
    scenario.utters("And in Rome?")
    scenario.changes(create_response=False)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert [order.turn for order in scenario.started()] == [1]
    scenario.creates()
    assert [order.turn for order in scenario.started()] == [1, 2]


def test_a_requested_reply_to_lost_words_fails() -> None:
    """There is nothing to send to the LLM."""
    scenario = Scenario(create_response=False)
    scenario.speaks()
    scenario.pauses()
    scenario.stt_fails()
    scenario.stops()
    assert scenario.outcomes() == []
    scenario.creates()
    assert scenario.started() == []
    assert scenario.ended() == [("failed", "stt_failed")]
    assert [ended.failed_stage for ended in scenario.notified(a.ResponseEnded)] == ["stt"]
    assert scenario.outcomes() == [("failed", "stt: fake/stt: broke")]
    assert [record.failed_stage for record in scenario.driver.records.values()] == ["stt"]


def test_audio_before_any_words_were_handed_over_is_played_and_says_nothing() -> None:
    """A TTS may send it: its time counts, and no text is known of it."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token("Hello.")
    key, now_ms = scenario._key(-1), scenario.driver.now_ms
    scenario._see(scenario.driver.at(now_ms, e.SoundArrived(*key, 0, 500, 0), e.OutputSent(*key, 500)))
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert (turn.audio.arrived_ms, turn.reply.clauses) == (500, [])
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(2_000)
    (record,) = scenario.driver.records.values()
    assert (record.outcome, record.agent_text) == ("completed", "Hello.")
