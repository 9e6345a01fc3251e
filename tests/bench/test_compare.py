"""A regression differs from noise: it is past its bound, and no chance."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from voicepipe.bench.compare import Interval, compare, percentile, rate, table
from voicepipe.bench.compare_runs import MeasuredTurn, RunError, read_run
from voicepipe.telemetry.record_json import record_plain
from voicepipe.testing.records import turn_record

JOURNALS = Path(__file__).parents[1] / "data" / "journals"


def turns(n: int, *, slower_ms: int = 0, seed: int = 1) -> list[MeasuredTurn]:
    """Waits that scatter as waits do, late over a second."""
    chance = random.Random(seed)
    waits = [round(400 * chance.lognormvariate(0, 0.4)) + slower_ms for _ in range(n)]
    return [MeasuredTurn(ms, ms > 1_000) for ms in waits]


def verdicts(before: list[MeasuredTurn], after: list[MeasuredTurn]) -> list[str]:
    return [check.verdict for check in compare(before, after, p95_ms=50, misses=0.01).checks]


def test_the_same_run_is_no_worse() -> None:
    assert verdicts(turns(500), turns(500)) == ["within", "within"]


def test_a_slower_run_is_worse() -> None:
    assert verdicts(turns(500), turns(500, slower_ms=300, seed=2)) == ["worse", "worse"]


def test_a_bound_is_what_is_allowed() -> None:
    compared = compare(turns(500), turns(500, slower_ms=300, seed=2), p95_ms=500, misses=0.5)
    assert [check.verdict for check in compared.checks] == ["within", "within"]
    assert not compared.worse


@pytest.mark.parametrize("seed", range(2, 12))
def test_chance_is_not_called_a_regression(seed: int) -> None:
    """Other turns of the same kind differ, and sometimes by more than is allowed."""
    assert not compare(turns(100), turns(100, seed=seed), p95_ms=0, misses=0).worse


def test_too_few_turns_are_undecidable() -> None:
    compared = compare(turns(500), turns(71), p95_ms=50, misses=0.01)
    assert not compared.enough
    assert compare(turns(500), turns(72), p95_ms=50, misses=0.01).enough
    assert "too few turns: expected 72 of each" in list(table(compared))


def test_a_turn_that_failed_is_missed_and_the_slowest() -> None:
    failed = [*turns(90), *[MeasuredTurn(None, True)] * 10]
    assert verdicts(turns(100), failed) == ["worse", "worse"]


def test_intervals_are_those_of_their_sources() -> None:
    """Wilson's of 10 in 100; Newcombe's example of 56 of 70 against 48 of 80."""
    wilson = rate(10, 100)
    assert (round(wilson.low, 4), round(wilson.high, 4)) == (0.0552, 0.1744)
    difference = rate(56, 70).minus(rate(48, 80))
    assert [round(x, 4) for x in (difference.value, difference.low, difference.high)] == [0.2, 0.0524, 0.3339]
    assert (rate(0, 50).low, rate(50, 50).high) == (0.0, 1.0)


def test_a_percentile_lies_among_what_was_measured() -> None:
    assert percentile(range(1, 1_001)) == Interval(950, 936, 964)
    assert percentile([7]) == Interval(7, 7, 7)


# --- where turns are written ----------------------------------------------------------------------


def exported(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    records = [
        record_plain(turn_record(), "default"),
        record_plain(turn_record(), "default") | {"total_ms": None, "outcome": "failed"},
    ]
    records.append(records[0] | {"total_ms": None, "outcome": "abandoned"})
    lines = [msgspec.json.encode(record) for record in records]
    match path.suffix:
        case ".jsonl":
            path.write_bytes(b"\n".join(lines) + b"\n")
        case ".json":
            path.write_bytes(b'{"data": [' + b",".join(lines) + b"]}")
        case _:
            rows = [f"{r['total_ms'] or ''},{r['total_verdict']},{r['outcome']}" for r in records]
            path.write_text("\n".join(["total_ms,total_verdict,outcome", *rows]), "utf-8-sig")
    return path


@pytest.mark.parametrize("name", ["turns.jsonl", "turns.json", "turns.csv"])
def test_exported_turns_are_read(tmp_path: Path, name: str) -> None:
    """They are as the API gives them. An abandoned turn does not count."""
    known = turn_record()
    expected = [MeasuredTurn(known.total_ms, known.total_verdict == "over"), MeasuredTurn(None, True)]
    assert read_run(exported(tmp_path, name), limit_ms=1_000) == expected


def test_the_load_bench_is_read(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("server,latency_ms,error\nx,640,\nx,1200,\nx,,no answer\n")
    expected = [MeasuredTurn(640, False), MeasuredTurn(1200, True), MeasuredTurn(None, True)]
    assert read_run(path, limit_ms=1_000) == expected


def test_journals_are_read() -> None:
    """A folder of them is one run."""
    alone = read_run(JOURNALS / "answer.jsonl", limit_ms=1_000)
    assert len(alone) == 2
    assert all(turn.latency_ms for turn in alone)
    assert len(read_run(JOURNALS, limit_ms=1_000)) > 6


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.json", "[]"), ("a.csv", "x,y\n1,2\n"), ("a.txt", "-")])
def test_what_holds_no_turns_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match="expected"):
        read_run(tmp_path / name, limit_ms=1_000)
