"""Each expectation can be met and can fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from voicepipe.evals.expectations import Seen, SeenCall, loops, unmet
from voicepipe.evals.scenario import Expect
from voicepipe.values import replace

SEEN = Seen(
    text="Your table, number 7, is free on Friday.",
    transcript="A table for four.",
    calls=(SeenCall("find_table", {"people": 4, "day": "Friday"}), SeenCall("log", None)),
    outcome="completed",
    latencies_ms=(700,),
    answers=1,
)


def failures(seen: Seen = SEEN, **expect: Any) -> list[str]:
    return list(unmet(msgspec.convert(expect, Expect), seen))


@pytest.mark.parametrize(
    "expect",
    [
        {"contains": "your TABLE number 7"},
        {"contains": ["friday", "Free"], "not_contains": "saturday"},
        {"matches": [r"number \d", "^your"]},
        {"transcript": "for four"},
        {"tools": [{"name": "find_table", "arguments": {"people": 4}}]},
        {"tools": [{"name": "log"}, {"name": "find_table", "arguments": {"day": " friday "}}]},
        {"outcome": "completed", "latency_ms": 700, "answers": 1},
    ],
)
def test_what_is_met(expect: dict[str, Any]) -> None:
    assert failures(**expect) == []


@pytest.mark.parametrize(
    ("expect", "why"),
    [
        ({"contains": "table 7"}, "contains: expected 'table 7' in the answer, got 'Your table"),
        ({"contains": ["friday", "monday"]}, "contains: expected 'monday'"),
        ({"not_contains": "Friday"}, "not_contains: expected no 'Friday'"),
        ({"matches": r"number \d\d"}, r"matches: expected 'number \\d\\d'"),
        ({"transcript": "for two"}, "transcript: expected 'for two', got 'A table for four.'"),
        ({"tools": []}, "tools: expected no call, got find_table(people=4, day='Friday'), log (run by the server"),
        ({"tools": [{"name": "cancel"}]}, "tools: expected cancel(), got find_table("),
        ({"tools": [{"name": "find_table", "arguments": {"people": 2}}]}, "tools: expected find_table(people=2), got"),
        ({"tools": [{"name": "find_table"}, {"name": "find_table"}]}, "tools: expected find_table(), got"),
        ({"tools": [{"name": "log", "arguments": {"a": 1}}]}, "tools: expected log(a=1), got"),
        ({"outcome": "interrupted"}, "outcome: expected interrupted, got completed"),
        ({"latency_ms": 699}, "latency_ms: expected at most 699, got 700"),
        ({"answers": 2}, "answers: expected 2 audible, got 1"),
    ],
)
def test_what_is_not_met(expect: dict[str, Any], why: str) -> None:
    (failure,) = failures(**expect)
    assert failure.startswith(why)


def test_an_answer_that_never_comes_meets_no_bound() -> None:
    nothing = Seen(text="", transcript="", calls=(), outcome=None, latencies_ms=(None,), answers=0)
    assert failures(nothing, latency_ms=9_000) == ["latency_ms: expected at most 9000, got no audible answer"]
    assert failures(replace(nothing, latencies_ms=()), latency_ms=9_000) != []
    assert failures(nothing, outcome="completed") == ["outcome: expected completed, got no answer"]
    assert failures(nothing, tools=[{"name": "a"}]) == ["tools: expected a(), got no call"]


def test_a_rule_that_fits_its_own_functions_result_is_named() -> None:
    calls = (SeenCall("find", None), *[SeenCall("cancel", None)] * 8)
    (why,) = loops(calls)
    assert why.startswith("called cancel 8 times: with a scripted LLM, an `if` fits the result of cancel, too")
    assert list(loops(calls[:5])) == []
