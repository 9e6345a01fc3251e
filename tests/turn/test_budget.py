"""The second is accounted for: stages judged, contributions that sum, and a hole in the marks that shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.commands import ReportOverrun
from voicepipe.turn.record import attribution
from voicepipe.turn.record.attribution import Judgement, judge
from voicepipe.turn.record.values import Breach, TurnRecord
from voicepipe.turn.settings import BudgetLimits, ReplySettings

OWNERS = {
    "silence": "settings",
    "endpoint": "deepgram/nova-3",
    "llm_ttft": "groq/llama",
    "first_clause": "groq/llama",
    "tts_ttfb": "kokoro/af",
    "playback": "kokoro/af",
}
PATH = ["voiced_last", "llm_requested", "first_delta", "first_clause", "first_sound", "first_sent", "first_audible"]
"""The marks that a spoken turn without speculation is made of."""


def complete_turn(*, audible: bool = True, speculate: bool = False) -> Scenario:
    """A turn with one clause of a second, 50 ms between any two events; it is played to its end."""
    scenario = Scenario(speculate=speculate, reply=ReplySettings(audible=audible))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    if not speculate:
        scenario.stops()
    scenario.model_requested()
    scenario.token()
    if audible:
        scenario.clause()
        scenario.sound()
    if speculate:
        scenario.stops()
    scenario.sent(1_000 if audible else 0)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert scenario.outcomes() == [("completed", "")]
    return scenario


def record(scenario: Scenario) -> TurnRecord:
    """The record of a story's only turn."""
    (only,) = scenario.driver.records.values()
    return only


def rejudged(turn: TurnRecord, *, without: str = "", audible: bool = True) -> Judgement:
    """A turn's marks judged again, one of them taken away."""
    marks = {name: ms for name, ms in turn.marks if name != without}
    return judge(marks, BudgetLimits(), OWNERS, audible=audible)


def spaced(*gaps_ms: int) -> dict[str, int]:
    """Return marks along the path of a spoken turn, at equal distances in ms."""
    return {name: 5_000 + sum(gaps_ms[:i]) for i, name in enumerate(PATH)}


# --- contributions --------------------------------------------------------------------------------


@pytest.mark.parametrize("audible", [True, False])
@pytest.mark.parametrize("speculate", [True, False])
def test_contributions_sum_to_the_turn_latency(audible: bool, speculate: bool) -> None:
    """They lie end to end from t0 to the first sound, or to the first text of a reply without."""
    turn = record(complete_turn(audible=audible, speculate=speculate))
    parts = turn.contributions
    assert turn.total_ms is not None
    assert sum(part.duration_ms for part in parts) == turn.total_ms
    assert turn.unattributed_ms == 0
    assert [part.from_mark for part in parts[1:]] == [part.to_mark for part in parts[:-1]]
    assert (parts[0].from_mark, parts[-1].to_mark) == ("voiced_last", "first_audible" if audible else "first_sent")


@pytest.mark.parametrize("mark", PATH)
def test_a_mark_that_is_missing_shows(mark: str) -> None:
    """Without any one mark of its path a turn is not accounted for, be it by a hole or by having no total."""
    turn = record(complete_turn())
    assert rejudged(turn).whole
    holed = rejudged(turn, without=mark)
    assert not holed.whole
    if mark in (PATH[0], PATH[-1]):
        assert holed.total_ms is None
    else:
        assert holed.unattributed_ms > attribution.UNATTRIBUTED_LIMIT_MS


@pytest.mark.parametrize("mark", ["voiced_last", "gate_opened", "first_sent", "first_audible"])
def test_a_mark_that_is_missing_shows_when_the_gate_was_waited_for(mark: str) -> None:
    """The path of a held reply has other marks. Without its gate it looks like one that took longer elsewhere."""
    turn = record(complete_turn(speculate=True))
    assert rejudged(turn).whole
    holed = rejudged(turn, without=mark)
    assert not holed.whole or holed.contributions != turn.contributions


@pytest.mark.parametrize("mark", ["voiced_last", "llm_requested", "first_delta", "first_sent"])
def test_a_mark_that_is_missing_shows_in_text(mark: str) -> None:
    """A reply without sound ends with its first text."""
    turn = record(complete_turn(audible=False))
    assert rejudged(turn, audible=False).whole
    assert not rejudged(turn, without=mark, audible=False).whole


