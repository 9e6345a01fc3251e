"""Turns that a speech-to-speech model answers: one stage, its own cost, and LLM and TTS where it fails."""

from __future__ import annotations

import pytest

from voicepipe.testing.records import turn_record
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.conversation import FunctionOutput
from voicepipe.turn.cost import PriceList
from voicepipe.turn.record.values import TurnRecord

FREE = PriceList(transcribers={"fake/stt": 0.0})


def record_of(scene: Scenario) -> TurnRecord:
    (record,) = scene.driver.records.values()
    return record


def durations(record: TurnRecord) -> dict[str, int]:
    return {span.stage: span.duration_ms for span in record.stages}


def test_all_that_the_model_does_is_one_stage() -> None:
    scene = Scenario(prices=FREE)
    scene.utters()
    scene.speech_requested()
    scene.passes(450)
    scene.token()
    scene.clause()
    scene.sound()
    scene.counts(200, 150, usd=0.01)
    scene.model_done()
    scene.voice_done()
    scene.sent()
    scene.passes(2_000)
    record = record_of(scene)
    assert record.outcome == "completed"
    assert durations(record)["speech_to_speech"] == 600
    assert not {"llm_ttft", "first_clause", "tts_ttfb"} & durations(record).keys()
    assert dict(record.providers) == {"speech_to_speech": "fake/speech", "stt": "fake/stt"}
    assert sum(part.duration_ms for part in record.contributions) + record.unattributed_ms == record.total_ms
    assert record.unattributed_ms == 0
    assert record.itl_ms is None, "its tokens are audio"
    assert record.cost.answer_usd == record.cost.usd == 0.01
    assert record.cost.whole
    assert record.played_text == "It is noon."


def test_a_slow_model_is_a_breach_by_its_setting() -> None:
    scene = Scenario()
    scene.utters()
    scene.speech_requested()
    scene.passes(2_000)
    scene.token()
    scene.clause()
    scene.sound()
    scene.sent()
    breach = record_of_running(scene).breach
    assert breach is not None
    assert (breach.stage, breach.owner, breach.depends_on) == ("speech_to_speech", "fake/speech", "model")


def test_a_model_that_fails_in_the_ms_of_its_first_sound_has_begun_the_answer() -> None:
    """The LLM goes on with it: the user has waited for the model alone."""
    marks = (
        ("voiced_last", 0),
        ("end_due", 200),
        ("ended", 210),
        ("speech_requested", 220),
        ("first_sound", 250),
        ("llm_requested", 250),
        ("first_delta", 254),
        ("first_clause", 255),
        ("first_sent", 258),
        ("first_audible", 258),
    )
    found = durations(turn_record(marks))
    assert (found["speech_to_speech"], found["overhead"]) == (30, 8)
    assert "tts_ttfb" not in found
    replaced = durations(turn_record(tuple((mark, 256 if mark == "first_sound" else ms) for mark, ms in marks)))
    assert (replaced["speech_to_speech"], replaced["tts_ttfb"], replaced["overhead"]) == (30, 1, 2)


def record_of_running(scene: Scenario) -> TurnRecord:
    scene.model_done()
    scene.voice_done()
    scene.passes(3_000)
    return record_of(scene)


def test_a_model_that_fails_before_it_speaks_ends_its_stage_at_the_llm_request() -> None:
    scene = Scenario()
    scene.utters()
    scene.speech_requested()
    scene.passes(300)
    scene.answers()
    scene.passes(3_000)
    record = record_of(scene)
    found = durations(record)
    assert found["speech_to_speech"] == 350
    assert {"llm_ttft", "first_clause", "tts_ttfb"} <= found.keys()
    assert record.unattributed_ms == 0
    assert not record.cost.whole, "nobody knows what the failed answer cost"


def test_a_model_that_fails_in_its_answer_keeps_its_stage() -> None:
    """What the TTS adds is not what the user waited for."""
    scene = Scenario()
    scene.utters()
    scene.speech_requested()
    scene.token()
    scene.clause()
    scene.sound()
    scene.sent()
    scene.model_requested()
    scene.token(" And more.")
    scene.clause("And more.")
    scene.sound()
    scene.sent()
    record = record_of_running(scene)
    assert durations(record)["speech_to_speech"] == 150
    assert "llm_ttft" not in durations(record)
    assert dict(record.providers)["tts"] == "fake/tts"
    assert record.unattributed_ms == 0


def test_a_silent_model_is_awaited_behind_the_gate() -> None:
    """An early answer was ready before the turn was over: the stage ran beside the silence."""
    scene = Scenario(speculate=True)
    scene.speaks()
    scene.pauses()
    scene.transcribes()
    scene.is_silent(300)
    scene.speech_requested()
    scene.token()
    scene.clause()
    scene.sound()
    scene.stops()
    scene.sent()
    record = record_of_running(scene)
    assert durations(record)["speech_to_speech"] == 150
    assert "speech_to_speech" not in {part.stage for part in record.contributions}
    assert record.unattributed_ms == 0


@pytest.mark.parametrize("again", [True, False])
def test_each_round_of_function_calls_names_what_made_it(again: bool) -> None:
    """The model calls; the answer to the result is the model's too, or, where that fails, the LLM's."""
    scene = Scenario()
    scene.utters()
    scene.speech_requested()
    scene.passes(200)
    scene.call()
    scene.model_done("tool_calls")
    scene.voice_done()
    scene.passes(300)
    scene.creates_item(FunctionOutput("", "call_0", "sunny"))
    scene.creates()
    if again:
        scene.speech_requested()
        scene.passes(100)
        scene.token()
        scene.clause()
        scene.sound()
        scene.model_done()
        scene.voice_done()
        scene.sent()
    else:
        scene.answers()
    scene.passes(3_000)
    record = next(record for record in scene.driver.records.values() if record.tools)
    stages = [part.stage for part in record.contributions]
    assert stages.count("speech_to_speech") == (2 if again else 1)
    assert ("llm_ttft" in stages) is not again
    assert "tool" in stages
    assert record.unattributed_ms == 0


def test_the_model_is_not_shortened() -> None:
    """It gets no clauses: there is none to shorten."""
    scene = Scenario()
    scene.utters()
    scene.speech_requested()
    scene.token("One two three four")
    commands = scene.passes(2_000)
    assert "ShortenClause" not in {type(command).__name__ for command in commands}


def test_an_answer_beside_the_conversation_teaches_nothing_about_its_speed() -> None:
    scene = Scenario()
    scene.creates(in_conversation=False)
    scene.speech_requested()
    assert scene.driver.core.context.learned.speculation._provider == ""
