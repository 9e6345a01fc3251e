"""A function call that was prepared while the user was silent waits until the client has seen that the user stopped."""

from __future__ import annotations

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import commands as c
from voicepipe.turn import notifications as a
from voicepipe.turn.settings import ReplySettings, Tool

TOOLS = ReplySettings(tools=(Tool("look_up", "", "{}"),))


def prepared(*, calls_wait_ms: int = 50, reply: ReplySettings = TOOLS) -> Scenario:
    """The user asks, pauses, and the reply is made before the pause is long enough."""
    scenario = Scenario(speculate=True, calls_wait_ms=calls_wait_ms, reply=reply)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What is the weather?")
    scenario.model_requested()
    return scenario


def stopped_ms(scenario: Scenario) -> int:
    """End the turn; return when."""
    scenario.stops()
    assert scenario.notified(a.InputSpeechStopped)
    return scenario.driver.now_ms


def test_a_prepared_call_leaves_50_ms_after_the_end() -> None:
    """Neither its item nor its response comes sooner, and then both do."""
    scenario = prepared()
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    end_ms = stopped_ms(scenario)
    scenario.passes(end_ms + 49 - scenario.driver.now_ms)
    assert scenario.notified(a.OutputStarted) == []
    assert scenario.ended() == []
    scenario.passes(1)
    assert len(scenario.notified(a.OutputStarted)) == 1
    assert scenario.ended() == [("completed", "")]


def test_a_call_that_is_written_meanwhile_waits_too() -> None:
    """The LLM may be that quick: the gate is open for its words, and holds its call."""
    scenario = prepared(calls_wait_ms=200)
    scenario.token("Let me see.")
    scenario.clause("Let me see.")
    scenario.sound(800)
    end_ms = stopped_ms(scenario)
    (gate,) = [each for each in scenario.driver.commands if isinstance(each, c.OpenGate)]
    assert gate.holds_calls
    scenario.call()
    assert len(scenario.notified(a.OutputStarted)) == 1, "the words alone"
    scenario.passes(end_ms + 200 - scenario.driver.now_ms)
    assert len(scenario.notified(a.OutputStarted)) == 2


def test_words_wait_for_nothing() -> None:
    """Without functions of the client nothing is held, and with them only calls are."""
    for reply in (ReplySettings(), TOOLS):
        scenario = prepared(reply=reply)
        scenario.answers("It is sunny.")
        stopped_ms(scenario)
        (gate,) = [each for each in scenario.driver.commands if isinstance(each, c.OpenGate)]
        assert gate.holds_calls == bool(reply.tools)
        assert len(scenario.notified(a.OutputStarted)) == 1


def test_a_user_who_goes_on_meanwhile_takes_the_call_back() -> None:
    """The call has not left: the answer is to all that was said."""
    scenario = prepared(calls_wait_ms=200)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    stopped_ms(scenario)
    scenario.speaks()
    scenario.passes(100)
    assert scenario.notified(a.OutputStarted) == []


def test_journals_of_earlier_versions_replay() -> None:
    """They name no such wait: the call leaves with the end."""
    scenario = prepared(calls_wait_ms=0)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    stopped_ms(scenario)
    assert len(scenario.notified(a.OutputStarted)) == 1