def test_parts_of_the_endpoint_need_their_marks() -> None:
    """The parts lie beside the path: without their marks they are not reported, and the sum stands."""
    turn = record(complete_turn())
    assert dict(turn.parts).keys() == {"stt_final", "gate_wait"}
    for mark, part in (("flushed", "stt_final"), ("transcribed", "stt_final"), ("ended", "gate_wait")):
        holed = rejudged(turn, without=mark)
        assert part not in dict(holed.parts)
        assert holed.whole


@given(gaps_ms=st.lists(st.integers(0, 3_000), min_size=6, max_size=6), lost=st.sampled_from(["", *PATH[1:-1]]))
def test_contributions_and_the_rest_are_the_total(gaps_ms: list[int], lost: str) -> None:
    """Whatever the marks are, and whichever of them is lost."""
    marks = {name: ms for name, ms in spaced(*gaps_ms).items() if name != lost}
    judged = judge(marks, BudgetLimits(), OWNERS, audible=True)
    assert judged.total_ms == sum(gaps_ms)
    assert sum(part.duration_ms for part in judged.contributions) + judged.unattributed_ms == judged.total_ms
    for span in judged.stages:
        assert span.critical_ms + span.hidden_ms == span.duration_ms
        assert (span.verdict == "over") == (span.duration_ms > span.limit_ms)


# --- the gate -------------------------------------------------------------------------------------


def test_what_ran_before_the_gate_is_hidden() -> None:
    """A guess that was ready in time: the user waited for the end of the turn alone."""
    turn = record(complete_turn(speculate=True))
    stages = {span.stage: span for span in turn.stages}
    assert [part.stage for part in turn.contributions] == ["silence", "endpoint", "overhead", "playback"]
    for hidden in ("llm_ttft", "first_clause", "tts_ttfb"):
        assert (stages[hidden].critical_ms, stages[hidden].hidden_ms) == (0, stages[hidden].duration_ms)
    marks = dict(turn.marks)
    assert stages["overhead"].duration_ms == marks["first_sent"] - marks["gate_opened"], "the gate's wait is not ours"


def test_a_text_reply_that_was_held_is_no_overhead_of_ours() -> None:
    """The gate's wait is the endpoint's, in text too."""
    turn = record(complete_turn(audible=False, speculate=True))
    assert [(part.stage, part.from_mark) for part in turn.contributions] == [
        ("silence", "voiced_last"),
        ("endpoint", "end_due"),
        ("overhead", "gate_opened"),
    ]


# --- verdicts, owners, breaches -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "owner", "depends_on"),
    [
        ("endpoint", "deepgram/nova-3", "stt"),
        ("llm_ttft", "groq/llama", "llm"),
        ("first_clause", "groq/llama", "instructions"),
        ("tts_ttfb", "kokoro/af", "tts"),
        ("overhead", "server", ""),
        ("playback", "kokoro/af", "tts"),
    ],
)
def test_each_stage_has_a_limit_an_owner_and_a_cause(stage: str, owner: str, depends_on: str) -> None:
    """At its limit it is within; one millisecond more is over, and says whose it is and what would move it."""
    limits = BudgetLimits(total_ms=10_000)
    stages = ["endpoint", "llm_ttft", "first_clause", "tts_ttfb", "overhead", "playback"]
    at_limit = [attribution.limit_of(limits, name) for name in stages]
    over = [ms + (name == stage) for name, ms in zip(stages, at_limit, strict=True)]
    fine = judge(spaced(*at_limit), limits, OWNERS, audible=True)
    assert [span.verdict for span in fine.stages] == ["within"] * 6
    assert fine.breach is None
    breach = Breach(stage, 1, owner, depends_on, int(bool(depends_on)))
    assert judge(spaced(*over), limits, OWNERS, audible=True).breach == breach


def test_a_client_that_plays_late_is_the_breach() -> None:
    """By its own report: no setting of the server makes it play sooner."""
    limits, owners = BudgetLimits(), {**OWNERS, "playback": "client"}
    judged = judge(spaced(50, 100, 50, 50, 10, limits.playback_ms + 200), limits, owners, audible=True)
    assert judged.breach == Breach("playback", 200, "client", "client_playback", 200)


@pytest.mark.parametrize(("clause_ms", "stage", "over_ms"), [(350, "llm_ttft", 300), (450, "first_clause", 350)])
def test_the_largest_excess_is_the_breach(clause_ms: int, stage: str, over_ms: int) -> None:
    """Whichever stage came first: the user waited longest for that one."""
    breach = judge(spaced(100, 900, clause_ms, 10, 1, 20), BudgetLimits(), OWNERS, audible=True).breach
    assert breach is not None
    assert (breach.stage, breach.over_ms, breach.saves_ms) == (stage, over_ms, over_ms)


