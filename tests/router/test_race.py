"""One request, fact by fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.router.candidate import Candidate
from voicepipe.router.race import Attempt, Close, GiveUp, Later, Race, RaceCommand, RacePlan, Speak, Start

A, B, C = (Candidate(spec=f"{name}/m") for name in "abc")
HEDGED = RacePlan(first=A, later=(Later(B, 300),), reserve=(C,), deadline_ms=600, attempt_timeout_ms=8_000)


def order_names(orders: list[RaceCommand]) -> list[str]:
    """`start b hedge`, `close a`, `speak b`, `give up`."""
    words = []
    for order in orders:
        match order:
            case Start(attempt):
                words.append(f"start {attempt.candidate.spec[0]} {attempt.role}")
            case Close(attempt):
                words.append(f"close {attempt.candidate.spec[0]}")
            case Speak(attempt):
                words.append(f"speak {attempt.candidate.spec[0]}")
            case GiveUp():
                words.append("give up")
    return words


class Scenario:
    """A race written as lines."""

    def __init__(self, plan: RacePlan) -> None:
        self.race = Race(plan)

    def at(self, now_ms: float, what: str = "") -> list[str]:
        """`begin`, `a spoke`, `a failed`, or nothing: time passed."""
        if what == "begin":
            return order_names(self.race.begin(now_ms))
        if not what:
            return order_names(self.race.time_passed(now_ms))
        name, verb = what.split()
        verbs: dict[str, Callable[[Attempt, float], list[RaceCommand]]] = {
            "spoke": self.race.spoke,
            "failed": self.race.failed,
        }
        attempt = next(each for each in self.race.attempts if each.candidate.spec.startswith(name))
        return order_names(verbs[verb](attempt, now_ms))


def test_a_first_that_speaks_in_time_is_alone() -> None:
    scenario = Scenario(HEDGED)
    assert scenario.at(1_000, "begin") == ["start a primary"]
    assert scenario.race.wake_ms() == 1_300
    assert scenario.at(1_200, "a spoke") == ["speak a"]
    assert scenario.race.over
    assert scenario.race.wake_ms() is None


def test_a_late_first_is_hedged_and_the_loser_closed() -> None:
    scenario = Scenario(HEDGED)
    scenario.at(0, "begin")
    assert scenario.at(300) == ["start b hedge"]
    assert scenario.race.wake_ms() == 600
    assert scenario.at(450, "b spoke") == ["speak b", "close a"]
    assert [each.state for each in scenario.race.attempts] == ["lost", "spoke"]
    assert [each.first_ms for each in scenario.race.attempts] == [None, 150]


def test_what_a_loser_still_sends_changes_nothing() -> None:
    """Its first token or its failure was on the way when it was closed."""
    scenario = Scenario(HEDGED)
    scenario.at(0, "begin")
    scenario.at(300)
    scenario.at(450, "b spoke")
    assert scenario.at(451, "a spoke") == scenario.at(452, "a failed") == scenario.at(60_000) == []
    loser, winner = scenario.race.attempts
    assert (loser.state, loser.first_ms, loser.ended_ms) == ("lost", None, 450)
    assert scenario.race.winner is winner


def test_an_error_brings_the_hedge_forward_at_once() -> None:
    scenario = Scenario(HEDGED)
    scenario.at(0, "begin")
    assert scenario.at(50, "a failed") == ["start b replacement"]
    assert scenario.at(60, "b failed") == ["start c replacement"]
    assert scenario.at(70, "c failed") == ["give up"]


def test_a_deadline_in_silence_starts_one_more_and_no_fourth() -> None:
    scenario = Scenario(HEDGED)
    scenario.at(0, "begin")
    scenario.at(300)
    assert scenario.at(600) == ["start c replacement"]
    assert scenario.race.wake_ms() == 8_000
    assert scenario.at(900, "c spoke") == ["speak c", "close a", "close b"]


def test_a_model_alone_and_silent_at_the_deadline_is_replaced_without_money_for_a_third() -> None:
    scenario = Scenario(RacePlan(first=A, reserve=(B, C), deadline_ms=600, starts_late=False))
    scenario.at(0, "begin")
    assert scenario.race.wake_ms() == 600
    assert scenario.at(600) == ["start b replacement"]
    assert scenario.race.wake_ms() == 8_000
    assert scenario.at(900, "b spoke") == ["speak b", "close a"]


def test_two_that_are_silent_at_the_deadline_get_no_third_without_money_until_one_fails() -> None:
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 300),), reserve=(C,), deadline_ms=600, starts_late=False))
    scenario.at(0, "begin")
    scenario.at(300)
    assert scenario.race.wake_ms() == 8_000
    assert scenario.at(700, "b failed") == []
    assert scenario.race.wake_ms() == 600
    assert scenario.at(700) == ["start c replacement"]


def test_attempt_times_out() -> None:
    """Each attempt for itself; the last one that is left takes the request with it."""
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 300),), deadline_ms=600, attempt_timeout_ms=1_000))
    scenario.at(0, "begin")
    scenario.at(300)
    assert scenario.at(1_000) == ["close a"]
    assert scenario.at(1_300) == ["close b", "give up"]
    assert all(each.timed_out for each in scenario.race.attempts)


def test_one_at_a_time_closes_the_former() -> None:
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 500), Later(C, 1_000)), one_at_a_time=True))
    scenario.at(0, "begin")
    assert scenario.at(500) == ["close a", "start b hedge"]
    assert scenario.at(600, "b failed") == ["start c replacement"]
    assert scenario.at(700, "c spoke") == ["speak c"]


def test_a_hedge_is_held_for_the_preferred_until_the_deadline() -> None:
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 100),), deadline_ms=600, hold_until_ms=590))
    scenario.at(0, "begin")
    scenario.at(100)
    assert scenario.at(250, "b spoke") == []
    assert scenario.race.wake_ms() == 590
    assert scenario.at(400, "a spoke") == ["speak a", "close b"]


def test_a_held_hedge_speaks_when_the_preferred_is_late_or_fails() -> None:
    for end in ("time", "failure"):
        scenario = Scenario(RacePlan(first=A, later=(Later(B, 100),), deadline_ms=600, hold_until_ms=590))
        scenario.at(0, "begin")
        scenario.at(100)
        scenario.at(250, "b spoke")
        came = scenario.at(590) if end == "time" else scenario.at(300, "a failed")
        assert came == (["speak b", "close a"] if end == "time" else ["speak b"])


def test_a_race_of_three_has_three_in_flight() -> None:
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 0), Later(C, 0))))
    assert scenario.at(0, "begin") == ["start a primary", "start b hedge", "start c hedge"]


def test_abandoning_closes_every_call() -> None:
    scenario = Scenario(HEDGED)
    scenario.at(0, "begin")
    scenario.at(300)
    assert order_names(scenario.race.abandon(310)) == ["close a", "close b"]
    assert scenario.at(320, "a spoke") == []


plans = st.builds(
    lambda waits, hold, alone, n: RacePlan(
        first=A,
        later=tuple(Later(each, wait) for each, wait in zip((B, C), sorted(waits), strict=False)),
        reserve=tuple(Candidate(spec=f"r{i}/m") for i in range(n)),
        hold_until_ms=500 if hold and not alone else None,
        one_at_a_time=alone,
        attempt_timeout_ms=2_000,
    ),
    st.lists(st.integers(0, 1_500), max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)


@given(plans, st.data())
def test_every_race_ends_and_leaves_no_call_running(plan: RacePlan, data: Any) -> None:
    """At most one model speaks, every other one is closed or has failed, and calls in flight never exceed the limit."""
    race, now_ms, spoken = Race(plan), 0.0, 0
    most = max(2, 1 + sum(not each.after_ms for each in plan.later)) + 1  # and one replacement
    spoken += sum(isinstance(each, Speak) for each in race.begin(now_ms))
    for _ in range(60):
        if race.over:
            break
        running = [each for each in race.attempts if each.state == "running"]
        assert len(running) <= most
        wake_ms = race.wake_ms()
        choice = data.draw(st.sampled_from(["time", "spoke", "failed"]))
        if choice == "time" or not running:
            assert wake_ms is not None
            now_ms = max(now_ms, wake_ms)
            orders = race.time_passed(now_ms)
        else:
            now_ms += data.draw(st.integers(0, 50))
            attempt = data.draw(st.sampled_from(running))
            orders = race.spoke(attempt, now_ms) if choice == "spoke" else race.failed(attempt, now_ms)
        spoken += sum(isinstance(each, Speak) for each in orders)
    assert race.over
    assert spoken == (race.winner is not None)
    assert all(each.state in ("spoke", "lost", "failed") for each in race.attempts)


@pytest.mark.parametrize("late_ms", [600, 2_000])
def test_a_hedge_that_is_overdue_is_started_once(late_ms: int) -> None:
    """A loop that was busy wakes late."""
    scenario = Scenario(RacePlan(first=A, later=(Later(B, 300),)))
    scenario.at(0, "begin")
    assert scenario.at(late_ms) == ["start b hedge"]
    assert scenario.at(late_ms + 1) == []


@given(st.floats(0, 1e8), st.sampled_from([1.0, 300.0, 333.3, 600.0]), st.booleans())
def test_what_is_due_happens_whatever_instant_it_began_at(began_ms: float, after_ms: float, alone: bool) -> None:
    """Fractions of a millisecond do not add up: a timer that wakes at the given time finds something to do."""
    plan = RacePlan(
        first=A,
        later=(Later(B, after_ms),),
        reserve=(C,),
        one_at_a_time=alone,
        deadline_ms=601.7,
        attempt_timeout_ms=1_000.3,
    )
    race = Race(plan)
    race.begin(began_ms)
    for _ in range(10):
        wake_ms = race.wake_ms()
        if wake_ms is None:
            break
        assert race.time_passed(wake_ms)
    assert race.over
