"""Function calls and the outcome of an answer that begins softly: they wait until the end of the turn is certain."""

from __future__ import annotations

import pytest

from tests.turn.talk import QUESTION, Talk, kinds
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionOutput, Message
from voicepipe.turn.endpointing.probability import SENTENCE_END
from voicepipe.turn.states import AgentState


def calls(talk: Talk) -> list[c.Command]:
    key = talk.scene._key(-1)
    now_ms = talk.scene.driver.now_ms
    got = talk.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.CallGrew(*key, 0, "call_1", "lights_on", "{}"))
    return got + talk.at(now_ms, e.ModelFinished(*key, "tool_calls"), e.SynthesisFinished(*key))


def test_a_function_call_leaves_when_adaptive_would_end_the_turn() -> None:
    """Neither the item nor the end of the response, before that instant; both at it."""
    exact = Talk(end_of_turn="adaptive")
    exact.says("Turn the lights on, please.", from_ms=1_000)
    exact.silent_until(300)
    calls(exact)
    exact.silent_until(1_600)
    left_ms = exact.scene.driver.core.context.turns.awaits_tools.marks["gate_opened"]  # type: ignore[union-attr]

    talk = Talk()
    talk.says("Turn the lights on, please.", from_ms=1_000)
    talk.silent_until(300)
    calls(talk)
    talk.silent_until(480)
    assert talk.scene.notified(a.OutputStarted) == []
    got = talk.at(2_000 + 1_600)
    assert [type(each).__name__ for each in got if isinstance(each, c.OpenGate)] == ["OpenGate"]
    turn = talk.scene.driver.core.context.turns.awaits_tools
    assert turn is not None
    assert turn.marks["gate_opened"] <= left_ms
    assert left_ms - turn.marks["gate_opened"] < 20, "adaptive looks at every 20 ms of silence"


def call_left_ms(end_of_turn: str, words: str, score: float | None, *, of_earlier: bool = False) -> int:
    """The silence after which a call leaves: the words come after 300 ms, and 80 ms later a score of the pause, or of
    an earlier one."""
    talk = Talk(end_of_turn=end_of_turn)
    talk.says(None, from_ms=1_000)
    for silence_ms in range(100, 1_500, 20):
        now_ms = talk.ended_ms + silence_ms
        if silence_ms == 300:
            talk.at(now_ms, e.TranscriptFinished(talk.utterance, 1, words, provider="fake/stt"))
        elif silence_ms == 380 and score is not None:
            talk.at(now_ms, e.EndpointScored(talk.ended_ms - 400 * of_earlier, SENTENCE_END, score))
        talk.at(now_ms, e.SilenceGrew(silence_ms))
        if talk.scene.started() and talk.agent() is AgentState.PREPARING:
            calls(talk)
        if talk.scene.notified(a.OutputStarted):
            return silence_ms
    raise AssertionError("the call never left")


@pytest.mark.parametrize("score", [0.001, 0.5, 0.999])
@pytest.mark.parametrize(
    "words", ["Could you please tell me when the next train to the city leaves today?", "Turn on the lights.", "Well,"]
)
def test_a_score_that_comes_after_the_soft_end_moves_a_call_as_with_adaptive(words: str, score: float) -> None:
    """Of words that sound over: the answer may begin after 350 ms, and the score says that more will come."""
    assert call_left_ms("soft", words, score) == call_left_ms("adaptive", words, score)


@pytest.mark.parametrize(
    "words",
    ["Could you please tell me when the next train to the city leaves today?", "Turn on the lights."],
    ids=["the answer has begun", "the user's turn goes on"],
)
def test_a_score_of_an_earlier_pause_moves_no_call(words: str) -> None:
    score = 0.001
    without_ms = call_left_ms("soft", words, None)
    assert call_left_ms("soft", words, score) > without_ms
    assert call_left_ms("soft", words, score, of_earlier=True) == without_ms


def test_words_after_a_call_are_spoken_at_once() -> None:
    """A reply of calls alone waits for a certain end; its first word opens the gate, and the calls wait on."""
    talk = Talk()
    talk.says("Turn the lights on, please.", from_ms=1_000)
    talk.silent_until(300)
    key, now_ms = talk.scene._key(-1), talk.scene.driver.now_ms
    talk.at(now_ms, e.ModelRequested(*key, "fake/llm"), e.CallGrew(*key, 0, "call_1", "lights_on", "{}"))
    talk.silent_until(480)
    assert talk.agent() is AgentState.READY
    got = talk.at(talk.scene.driver.now_ms, e.ModelTextReceived(*key, "Of course."))
    (gate,) = [each for each in got if isinstance(each, c.OpenGate)]
    assert gate.holds_calls


