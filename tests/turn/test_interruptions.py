"""The user speaks while something else is going on: what yields, what waits, and what is reported of it."""

from __future__ import annotations

from voicepipe.testing.core_driver import announced, names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import StartReply, StopReply
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState


def texts(scenario: Scenario) -> list[tuple[str, str]]:
    """The conversation's messages: (role, words)."""
    items = scenario.driver.core.context.conversation.items
    return [(item.role, item.text()) for item in items if isinstance(item, Message)]


def test_unplayed_greeting_gives_way() -> None:
    """The user speaks while the reply to `response.create` is being prepared: it is cancelled, and the speech is
    answered.
    """
    scenario = Scenario()
    scenario.creates()
    got = scenario.speaks()
    assert announced(got)[0] == a.InputSpeechStarted("item_s_0002", 740)
    assert scenario.ended() == [("cancelled", "turn_detected")]
    assert scenario.outcomes() == [("abandoned", "turn_detected")]
    scenario.pauses()
    scenario.transcribes()
    scenario.stops()
    assert scenario.started()[-1].turn == 2


def test_a_reply_that_waits_for_words_gives_way_too() -> None:
    """The reply was requested and not started: nothing is stopped, and the client gets its end."""
    scenario = Scenario()
    scenario.speaks()
    scenario.commits()
    scenario.creates()
    got = scenario.speaks()
    assert not any(isinstance(command, StopReply) for command in got)
    assert scenario.ended() == [("cancelled", "turn_detected")]
    scenario.transcribes()
    assert scenario.started() == []


def test_an_out_of_band_reply_does_not_give_way() -> None:
    """It is not part of the conversation."""
    scenario = Scenario()
    scenario.creates(in_conversation=False, audible=False)
    scenario.speaks()
    assert scenario.ended() == []
    scenario.model_requested()
    scenario.token()
    scenario.model_done()
    scenario.voice_done()
    assert scenario.ended() == [("completed", "")]


def test_reply_is_cut_at_the_played_position() -> None:
    """Two clauses were sent, one and a bit was played: history ends there, and so does the record."""
    scenario = Scenario(interruption="immediate")
    scenario.utters()
    scenario.begins_to_answer("One two three four.", 1_000)
    scenario.clause("Five six seven eight.")
    scenario.sound(1_000)
    scenario.sent(1_000)
    scenario.passes(1_080)
    scenario.speaks()
    assert texts(scenario)[1] == ("assistant", "One two three four. Five six")
    assert scenario.driver.records["turn_s_0001"].played_text == "One two three four. Five six"
    assert scenario.outcomes()[0] == ("interrupted", "turn_detected")


def test_both_the_playing_and_the_coming_reply_are_interrupted() -> None:
    """One plays on while the next is made: the user's voice ends both."""
    scenario = Scenario(interruption="immediate")
    scenario.utters()
    scenario.answers("It is noon.", 10_000)
    scenario.creates()
    scenario.speaks()
    assert scenario.driver.core.agent.state is AgentState.IDLE
    assert scenario.outcomes()[:2] == [("interrupted", "turn_detected"), ("abandoned", "turn_detected")]


