"""A stalled event loop is reported as overhead where it delayed something, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.testing.attribution import problems
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.testing.scenario import STEP_MS, Scenario
from voicepipe.turn.commands import ReportOverrun
from voicepipe.turn.record.attribution import MAX_STALLS, REMEMBERED, STALL_BACKLOG_MS, with_stalls
from voicepipe.turn.record.values import Breach, StageSpan, TurnRecord
from voicepipe.turn.settings import BudgetLimits

AT = dict(MARKS)
HIDDEN = (
    ("voiced_last", 5_000),
    ("flushed", 5_090),
    ("transcribed", 5_150),
    ("llm_requested", 5_155),
    ("first_delta", 5_300),
    ("first_clause", 5_350),
    ("first_sound", 5_460),
    ("ended", 5_620),
    ("gate_opened", 5_621),
    ("first_sent", 5_624),
    ("first_audible", 5_670),
)
"""Speculation: the reply was ready while the user might still have gone on."""


def stages(record: TurnRecord) -> dict[str, StageSpan]:
    """By their names."""
    return {span.stage: span for span in record.stages}


def parts(record: TurnRecord) -> list[tuple[str, str, str]]:
    """What the user waited for, in order."""
    return [(part.stage, part.from_mark, part.to_mark) for part in record.contributions]


def held(*stalls: tuple[int, int], marks: tuple[tuple[str, int], ...] = MARKS) -> TurnRecord:
    """A spoken turn's record with these holds."""
    return turn_record(tuple(with_stalls(dict(marks), stalls).items()))