def test_words_before_a_call_are_spoken_softly_and_the_call_waits() -> None:
    """The call's item begins, and its arguments are released, when the end is certain."""
    talk = Talk()
    talk.is_promised_a_look()
    got = talk.silent_until(400)
    gate = next(each for each in got if isinstance(each, c.OpenGate))
    assert gate.holds_calls
    talk.sends(800)
    assert len(talk.scene.notified(a.OutputStarted)) == 1
    assert talk.scene.ended() == []
    got = talk.at(2_000 + 500)
    assert kinds(got)[:1] == ["ReleaseCalls"]
    assert len(talk.scene.notified(a.OutputStarted)) == 2
    assert talk.scene.ended() == [("completed", "")]


@pytest.mark.parametrize(("arrived_ms", "played_ms"), [(0, 400), (695, 697)])
def test_an_answer_is_over_once_all_audio_that_has_come_was_played(arrived_ms: int, played_ms: int) -> None:
    """More audio may be sent than is counted: what comes after `SynthesisFinished`, or the rest of a sample in a reply
    that went on. While that plays the user's voice stops the answer as it stops any other.
    """
    talk = Talk()
    talk.says(QUESTION, from_ms=1_000)
    talk.silent_until(200)
    talk.answers(duration_ms=arrived_ms)
    talk.silent_until(360)
    talk.at(talk.scene.driver.now_ms, e.SoundArrived(*talk.scene._key(-1), 0, 700, 0))
    talk.sends(700)
    at_ms = talk.scene.driver.now_ms + played_ms
    talk.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 60))
    assert talk.agent() is not AgentState.READY
    talk.at(at_ms + 100, e.SpeechPaused(at_ms, at_ms))
    talk.gets("", at_ms + 120)
    assert talk.scene.driver.illegal_moves == []


@pytest.mark.parametrize("calls", [False, True])
def test_an_answer_that_is_complete_while_a_sound_is_judged_ends_by_the_clock(calls: bool) -> None:
    """All of its audio was played before, and nothing is left to go on with."""
    talk = Talk()
    talk.is_answered_softly(duration_ms=700, whole=False)
    at_ms = talk.scene.driver.now_ms + 705
    assert "SuspendReply" in kinds(talk.at(at_ms, e.SpeechStarted(at_ms - 60, at_ms - 60)))
    if calls:
        talk.at(at_ms, e.CallGrew(*talk.scene._key(-1), 0, "call_1", "weather", "{}"))
    talk.completes()
    talk.at(at_ms + 100, e.SpeechPaused(at_ms, at_ms))
    talk.gets("", at_ms + 120)
    assert talk.agent() is AgentState.SPEAKING
    talk.at(at_ms + 130)
    assert talk.agent() is AgentState.IDLE
    assert talk.scene.driver.illegal_moves == []


def test_the_answer_to_a_functions_result_is_not_taken_back() -> None:
    """The call has left, so the end was certain: the user interrupts that answer as any other."""
    talk = Talk()
    talk.is_promised_a_look()
    talk.silent_until(400)
    talk.sends(800)
    talk.at(2_000 + 700)
    talk.at(2_720, e.ItemCreateRequested("evt", FunctionOutput("", "call_1", "sunny"), None))
    talk.at(2_730, e.ReplyRequested("evt", talk.scene.driver.settings.reply))
    talk.answers()
    talk.sends()
    talk.at(3_600)
    assert talk.agent() is AgentState.SPEAKING
    talk.at(3_600, e.SpeechStarted(3_540, 0))
    assert talk.agent() is AgentState.DUCKED


def test_a_call_that_was_taken_back_never_leaves() -> None:
    """The user goes on before the end is certain."""
    talk = Talk()
    talk.is_promised_a_look(whole=False)
    talk.silent_until(400)
    talk.sends(200)
    talk.says("And tomorrow?", from_ms=talk.scene.driver.now_ms + 20, for_ms=600)
    talk.silent_until(1_500)
    assert [what.item.id for what in talk.scene.notified(a.OutputStarted) if not isinstance(what.item, Message)] == []
    assert not any(isinstance(each, c.ReleaseCalls) for each in talk.scene.driver.commands)


def test_the_outcome_waits_for_a_certain_end() -> None:
    """A short answer is played to its end before that; webhooks hear of the turn afterwards."""
    talk = Talk()
    talk.is_answered_softly("Yes.", 100)
    talk.at(2_000 + 480)
    assert next(iter(talk.scene.driver.records.values())).outcome is None
    talk.at(2_000 + 500)
    assert next(iter(talk.scene.driver.records.values())).outcome == "completed"
