"""Scheduled benches: when each is due, what is stored of it, and what counts as drift."""

from __future__ import annotations

import random
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from voicepipe.bench.scheduled.drift import DriftRule, changes
from voicepipe.bench.scheduled.run_log import (
    FILE_NAME,
    BenchLog,
    BenchLogInUse,
    BenchRun,
    Result,
    open_log,
    read_runs,
    spent,
)
from voicepipe.bench.scheduled.schedule import DAY_MS, parse_schedule
from voicepipe.errors import ConfigError

RULE = DriftRule(share=0.2, baseline_runs=10)


def at(text: str) -> int:
    """Ms since 1970 of a time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def run(id: str, at_ms: int = 0, *values: float, result: Result = "measured", usd: float = 0.0) -> BenchRun:
    return BenchRun(
        id=id, at_ms=at_ms, bench="b", stage="llm", model="a/m", result=result, usd=usd, latencies_ms=tuple(values)
    )


# --- when ---------------------------------------------------------------------------------------


def test_an_interval_begins_at_once_and_goes_on_from_the_last_run() -> None:
    each_hour = parse_schedule(60, (), key="benches.b")
    assert each_hour.next_ms(None, 5) == 5
    assert each_hour.next_ms(10, 5) == 3_600_010


@pytest.mark.parametrize(
    ("times", "last", "due"),
    [
        (("03:00",), "2026-11-23T02:59", "2026-11-23T03:00"),
        (("03:00",), "2026-11-23T03:00", "2026-11-24T03:00"),
        (("15:00", "03:00"), "2026-11-23T04:00", "2026-11-23T15:00"),
        (("sun 12:30",), "2026-11-23T00:00", "2026-11-29T12:30"),
        (("mon 00:00",), "2026-11-22T23:59", "2026-11-23T00:00"),
        (("mon 00:00", "23:00"), "2026-11-29T23:00", "2026-11-30T00:00"),
    ],
)
def test_times_of_the_day_and_the_week(times: tuple[str, ...], last: str, due: str) -> None:
    """2026-11-23 is a Monday."""
    schedule = parse_schedule(None, times, key="benches.b")
    assert schedule.next_ms(at(last), 0) == at(due)
    assert schedule.next_ms(None, at(last)) == at(due)


@pytest.mark.parametrize(
    ("every_minutes", "times", "text"),
    [
        (None, (), "benches.b.every_minutes: expected it or benches.b.at, got neither"),
        (5, ("03:00",), "got both"),
        (None, ("24:00",), "benches.b.at: expected times in UTC such as 03:00 or sun 12:30, got '24:00'"),
        (None, ("day 03:00",), "got 'day 03:00'"),
    ],
)
def test_wrong_times_are_refused(every_minutes: int | None, times: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_schedule(every_minutes, times, key="benches.b")


# --- the log ------------------------------------------------------------------------------------


def test_a_run_that_never_ended_counts_with_the_most_that_it_can_cost(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write(run("a", 1, result="began", usd=0.5))
        log.write(run("a", 1, 100.0, usd=0.1))
        log.write(run("b", 2, result="began", usd=0.5))
    runs = read_runs(tmp_path / FILE_NAME)
    assert [(each.id, each.result, each.usd) for each in runs] == [("a", "measured", 0.1), ("b", "began", 0.5)]
    assert spent(runs, 5).day_usd == pytest.approx(0.6)


def test_cost_counts_by_day_and_by_month() -> None:
    runs = [run(day, at(day), usd=1.0) for day in ("2026-10-31", "2026-11-01", "2026-11-22T23:59", "2026-11-23T00:00")]
    cost = spent(runs, at("2026-11-23T12:00"))
    assert (cost.day_usd, cost.month_usd) == (1.0, 3.0)


def test_a_torn_line_is_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write(run("a", 1))
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes() + b'{"id": "b", "at_')
    with open_log(tmp_path) as log:
        log.write(run("c", 3))
    assert [each.id for each in read_runs(path)] == ["a", "c"]


def test_old_runs_are_deleted(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for n in range(3):
            log.write(run(str(n), n * DAY_MS))
        log.delete_before(DAY_MS)
        assert [each.id for each in log.runs] == ["1", "2"]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [each.id for each in read_runs(tmp_path / FILE_NAME)] == ["1", "2"]
    assert BenchLog(tmp_path / FILE_NAME).runs == read_runs(tmp_path / FILE_NAME)


def test_only_one_process_has_the_log(tmp_path: Path) -> None:
    with open_log(tmp_path), pytest.raises(BenchLogInUse), open_log(tmp_path):
        pass
    with open_log(tmp_path):
        pass


def test_a_missing_log_has_no_runs(tmp_path: Path) -> None:
    assert read_runs(tmp_path / FILE_NAME) == []


# --- drift --------------------------------------------------------------------------------------


def draws(chance: random.Random, n: int, median_ms: float = 200.0) -> list[float]:
    """Latencies as providers have them: long to the right."""
    return [median_ms * chance.lognormvariate(0, 0.3) for _ in range(n)]


def drifted(runs: list[BenchRun], rule: DriftRule = RULE) -> set[str]:
    return {each.figure for each in changes(runs, rule) if each.has_drifted}


def test_a_change_that_is_large_and_certain_is_drift() -> None:
    chance = random.Random(1)
    before = [run(str(n), n, *draws(chance, 20)) for n in range(10)]
    assert drifted([*before, run("slower", 10, *draws(chance, 20, 400.0))]) == {"p50", "p95"}
    assert drifted([*before, run("faster", 10, *draws(chance, 20, 80.0))]) == {"p50"}
    assert drifted([*before, run("same", 10, *draws(chance, 20))]) == set()


def test_a_p95_needs_answers_beyond_it() -> None:
    """Of 20 answers none is surely above it: it may be slower, but not faster; nor slower than so few."""
    chance = random.Random(3)
    before = [run(str(n), n, *draws(chance, 20)) for n in range(10)]
    faster = draws(chance, 130, 80.0)
    assert "p95" not in drifted([*before, run("faster", 10, *faster[:20])])
    assert "p95" in drifted([*before, run("faster", 10, *faster)])
    slower = run("slower", 10, *draws(chance, 20, 400.0))
    assert drifted([*before[:4], slower]) == {"p50"}
    assert drifted([*before[:7], slower]) == {"p50", "p95"}


def test_a_small_change_is_no_drift_however_certain() -> None:
    chance = random.Random(2)
    before = [run(str(n), n, *draws(chance, 2_000)) for n in range(3)]
    after = run("after", 3, *draws(chance, 2_000, 220.0))
    assert drifted([*before, after]) == set()
    assert drifted([*before, after], DriftRule(share=0.05, baseline_runs=10)) == {"p50", "p95"}


def test_few_answers_say_nothing() -> None:
    assert changes([], RULE) == ()
    enough = [run(str(n), n, *[200.0] * 20) for n in range(2)]
    assert len(changes([*enough, run("after", 2, *[900.0] * 10)], RULE)) == 2
    assert changes([*enough, run("after", 2, *[900.0] * 9)], RULE) == ()
    assert changes([enough[0], run("after", 2, *[900.0] * 10)], RULE) == ()


def test_runs_that_measured_nothing_are_left_out() -> None:
    before = [run(str(n), n, *[200.0] * 20) for n in range(2)]
    after = run("after", 2, *[900.0] * 10)
    failed = run("failed", 3, result="failed")
    assert changes([*before, failed, after, failed], RULE) == changes([*before, after], RULE)


def test_a_new_level_becomes_the_usual_one() -> None:
    before = [run(str(n), n, *[200.0 + i for i in range(20)]) for n in range(10)]
    later = [run(f"later {n}", 10 + n, *[400.0 + i for i in range(20)]) for n in range(11)]
    assert drifted([*before, *later[:1]]) == {"p50", "p95"}
    assert drifted([*before, *later]) == set()


def test_false_alarms_are_rare() -> None:
    """The figure of the guide: of 500 runs without a change, with 20 answers each."""
    chance, alarms = random.Random(7), 0
    runs = [run(str(n), n, *draws(chance, 20)) for n in range(510)]
    for end in range(11, 511):
        alarms += bool(drifted(runs[:end]))
    assert alarms <= 5