def answered(*, stalled_ms: int) -> tuple[TurnRecord, list[ReportOverrun]]:
    """A turn whose first word came after 700 ms, with the loop stalled up to then."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(700 - STEP_MS)
    got = scenario.token()
    if stalled_ms:
        scenario.loop_stalled(stalled_ms)
    got += scenario.clause() + scenario.sound() + scenario.sent() + scenario.model_done() + scenario.voice_done()
    got += scenario.passes(5_000)
    (record,) = scenario.driver.records.values()
    return record, [command for command in got if isinstance(command, ReportOverrun)]


def test_an_answer_that_waited_for_the_loop_is_not_its_providers_fault() -> None:
    """The model is judged by the time before the hold; who reads of the overrun reads of the server."""
    record, overruns = answered(stalled_ms=300)
    assert (stages(record)["llm_ttft"].duration_ms, stages(record)["llm_ttft"].verdict) == (400, "within")
    assert stages(record)["overhead"].owner == "server"
    assert ("llm_ttft", "fake/llm") not in [(command.stage, command.owner) for command in overruns]
    assert ("overhead", "server") in [(command.stage, command.owner) for command in overruns]
    slow, overruns = answered(stalled_ms=0)
    assert (stages(slow)["llm_ttft"].duration_ms, slow.total_ms) == (700, record.total_ms)
    assert ("llm_ttft", "fake/llm") in [(command.stage, command.owner) for command in overruns]


@pytest.mark.parametrize("stage", ["llm_ttft", "first_clause", "tts_ttfb"])
def test_a_hold_right_before_a_mark_is_cut_out_of_its_stage(stage: str) -> None:
    """The stall is reported as `overhead`, on the critical path, between two marks of its own."""
    mark = {"llm_ttft": "first_delta", "first_clause": "first_clause", "tts_ttfb": "first_sound"}[stage]
    usual, record = stages(turn_record())[stage], held((AT[mark] - 45, AT[mark] - 5))
    assert record.total_ms == turn_record().total_ms
    assert stages(record)[stage].duration_ms == stages(record)[stage].critical_ms == usual.duration_ms - 40
    overhead = stages(record)["overhead"]
    assert (overhead.duration_ms, overhead.critical_ms, overhead.hidden_ms, overhead.verdict) == (43, 43, 0, "over")
    assert (
        parts(record).index(("overhead", "stall_began_1", "stall_ended_1"))
        == parts(record).index((stage, "stall_ended_1", mark)) - 1
    )
    assert problems(record) == []


def test_the_first_breach_is_the_servers() -> None:
    """No setting is known to move it: fewer sessions would not have helped this turn."""
    marks = tuple(with_stalls(AT, [(5_550, 5_760)]).items())
    record = turn_record(marks, limits=BudgetLimits(endpoint_ms=1_000, llm_ttft_ms=100))
    assert record.breach == Breach("overhead", 210 + 3 - 20, "server", "")


def test_a_stall_lasts_through_the_one_that_works_it_off() -> None:
    """The loop was blocked again by what had piled up: the answer read after that came during the first stall."""
    late = 1_090
    marks = tuple((name, ms + late * (ms >= AT["first_sound"])) for name, ms in MARKS)
    first, second = (5_850, 6_900), (6_920, 7_015)
    assert second[1] - first[1] > STALL_BACKLOG_MS + (first[1] - first[0]) / 16
    record = held(first, second, marks=marks)
    assert stages(record)["tts_ttfb"].duration_ms == 30 + 20 + 5
    assert record.breach is not None
    assert (record.breach.stage, record.breach.owner) == ("overhead", "server")
    assert problems(record) == []
    apart = held(first, (7_000, 7_015), marks=marks)
    assert stages(apart)["tts_ttfb"].duration_ms == 110 + late - 15


@pytest.mark.parametrize(
    "stall",
    [
        (5_550, 5_600),  # long before the model's first word
        (5_560, 5_760 - STALL_BACKLOG_MS - 15),
        (5_940, 5_980),  # sound was on its way to the client
        (5_100, 5_400),  # the user might still have gone on speaking
        (4_000, 4_500),
        (6_500, 7_000),
    ],
)
def test_a_hold_that_delayed_nothing_is_nobodys(stall: tuple[int, int]) -> None:
    """The record is as it would be without."""
    assert held(stall) == turn_record()


def test_words_that_waited_for_the_loop_delay_the_question() -> None:
    """Of a turn that waits for them: the hold that they came in counts, as far as the silence was over."""
    late = {**AT, "flushed": 5_290, "transcribed": 5_525}
    record = held((5_090, 5_290), (5_480, 5_525), marks=tuple(late.items()))
    assert stages(record)["endpoint"].duration_ms == 0
    assert [part for part in parts(record) if part[0] in ("silence", "endpoint", "overhead")] == [
        ("silence", "voiced_last", "end_due"),
        ("overhead", "end_due", "llm_requested"),
        ("overhead", "first_sound", "first_sent"),
    ]
    assert problems(record) == []


def test_a_hold_begins_no_sooner_than_its_stage() -> None:
    """It was held already when the silence was over."""
    record = held((4_900, 5_520))
    assert parts(record)[:3] == [
        ("silence", "voiced_last", "end_due"),
        ("overhead", "end_due", "stall_ended_1"),
        ("endpoint", "stall_ended_1", "llm_requested"),
    ]
    assert stages(record)["endpoint"].duration_ms == 5


def test_what_waits_behind_the_gate_is_hidden_from_holds_too() -> None:
    """The model was late by the loop, but ready in time: the user waited for their own silence."""
    usual, record = turn_record(HIDDEN), held((5_200, 5_300), marks=HIDDEN)
    assert stages(record)["llm_ttft"].duration_ms == stages(usual)["llm_ttft"].duration_ms - 100
    assert record.contributions == usual.contributions
    overhead = stages(record)["overhead"]
    assert (overhead.duration_ms, overhead.critical_ms, overhead.hidden_ms) == (103, 3, 100)
    assert problems(record) == []


def test_a_gate_that_opened_late_counts_once() -> None:
    """The end of the turn was noticed late; the hold is in the critical path and in no stage that was over."""
    record = held((5_500, 5_620), marks=HIDDEN)
    assert parts(record)[:3] == [
        ("endpoint", "voiced_last", "stall_began_1"),
        ("overhead", "stall_began_1", "stall_ended_1"),
        ("endpoint", "stall_ended_1", "gate_opened"),
    ]
    assert stages(record)["overhead"].duration_ms == 123
    assert problems(record) == []


def test_a_turn_that_came_to_no_end_is_judged_too() -> None:
    """Its answer failed later: the model still was not slow."""
    record = held((5_540, 5_760), marks=MARKS[:7])
    assert (stages(record)["llm_ttft"].duration_ms, stages(record)["overhead"].duration_ms) == (15, 220)
    assert record.total_ms is None
    assert problems(record) == []


def test_a_stall_after_a_turn_is_not_on_its_record() -> None:
    """A client's late report renews the record of a turn that is over, and not with what was stalled since."""
    records = []
    for stalled_ms in (0, 4_900):
        scenario = Scenario()
        scenario.utters()
        scenario.answers()
        scenario.passes(5_000)
        scenario.loop_stalled(stalled_ms)
        scenario.reports(500, input_ms=4_000)
        records.append(scenario.driver.records["turn_s_0001"])
    unstalled, stalled = records
    assert stalled.latency_source == "reported"
    assert stalled == unstalled


