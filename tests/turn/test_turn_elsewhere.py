"""A turn that another process had goes on here, and both parts have one record."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.record.values import TurnElsewhere, TurnRecord
from voicepipe.turn.settings import ReplySettings

ELSEWHERE = TurnElsewhere(id="turn_s_0007", cause="vad", user_text="What time is it?", played_text="It is")

REQUEST = e.ReplyRestored(ReplySettings(), goes_on=ELSEWHERE)
REST = e.ReplyRestored(ReplySettings(), "noon.", goes_on=ELSEWHERE)


def only_record(scenario: Scenario) -> TurnRecord:
    (record,) = scenario.driver.records.values()
    return record


@pytest.mark.parametrize("event", [REQUEST, REST], ids=["the LLM is asked", "the rest is known"])
def test_the_rest_of_a_turn_has_the_turns_record(event: e.Event) -> None:
    """Its id and cause, the question, and all words of the answer."""
    scenario = Scenario()
    scenario._post(event)
    scenario.answers("noon.")
    scenario.passes(2_000)
    record = only_record(scenario)
    assert (record.id, record.cause, record.outcome) == ("turn_s_0007", "vad", "completed")
    assert (record.user_text, record.agent_text, record.played_text) == (
        "What time is it?",
        "It is noon.",
        "It is noon.",
    )


def test_a_turn_whose_answer_had_no_more_words_is_completed() -> None:
    scenario = Scenario()
    scenario._post(REQUEST)
    scenario.model_done("stop")
    scenario.voice_done()
    scenario.passes(2_000)
    record = only_record(scenario)
    assert (record.outcome, record.agent_text, record.played_text) == ("completed", "It is", "It is")


def test_an_answer_after_tools_has_the_words_from_elsewhere() -> None:
    scenario = Scenario()
    scenario._post(REQUEST)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    scenario.creates_item(FunctionOutput("", "call_0", "sunny"))
    scenario.creates()
    scenario.answers("noon.")
    scenario.passes(2_000)
    record = only_record(scenario)
    assert (record.id, record.cause, record.agent_text) == ("turn_s_0007", "vad", "It is noon.")


def test_a_turn_of_this_process_has_none() -> None:
    scenario = Scenario()
    scenario.creates()
    scenario.answers("noon.")
    scenario.passes(2_000)
    record = only_record(scenario)
    assert (record.id, record.cause, record.played_text) == ("turn_s_0001", "create", "noon.")
