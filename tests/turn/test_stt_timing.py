"""A final text that is late: what the transcriber has guessed must do, and is put right when it comes."""

from __future__ import annotations

import pytest

from voicepipe.testing.core_driver import names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import Notify
from voicepipe.turn.core import Core
from voicepipe.turn.endpointing.stt_timing import SttTiming
from voicepipe.turn.settings import TurnSettings
from voicepipe.turn.states import AgentState, TranscriptState, UserState
from voicepipe.turn.user import REMEMBERED_UTTERANCES


def transcribed_quickly(scenario: Scenario, times: int = 3) -> None:
    """Turns whose final text comes 130 ms after the last voiced sample."""
    for _ in range(times):
        scenario.utters()
        scenario.answers()
        scenario.passes(5_000)


def half_transcribed(scenario: Scenario, guess: str = "What time is it", *, silent: bool = True) -> None:
    """The user puts a question, and the transcriber has sent only interim text."""
    scenario.speaks(500)
    scenario.guesses(guess)
    scenario.pauses()
    if silent:
        scenario.stops()


def test_a_guess_answers_when_the_final_text_is_later_than_usual() -> None:
    """It usually takes 130 ms from the last voiced sample, so 300 are waited for; the turn is over after 530."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario)
    assert [reply.turn for reply in scenario.started()] == [1, 2, 3, 4]
    assert scenario.driver.core.context.conversation.items[-1].text() == "What time is it"  # type: ignore[union-attr]
    assert len(scenario.notified(a.TranscriptDone)) == 3, "nothing is final"


def test_the_time_counts_from_the_last_voiced_sample() -> None:
    """Not from when the pause was noticed, nor from the end of the turn."""
    scenario = Scenario(speculate=True)
    transcribed_quickly(scenario)
    half_transcribed(scenario, silent=False)
    scenario.passes(200)
    assert len(scenario.started()) == 3
    scenario.passes(50)
    scenario.is_silent(400)
    assert len(scenario.started()) == 4


def test_a_final_text_with_the_same_words_changes_nothing_but_the_record() -> None:
    """The client is notified once."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario)
    scenario.begins_to_answer()
    assert "StopReply" not in names(scenario.transcribes("What time is it?"))
    assert [what.transcript for what in scenario.notified(a.TranscriptDone)][3:] == ["What time is it?"]
    assert len(scenario.started()) == 4


def test_a_late_text_with_other_words_revises_the_turn_while_nothing_is_audible() -> None:
    """The same turn gets its next revision; one reply is played."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario)
    scenario.model_requested()
    assert names(scenario.transcribes("What time is it in Paris?"))[-4:] == [
        "StopReply",
        "ResponseEnded",
        "StartReply",
        "ResponseStarted",
    ]
    assert (scenario.started()[-1].turn, scenario.started()[-1].revision) == (4, 1)
    assert scenario.driver.illegal_moves == []


def test_a_text_that_comes_when_the_answer_is_audible_starts_no_second_one() -> None:
    """It is put into the user's message, where the next answer reads it."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario)
    scenario.begins_to_answer()
    scenario.transcribes("What time is it in Paris?")
    assert len(scenario.started()) == 4
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    texts = [item.text() for item in scenario.driver.core.context.conversation.items]  # type: ignore[union-attr]
    assert texts[-2:] == ["What time is it in Paris?", "It is noon."]
    assert scenario.driver.core.user.state is UserState.QUIET
    assert scenario.driver.illegal_moves == []


@pytest.mark.parametrize("ending", ["never", "breaks"])
def test_without_a_final_text_the_guess_stays(ending: str) -> None:
    """The client is notified that the text is complete."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario)
    scenario.answers()
    if ending == "breaks":
        scenario.stt_fails()
    scenario.passes(20_000)
    assert [what.transcript for what in scenario.notified(a.TranscriptDone)][3:] == ["What time is it"]
    assert scenario.notified(a.TranscriptFailed) == []
    assert scenario.outcomes()[3] == ("completed", "")


def test_who_has_guessed_nothing_is_waited_for() -> None:
    """Until the deadline of the state: there is nothing to answer."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.passes(2_000)
    assert scenario.driver.agent_state() is AgentState.IDLE
    scenario.transcribes()
    assert scenario.driver.agent_state() is AgentState.PREPARING


def test_continued_speech_extends_the_question() -> None:
    """The time of a pause that was none is no deadline."""
    scenario = Scenario()
    transcribed_quickly(scenario)
    half_transcribed(scenario, silent=False)
    scenario.speaks(2_000)
    assert scenario.driver.core.user.state is UserState.SPEAKING
    assert len(scenario.started()) == 3
    assert scenario.driver.illegal_moves == []


def test_each_provider_has_its_own_time() -> None:
    """Unknown: a second. One slow text is no rule, and none is given less than 300 ms."""
    times = SttTiming()
    assert times.timeout_ms == 1_000
    for took_ms in (240, 250, 2_000):
        times.record("slow/stt", took_ms)
    assert times.timeout_ms == 500
    times.record("quick/stt", 90)
    assert times.timeout_ms == 1_000
    for _ in range(2):
        times.record("quick/stt", 90)
    assert times.timeout_ms == 300


def test_a_commit_long_after_the_last_word_is_counted_from_itself() -> None:
    """A user may release push to talk late: that is not the transcriber's time."""
    times = SttTiming()
    assert times.due_ms(5_000, 5_100) == (5_000, 6_000)
    assert times.due_ms(5_000, 9_000) == (9_000, 10_000)


def test_many_short_utterances_are_all_notified() -> None:
    """Their guesses stand for a while, and more of them are on their way than are remembered otherwise."""
    settings = TurnSettings(detection="none", transcribe=True, create_response=False)
    core, now_ms, notices = Core("sess_s", settings), 0, list[a.Notification]()

    def post(event: e.Event) -> None:
        notices.extend(command.what for command in core.handle(event, now_ms) if isinstance(command, Notify))

    post(e.SettingsChanged(settings))
    for number in range(1, 2 * REMEMBERED_UTTERANCES):
        post(e.TranscriptGrew(number, "What time is it"))
        post(e.CommitRequested(None, 300, None))
        now_ms += 300
        post(e.TimePassed())
    while core.context.timers.due:
        now_ms = min(core.context.timers.due.values())
        post(e.TimePassed())
    done = [what.item_id for what in notices if isinstance(what, a.TranscriptDone)]
    assert len(set(done)) == len(done) == 2 * REMEMBERED_UTTERANCES - 1


def test_the_stt_fails_after_an_interim_text_was_used_and_the_user_went_on() -> None:
    """The words after the pause are lost: nothing waits for them, and those before it are answered."""
    scenario = Scenario(speculate=True)
    transcribed_quickly(scenario)
    half_transcribed(scenario, silent=False)
    scenario.is_silent(200)
    scenario.passes(250)
    utterance = scenario.driver.core.user.turn.question.utterances[-1]  # type: ignore[union-attr]
    states = [utterance.transcript]
    scenario.speaks()
    scenario.commits()
    scenario.creates()
    states.append(utterance.transcript)
    scenario.stt_fails()
    assert [*states, utterance.transcript] == [
        TranscriptState.PROVISIONAL,
        TranscriptState.PENDING,
        TranscriptState.LOST,
    ]
    assert [reply.turn for reply in scenario.started()][-2:] == [4, 4], "answered by what is known"