def test_longest_stalls_are_retained() -> None:
    """A record stays small on a machine that is always late."""
    stalls = [(5_100 + 10 * i, 5_500 + i) for i in range(30)]
    marks = with_stalls(AT, stalls)
    retained = [(marks[f"stall_began_{i}"], marks[f"stall_ended_{i}"]) for i in range(1, MAX_STALLS + 1)]
    assert retained == sorted(stalls, key=lambda stall: stall[0] - stall[1])[:MAX_STALLS]
    assert len(marks) == len(AT) + 2 * MAX_STALLS


def test_record_is_unchanged_after_playback() -> None:
    """However often the loop stalls while the answer plays: a client's later word finds the same turn."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(300)
    scenario.token()
    scenario.loop_stalled(200)
    scenario.clause()
    scenario.sound(20_000)
    scenario.sent(20_000)
    scenario.model_done()
    scenario.voice_done()
    for _ in range(2 * REMEMBERED):
        scenario.passes(60)
        scenario.loop_stalled(30)
    scenario.reports(8_000)
    scenario.passes(30_000)
    (record,) = scenario.driver.records.values()
    marks = dict(record.marks)
    assert [name for name in marks if name.startswith("stall_began")] == ["stall_began_1"]
    assert marks["stall_ended_1"] - marks["stall_began_1"] == 200


def test_turn_retains_stalls_until_it_is_audible() -> None:
    """A model that takes long on a loop that stalls all the time: the stall before its words is not dropped."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.passes(300)
    scenario.token("It")
    scenario.loop_stalled(200)
    for _ in range(2 * REMEMBERED):
        scenario.passes(60)
        scenario.loop_stalled(30)
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    assert len(turn.account.stalls) <= REMEMBERED + 1
    scenario.clause("It")
    scenario.leaves()
    (record,) = scenario.driver.records.values()
    assert dict(record.marks)["stall_ended_1"] - dict(record.marks)["stall_began_1"] == 200


@given(
    gaps=st.lists(st.integers(0, 300), min_size=len(MARKS), max_size=len(MARKS)),
    order=st.permutations(range(2, 5)),
    edges=st.lists(st.integers(4_500, 8_500), min_size=2, max_size=12, unique=True),
)
def test_the_parts_make_the_total_whatever_was_held(gaps: list[int], order: list[int], edges: list[int]) -> None:
    """For any marks and any holds, end to end; no stage is longer than without them."""
    names = [name for name, _ in MARKS]
    names[2:5] = [names[i] for i in order]
    marks = {name: 5_000 + sum(gaps[:i]) for i, name in enumerate(names)}
    at = sorted(edges)
    record = held(*zip(at[::2], at[1::2], strict=False), marks=tuple(marks.items()))
    without = stages(turn_record(tuple(marks.items())))
    assert problems(record) == []
    assert record.unattributed_ms == 0
    assert all(
        span.duration_ms <= without[name].duration_ms for name, span in stages(record).items() if name != "overhead"
    )
    assert all(span.hidden_ms >= 0 for span in record.stages)