def test_the_total_is_judged_by_itself() -> None:
    """No stage is over, and their sum is: what took longest would move it most."""
    judged = judge(spaced(150, 600, 100, 140, 10, 30), BudgetLimits(), OWNERS, audible=True)
    assert {span.verdict for span in judged.stages} == {"within"}
    assert judged.breach == Breach("total", 30, "groq/llama", "llm", 30)


def test_a_held_turn_that_is_late_waited_for_the_silence() -> None:
    """Neither model nor voice is to blame, however slow they were."""
    gate = {"end_due": 6_080, "ended": 6_100, "gate_opened": 6_100, "first_sent": 6_105, "first_audible": 6_125}
    marks = spaced(100, 900, 50, 0, 0, 0) | gate | {"start_due": 5_090}
    judged = judge(marks, BudgetLimits(), OWNERS, audible=True)
    assert {span.stage for span in judged.stages if span.verdict == "over"} == {"silence"}
    assert judged.breach == Breach("silence", 30, "settings", "client_silence", 30), "ready 30 ms before"


def test_a_silence_that_the_answer_did_not_wait_for_is_no_breach() -> None:
    """The reply was begun early, and the LLM was slow: a shorter silence would have moved nothing."""
    early = {"start_due": 5_090, "end_due": 5_980, "ended": 6_000, "gate_opened": 6_500}
    judged = judge(spaced(100, 1_400, 50, 50, 0, 0) | early, BudgetLimits(), OWNERS, audible=True)
    assert judged.breach == Breach("llm_ttft", 800, "groq/llama", "llm", 600), "not before the end of the turn"
    silence = judged.stages[0]
    assert (silence.duration_ms, silence.critical_ms, silence.verdict) == (980, 90, "within")


def test_the_chosen_silence_of_a_turn_in_time_breaks_nothing() -> None:
    """However long it is. The endpoint is what the server adds."""
    marks = spaced(720, 50, 50, 50, 5, 20) | {"end_due": 5_700, "ended": 5_705}
    judged = judge(marks, BudgetLimits(), OWNERS, audible=True)
    assert judged.total_ms == 895
    assert [(span.stage, span.duration_ms) for span in judged.stages[:2]] == [("silence", 700), ("endpoint", 20)]
    assert {span.verdict for span in judged.stages} == {"within"}
    assert judged.breach is None


def test_a_silence_that_the_words_outlasted_is_no_breach() -> None:
    """It is longer than its limit, and yet the LLM request would not have left sooner: the STT was late."""
    ended = {"flushed": 5_100, "end_due": 5_900, "ended": 5_900, "transcribed": 6_090}
    judged = judge(spaced(1_095, 50, 50, 50, 5, 20) | ended, BudgetLimits(), OWNERS, audible=True)
    assert judged.breach == Breach("endpoint", 45, "deepgram/nova-3", "stt", 45)
    assert judged.stages[0].verdict == "within"


def test_a_total_is_over_without_a_setting_that_would_help() -> None:
    """The STT kept its limit beside the silence, and the silence was not waited for alone."""
    ended = {"flushed": 5_100, "end_due": 6_200, "ended": 6_200, "transcribed": 6_290}
    judged = judge(spaced(1_300, 50, 50, 50, 5, 20) | ended, BudgetLimits(), OWNERS, audible=True)
    assert judged.breach == Breach("total", 475, "settings", "")


@pytest.mark.parametrize(
    ("owner", "depends_on"),
    [
        ("client", "client_commit"),
        ("server", ""),
        ("deepgram/nova-3", "stt"),
    ],
)
def test_a_late_endpoint_names_what_would_move_it(owner: str, depends_on: str) -> None:
    """Not only the silence can be to blame for it."""
    judged = judge(spaced(900, 1, 1, 1, 1, 1), BudgetLimits(), OWNERS | {"endpoint": owner}, audible=True)
    assert judged.breach == Breach("endpoint", 750, owner, depends_on, 750 if depends_on else 0)


@pytest.mark.parametrize("silence_set_by", ["agent_silence", "client_eagerness"])
def test_long_silence_names_who_set_it(silence_set_by: str) -> None:
    """The agent or the client, as the session has it."""
    scenario = Scenario(silence_ms=1_200)
    scenario.changes(silence_set_by=silence_set_by)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes()
    scenario.passes(1_000)
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    turn = record(scenario)
    assert turn.total_verdict == "over"
    assert turn.breach == Breach("silence", 700, "settings", silence_set_by, 700)


