"""What still plays when an answer's first audio is sent is a stage of its own, and not the client's playback."""

from __future__ import annotations

from tests.turn.test_budget_actions import APOLOGY, FILLER, an_answered_turn, with_filler
from tests.turn.test_tool_turns import calls, returns
from voicepipe.testing.attribution import problems
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.record.attribution import judge
from voicepipe.turn.record.values import Breach, StageSpan, TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, BudgetLimits


def latest(scenario: Scenario) -> TurnRecord:
    """Return the record of the latest turn."""
    return max(scenario.driver.records.values(), key=lambda record: record.turn)


def stages(record: TurnRecord) -> dict[str, StageSpan]:
    """Return the stages by their names."""
    return {span.stage: span for span in record.stages}


def plays_words(scenario: Scenario, duration_ms: int) -> None:
    """The latest reply, of words that no LLM wrote, is sent whole."""
    scenario.model_requested()
    scenario.token("Hello.")
    scenario.model_done()
    scenario.clause("Hello.")
    scenario.sound(duration_ms)
    scenario.sent(duration_ms)
    scenario.voice_done()


def behind_a_filler() -> Scenario:
    """The LLM takes 700 ms, and a filler of 900 ms begins to play just before its answer comes."""
    scenario = with_filler()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(700)
    scenario.filler_sent(900)
    scenario.begins_to_answer()
    scenario.model_done()
    scenario.voice_done()
    return scenario


def test_an_answer_waits_for_its_filler() -> None:
    """The rest of the filler is the settings' time, and playback is what the client adds: here the silence of 20 ms
    before the first audible sample.
    """
    scenario = behind_a_filler()
    scenario.passes(5_000)
    record = latest(scenario)
    marks = dict(record.marks)
    wait_ms = marks["earlier_audio_ended"] - marks["first_sent"]
    assert record.filler == FILLER
    assert wait_ms > 500
    stage = stages(record)["earlier_audio"]
    assert (stage.duration_ms, stage.critical_ms, stage.owner, stage.verdict) == (
        wait_ms,
        wait_ms,
        "settings",
        "over",
    )
    assert stages(record)["playback"].duration_ms == 20
    assert [part.stage for part in record.contributions][-3:] == ["overhead", "earlier_audio", "playback"]
    assert record.breach == Breach("earlier_audio", wait_ms - 200, "settings", "filler", wait_ms - 200)
    assert problems(record) == []


def test_a_filler_that_the_user_cut_is_no_wait() -> None:
    """The client reports that the answer was audible before the filler could have ended."""
    scenario = behind_a_filler()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    sent_ms, t0_ms = turn.marks["first_sent"], turn.marks["voiced_last"]
    assert turn.question.t0_audio_ms is not None
    scenario.passes(500)
    scenario.reports(120, input_ms=turn.question.t0_audio_ms + (sent_ms + 200 - t0_ms) + 100)
    scenario.passes(5_000)
    record = latest(scenario)
    assert stages(record)["earlier_audio"].duration_ms == 200
    assert stages(record)["playback"].duration_ms == 0
    assert problems(record) == []


def test_an_answer_waits_for_the_greeting() -> None:
    """A typed question comes while the greeting plays."""
    scenario = Scenario()
    scenario.is_greeted()
    plays_words(scenario, 3_000)
    scenario.creates()
    scenario.answers()
    scenario.passes(6_000)
    record = latest(scenario)
    assert record.cause == "create"
    stage = stages(record)["earlier_audio"]
    assert stage.critical_ms > 2_000
    assert record.breach is not None
    assert (record.breach.stage, record.breach.owner, record.breach.depends_on) == (
        "earlier_audio",
        "settings",
        "greeting",
    )
    assert stages(record)["playback"].verdict == "within"
    assert problems(record) == []


def test_an_answer_waits_for_an_apology() -> None:
    """The phrase is a setting; none is named, since the user needs these words."""
    scenario = Scenario(budget_actions=BudgetActionSettings(apology=APOLOGY))
    scenario.has_ready(APOLOGY)
    scenario.utters()
    scenario.model_requested()
    scenario.breaks()
    plays_words(scenario, 3_000)
    scenario.creates()
    scenario.answers()
    scenario.passes(6_000)
    record = latest(scenario)
    assert stages(record)["earlier_audio"].owner == "settings"
    assert record.breach is not None
    assert (record.breach.stage, record.breach.depends_on) == ("earlier_audio", "")


def test_an_answer_waits_for_another_answer() -> None:
    """The client asked again and left the first answer playing."""
    scenario = Scenario()
    scenario.creates()
    scenario.answers(duration_ms=3_000)
    scenario.creates()
    scenario.answers()
    scenario.passes(6_000)
    stage = stages(latest(scenario))["earlier_audio"]
    assert (stage.owner, stage.verdict) == ("client", "over")
    breach = latest(scenario).breach
    assert breach is not None
    assert breach.depends_on == ""


def test_an_answer_waits_for_words_before_a_function_call() -> None:
    """The LLM wrote them: its instructions can make them shorter."""
    scenario = Scenario()
    calls(scenario, announced="One moment, please, I am looking it up for you.")
    scenario.passes(20)
    returns(scenario)
    scenario.answers("It is sunny.")
    scenario.passes(5_000)
    record = latest(scenario)
    stage = stages(record)["earlier_audio"]
    assert stage.owner == "fake/llm"
    assert stage.critical_ms > 0
    assert problems(record) == []


def test_a_wait_behind_other_audio_in_time_is_no_fault() -> None:
    """It was chosen, as the silence is: only a late turn is compared with its limit."""
    marks = {"voiced_last": 0, "end_due": 100, "llm_requested": 110, "first_delta": 150, "first_clause": 160}
    marks |= {"first_sound": 200, "first_sent": 205, "earlier_audio_ended": 600, "first_audible": 610}
    judged = judge(marks, BudgetLimits(), {}, audible=True)
    assert {span.stage: span.verdict for span in judged.stages}["earlier_audio"] == "within"
    assert judged.breach is None
    late = judge({**marks, "earlier_audio_ended": 1_400, "first_audible": 1_410}, BudgetLimits(), {}, audible=True)
    assert late.breach is not None
    assert late.breach.stage == "earlier_audio"


def test_the_usual_playback_leaves_other_audio_out() -> None:
    """Else every turn behind a filler would make the next ones look late, and get fillers of their own."""
    scenario = behind_a_filler()
    scenario.passes(5_000)
    usual_ms = scenario.driver.core.context.learned.usual.usual_ms("playback")
    assert usual_ms == 20
    an_answered_turn(scenario)
    assert "earlier_audio_ended" not in dict(latest(scenario).marks)
