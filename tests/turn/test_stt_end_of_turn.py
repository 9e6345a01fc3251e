"""A transcriber that ends the utterance before the VAD can: work may start, until the end is proved wrong."""

from __future__ import annotations

from voicepipe.testing.core_driver import names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.conversation import Message
from voicepipe.turn.record import attribution
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState


def test_stt_final_starts_the_reply_before_the_vad_pause() -> None:
    """The LLM request goes out at once; the pause that follows changes nothing, and the gate opens at the
    turn's end.
    """
    scenario = Scenario(speculate=True)
    scenario.speaks()
    assert names(scenario.ends_it()) == ["StartReply"]
    scenario.model_requested()
    scenario.pauses()
    assert "StartReply" not in names(scenario.transcribes())
    scenario.token()
    scenario.clause()
    scenario.sound()
    assert scenario.driver.core.agent.state is AgentState.READY
    assert "OpenGate" in names(scenario.stops())
    assert scenario.driver.illegal_moves == []


def test_continued_speech_revokes_the_stt_end() -> None:
    """No pause within 300 ms: the guess is put away, and the user was speaking all along."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it("What time")
    got = names(scenario.passes(400))
    assert got == ["StopReply"]
    assert scenario.driver.core.user.state is UserState.SPEAKING
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    assert scenario.driver.core.user.turn is not None
    assert scenario.driver.core.user.turn.question.text == "What time is it?"
    assert scenario.driver.illegal_moves == []


def test_more_words_start_the_reply_again() -> None:
    """A second final in the same breath: the question is the longer one."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it("What time")
    assert names(scenario.ends_it("What time is it?")) == ["StopReply", "StartReply"]
    scenario.pauses()
    scenario.transcribes("What time is it?")
    assert scenario.driver.illegal_moves == []


def test_its_word_counts_for_nothing_without_leave_to_guess() -> None:
    """An agent that must not spend tokens on guesses waits for the end of the turn."""
    scenario = Scenario(speculate=False)
    scenario.speaks()
    assert scenario.ends_it() == []
    assert scenario.driver.core.user.state is UserState.SPEAKING


def test_guesses_are_few() -> None:
    """A user who stops and goes on again and again costs three starts before the turn is over, and one at its end."""
    scenario = Scenario(speculate=True, max_flushes=3)
    started = 0
    scenario.speaks(200)
    for n in range(6):
        started += names(scenario.ends_it("and" + " so on" * n)).count("StartReply")
        scenario.passes(400)
    assert started == 3
    scenario.pauses()
    scenario.transcribes("and so on")
    assert "StartReply" in names(scenario.stops())
    assert scenario.driver.illegal_moves == []


def test_a_commit_while_in_doubt_counts_as_speech() -> None:
    """The client ends the turn before the VAD could: t0 is the time of the client's commit."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it()
    got = names(scenario.commits(last_voiced_ms=scenario.driver.now_ms))
    assert got[:2] == ["InputSpeechStopped", "FlushTranscript"]
    scenario.transcribes()
    scenario.creates()
    scenario.answers("It is noon.")
    scenario.passes(60_000)
    record = scenario.driver.records["turn_s_0001"]
    assert attribution.VOICED_LAST in dict(record.marks)
    assert record.outcome == "completed"
    assert scenario.driver.illegal_moves == []


def test_new_speech_revokes_the_stt_end() -> None:
    """The VAD reports that the user speaks: whatever was begun is put away."""
    scenario = Scenario(speculate=True)
    scenario.speaks()
    scenario.ends_it("What time")
    assert "StopReply" in names(scenario.speaks())
    assert scenario.driver.core.user.state is UserState.SPEAKING
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    assert [(order.turn, order.revision) for order in scenario.started()] == [(1, 0), (1, 1)]


def test_an_overlong_turn_puts_away_what_began_with_fewer_words() -> None:
    """The time to speak is up while the end is in doubt: the answer waits for all of the words."""
    scenario = Scenario(speculate=True, deadlines=Deadlines(utterance_ms=2_000))
    scenario.speaks(1_900)
    scenario.ends_it("What time")
    scenario.passes(150)
    assert scenario.driver.user_state() is UserState.ENDED
    assert "StopReply" in names(scenario.speaks())
    scenario.transcribes("What time is it?", of=0)
    (message,) = scenario.started()[-1].items
    assert isinstance(message, Message)
    assert (message.text(), scenario.started()[-1].turn) == ("What time is it?", 1)