def test_who_the_question_waited_for() -> None:
    """Beyond the silence: the transcriber, the client's wish, or us; the longest of them."""
    waited_for_silence = complete_turn()
    assert endpoint_owner(waited_for_silence) == "server"

    slow_words = Scenario()
    slow_words.speaks()
    slow_words.pauses()
    slow_words.stops()
    slow_words.passes(2_000)
    slow_words.transcribes()
    slow_words.answers()
    slow_words.passes(5_000)
    assert endpoint_owner(slow_words) == "fake/stt"

    words_behind_silence = Scenario()
    words_behind_silence.speaks()
    words_behind_silence.pauses()
    words_behind_silence.stops()
    words_behind_silence.transcribes()  # 50 ms later, 450 ms after the flush: a shorter silence is no help
    words_behind_silence.answers()
    words_behind_silence.passes(5_000)
    assert endpoint_owner(words_behind_silence) == "fake/stt"

    slow_client = Scenario()
    slow_client.changes(detection="none")
    slow_client.commits(last_voiced_ms=slow_client.driver.now_ms)
    slow_client.transcribes()
    slow_client.passes(2_000)
    slow_client.creates()
    slow_client.answers()
    slow_client.passes(5_000)
    assert endpoint_owner(slow_client) == "client"


def test_whom_a_question_waited_for_that_went_out_before_the_turn_was_over() -> None:
    """The STT owns the endpoint when the LLM request waited for the words; the settings own it when the reply
    was held.
    """
    slow_words = Scenario(speculate=True, silence_ms=900)
    slow_words.speaks()
    slow_words.pauses()
    slow_words.passes(400)
    slow_words.transcribes()
    slow_words.model_requested()
    slow_words.stops()
    slow_words.passes(300)
    slow_words.token()
    slow_words.clause()
    slow_words.sound()
    slow_words.sent()
    slow_words.model_done()
    slow_words.voice_done()
    slow_words.passes(5_000)
    assert endpoint_owner(slow_words) == "fake/stt"
    assert endpoint_owner(complete_turn(speculate=True)) == "server"


def endpoint_owner(scenario: Scenario) -> str:
    """Return the owner of the endpoint in a scenario's only turn."""
    return next(span.owner for span in record(scenario).stages if span.stage == "endpoint")


def test_greeting_has_no_endpoint_wait() -> None:
    """Its t0 is the client's wish; what passes until the question is ours."""
    scenario = Scenario()
    scenario.creates()
    scenario.answers()
    scenario.passes(5_000)
    assert endpoint_owner(scenario) == "server"
    assert record(scenario).cause == "create"


def test_an_overrun_is_noted_once() -> None:
    """The record is written twice, when the reply is complete and when it was played; the overrun is logged once."""
    scenario = complete_turn()
    notes = [command for command in scenario.driver.commands if isinstance(command, ReportOverrun)]
    over = [span for span in record(scenario).stages if span.verdict == "over"]
    assert [(note.stage, note.owner, note.over_ms) for note in notes] == [
        (span.stage, span.owner, span.duration_ms - span.limit_ms) for span in over
    ]
    assert [span.stage for span in over] == ["overhead"]


def test_unplayed_turn_has_no_total() -> None:
    """What ran is judged all the same."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.breaks()
    turn = record(scenario)
    assert (turn.total_ms, turn.total_verdict, turn.contributions, turn.latency_source) == (None, None, (), "none")
    assert [span.stage for span in turn.stages] == ["silence", "endpoint", "llm_ttft"]


def test_an_unplayed_turn_names_no_setting() -> None:
    """Its answer would have been no sooner with any: `talk` and the pages said "up to 0 ms sooner"."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(1_500)
    scenario.token()
    scenario.breaks()
    turn = record(scenario)
    assert turn.total_ms is None
    assert turn.breach is not None
    assert (turn.breach.stage, turn.breach.owner, turn.breach.depends_on) == ("llm_ttft", "fake/llm", "")


def test_a_shorter_silence_helps_no_reply_that_was_begun_before_its_end() -> None:
    """The reply began after a shorter pause, and was not ready when the turn was over."""
    marks = spaced(500, 900, 50, 10, 5, 20)
    silence = {"end_due": marks["llm_requested"] - 10, "ended": marks["llm_requested"] - 5}
    helped = attribution.saved_ms(marks | silence, "silence", 300, audible=True)
    assert helped > 0
    early = {"start_due": marks["voiced_last"] + 100}
    assert attribution.saved_ms(marks | silence | early, "silence", 300, audible=True) == 0