def test_sound_after_an_interruption_is_counted_from_silence() -> None:
    """The core does not wait for audio that the client dropped: the next reply is audible when it is sent."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers("It is noon.", 30_000)
    scenario.utters("And in Paris?")
    scenario.answers("One o'clock.")
    scenario.passes(5_000)
    marks = dict(scenario.driver.records["turn_s_0002"].marks)
    assert marks["first_audible"] - marks["first_sent"] == 20


def test_speech_without_interruption_is_answered_next() -> None:
    """The reply is made to its end; then theirs begins, with both in the context."""
    scenario = Scenario(interrupt_response=False)
    scenario.utters()
    scenario.begins_to_answer()
    scenario.utters("And in Paris?")
    assert len(scenario.started()) == 1
    assert scenario.ended() == []
    got = scenario.model_done(of=0) + scenario.voice_done(of=0)
    assert names(got)[-2:] == ["StartReply", "ResponseStarted"]
    assert [item.id for item in scenario.started()[-1].items] == ["item_s_0001", "item_s_0002", "item_s_0003"]
    scenario.answers("One o'clock.")
    scenario.passes(5_000)
    assert scenario.outcomes() == [("completed", ""), ("completed", "")]


def test_of_several_turns_that_wait_the_latest_is_answered() -> None:
    """Its reply has read the others; each has a record that says so, and none is answered twice."""
    scenario = Scenario(interrupt_response=False)
    scenario.utters()
    scenario.begins_to_answer()
    scenario.utters("And in Paris?")
    scenario.utters("And in Rome?")
    scenario.utters("Hm.")
    scenario.transcribes("")
    scenario.model_done(of=0)
    scenario.voice_done(of=0)
    assert [reply.turn for reply in scenario.started()] == [1, 3]
    records = scenario.driver.records
    assert records["turn_s_0002"].reason == "answered with the next turn"
    assert records["turn_s_0004"].reason == "nothing was said"


def test_waiting_answer_does_not_start_during_speech() -> None:
    """A guess of the new turn does not overtake the turn that waits."""
    scenario = Scenario(interrupt_response=False, speculate=True)
    scenario.utters()
    scenario.begins_to_answer()
    scenario.utters("And in Paris?")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("And in Rome?")
    scenario.model_done(of=0)
    scenario.voice_done(of=0)
    assert [reply.turn for reply in scenario.started()] == [1, 2]


def test_who_may_not_interrupt_does_not_revise_either() -> None:
    """Speech before anything is audible is the next turn; the reply that is being made is answered as it is."""
    scenario = Scenario(interrupt_response=False)
    scenario.utters()
    scenario.utters("And in Paris?")
    assert [(reply.turn, reply.revision) for reply in scenario.started()] == [(1, 0)]
    scenario.answers(of=0)
    assert [(reply.turn, reply.revision) for reply in scenario.started()] == [(1, 0), (2, 0)]


def test_a_guess_with_old_words_is_not_let_out() -> None:
    """The turn was cut by its deadline with words still to come: what was guessed before them is made again."""
    scenario = Scenario(speculate=True, max_flushes=1, deadlines=Deadlines(utterance_ms=4_000))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time")
    scenario.speaks(4_000)
    assert scenario.driver.core.user.state is UserState.ENDED
    scenario.speaks(0)
    scenario.transcribes("What time is it?")
    assert [item.text() for item in scenario.started()[-1].items if isinstance(item, Message)] == ["What time is it?"]


def test_noise_does_not_block_the_agent() -> None:
    """Speech without a pause ends with its deadline; what goes on is the next turn, and the reply is played over it."""
    scenario = Scenario(deadlines=Deadlines(utterance_ms=4_000))
    scenario.speaks(4_500)
    assert names(scenario.driver.commands)[-5:] == [
        "InputSpeechStopped",
        "FlushTranscript",
        "EndUtterance",
        "AudioCommitted",
        "ItemAdded",
    ]
    scenario.speaks(200)  # the VAD reports the same voice anew
    assert scenario.driver.core.user.state is UserState.SPEAKING
    scenario.transcribes("A very long story")
    assert [(reply.turn, reply.revision) for reply in scenario.started()] == [(1, 0)]
    scenario.answers()
    scenario.passes(1_500)
    assert scenario.outcomes()[0] == ("completed", "")
    assert scenario.driver.core.user.state is UserState.SPEAKING
    assert scenario.driver.illegal_moves == []


def test_noise_without_words_is_put_away() -> None:
    """However long it lasts: each stretch of it is a turn in which nothing was said."""
    scenario = Scenario(deadlines=Deadlines(utterance_ms=4_000))
    for _ in range(3):
        scenario.speaks(4_500)
        scenario.transcribes("")
    scenario.passes(10_000)
    assert scenario.outcomes() == [("abandoned", "nothing was said")] * 3
    assert scenario.started() == []


def test_repeated_speech_start() -> None:
    """The second one means nothing: one utterance, announced once."""
    scenario = Scenario()
    scenario.speaks()
    assert scenario.speaks() == []
    assert len(scenario.notified(a.InputSpeechStarted)) == 1


def test_speech_beside_a_requested_reply_interrupts_it() -> None:
    """The client requested a reply in the midst of the user's words: when they go on, that ends it."""
    scenario = Scenario()
    scenario.speaks()
    scenario.creates()
    scenario.begins_to_answer()
    scenario.pauses()
    scenario.stops()
    scenario.speaks()
    assert scenario.ended() == [("cancelled", "turn_detected")]
    assert scenario.driver.core.agent.state is AgentState.IDLE
    assert scenario.driver.core.user.state is UserState.SPEAKING


def test_stale_events_change_nothing() -> None:
    """What an earlier revision still sends is counted and dropped."""
    scenario = Scenario()
    scenario.utters()
    scenario.utters("And in Paris?")
    n_before = scenario.driver.core.ignored
    assert scenario.token("old", of=0) == []
    assert scenario.driver.core.ignored == n_before + 1
    starts = [command for command in scenario.driver.commands if isinstance(command, StartReply)]
    assert [(start.turn, start.revision) for start in starts] == [(1, 0), (1, 1)]


def test_several_revisions() -> None:
    """Each pause that was not the end is a revision; the answer reads all that was said as one question."""
    scenario = Scenario(speculate=True)
    for words in ("What", "What time", "What time is it"):
        scenario.speaks()
        scenario.pauses()
        scenario.transcribes(words)
    scenario.stops()
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("in Paris?")
    scenario.stops()
    scenario.answers("One o'clock.")
    scenario.passes(5_000)
    assert scenario.ended() == [("cancelled", "turn_detected"), ("completed", "")]
    record = scenario.driver.records["turn_s_0001"]
    assert (record.revision, record.user_text) == (3, "What time is it in Paris?")
    assert texts(scenario) == [("user", "What time is it"), ("user", "in Paris?"), ("assistant", "One o'clock.")]


def test_speech_is_notified_before_its_consequences() -> None:
    """`speech_started` at once, then `response.done`."""
    scenario = Scenario(interruption="immediate")
    scenario.utters()
    scenario.begins_to_answer()
    kinds = [type(what) for what in announced(scenario.speaks())]
    assert kinds == [a.InputSpeechStarted, a.ResponseEnded]
