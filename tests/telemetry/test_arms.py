"""The arms of experiments: estimates with their intervals, and a winner only when it is one."""

from __future__ import annotations

import random
import statistics

import pytest

from voicepipe.telemetry.rollups.arms import ArmTurn, experiments, mean_of, median_of, wilson
from voicepipe.turn.record.arm import NO_ARM, Arm


def turns(arm: str, n: int, *, good: int, scored: int, source: str = "user", ms: int = 500) -> list[ArmTurn]:
    """Turns of an arm, the first `scored` with a score, the first `good` of these with a good one."""
    return [
        ArmTurn(
            Arm.read(arm), ms + i % 7, 0.001 + 0.0001 * (i % 3), i == 0, {source: float(i < good)} if i < scored else {}
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("good", "n", "low", "high"),
    # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(good: int, n: int, low: float, high: float) -> None:
    estimate = wilson(good, n)
    assert estimate.value == good / n
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=5e-5)


def test_intervals_hold_the_true_figure_nineteen_times_of_twenty() -> None:
    """1,000 experiments of 200 lognormal latencies with a median of 500."""
    draw = random.Random(7)
    held = 0
    for _ in range(1_000):
        estimate = median_of([round(500 * draw.lognormvariate(0, 0.5)) for _ in range(200)])
        held += estimate.low <= 500 <= estimate.high
    assert 930 <= held <= 975


def test_a_mean_of_one_turn_has_no_width() -> None:
    assert mean_of([0.5]).low == mean_of([0.5]).high == 0.5
    estimate = mean_of([1.0, 2.0, 3.0])
    assert (estimate.value, estimate.high - estimate.value) == pytest.approx((2.0, 1.959964 / 3**0.5))
    assert median_of([9]).low == median_of([9]).high == 9


def test_a_mean_has_the_sample_deviation() -> None:
    draw = random.Random(7)
    values = [0.001 * draw.lognormvariate(0, 1) for _ in range(500)]
    estimate = mean_of(values)
    half = 1.959964 * statistics.stdev(values) / 500**0.5
    expected = (statistics.fmean(values), statistics.fmean(values) - half, statistics.fmean(values) + half)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(expected, rel=1e-12)


def test_the_turns_in_no_arm_are_summed_up_once_for_all_experiments() -> None:
    one, other = experiments([ArmTurn(arm, 500, 0.0, False, {}) for arm in (Arm("a", "x"), Arm("b", "x"), NO_ARM)])
    assert one.arms[-1].pool == ""
    assert one.arms[-1] is other.arms[-1]


def test_arms_stand_side_by_side_with_the_turns_in_no_arm() -> None:
    found = experiments(
        [
            *turns("host/new", 40, good=30, scored=40),
            *turns("host/old", 30, good=10, scored=20),
            *turns("", 9, good=0, scored=0),
        ]
    )
    (host,) = found
    assert host.name == "host"
    assert [(arm.pool, arm.turns, arm.failed) for arm in host.arms] == [("new", 40, 1), ("old", 30, 1), ("", 9, 1)]
    new = host.arms[0]
    assert new.latency_ms is not None
    assert (new.latency_ms.value, new.latency_ms.low, new.latency_ms.high) == (503, 502, 504)
    assert (new.quality["user"].good, new.quality["user"].scores) == (30, 40)
    assert host.winner is None  # their intervals overlap


@pytest.mark.parametrize(
    ("other_good", "n", "winner"),
    [(40, 100, "new"), (70, 100, None), (2, 19, None)],
    ids=["clear", "intervals overlap", "too few"],
)
def test_a_winner_is_above_all_others(other_good: int, n: int, winner: str | None) -> None:
    good = round(0.8 * n)
    found = experiments([*turns("host/new", n, good=good, scored=n), *turns("host/old", n, good=other_good, scored=n)])
    assert found[0].winner == winner


def test_the_judge_decides_where_users_give_no_scores() -> None:
    judged = [
        *turns("e/a", 100, good=90, scored=100, source="judge"),
        *turns("e/b", 100, good=20, scored=100, source="judge"),
    ]
    assert experiments(judged)[0].winner == "a"
    # Scores of users count first, and here they don't tell the arms apart.
    users = [*turns("e/a", 30, good=15, scored=30), *turns("e/b", 30, good=15, scored=30)]
    assert experiments([*judged, *users])[0].winner == "a"


@pytest.mark.parametrize(
    ("good", "scored", "winner"),
    [(0, 0, "new"), (30, 100, "new"), (95, 100, None), (1, 5, None)],
    ids=["no score", "worse", "as good", "too few scores"],
)
@pytest.mark.parametrize("source", ["user", "judge"])
def test_turns_in_no_arm_count_only_with_scores(source: str, good: int, scored: int, winner: str | None) -> None:
    """The judge scores no turn outside the experiment."""
    found = experiments(
        [
            *turns("host/new", 100, good=90, scored=100, source=source),
            *turns("host/old", 100, good=20, scored=100, source=source),
            *turns("", 200, good=good, scored=scored, source=source),
        ]
    )
    assert found[0].winner == winner


@pytest.mark.parametrize("judged", [0, 100])
def test_turns_in_no_arm_win_nothing(judged: int) -> None:
    """They belong to no pool. Scores of a judge don't make another one the best where users prefer these."""
    found = experiments(
        [
            *turns("host/new", judged, good=judged, scored=judged, source="judge"),
            *turns("host/old", judged, good=0, scored=judged, source="judge"),
            *turns("host/new", 100, good=20, scored=100),
            *turns("host/old", 100, good=30, scored=100),
            *turns("", 200, good=190, scored=200),
        ]
    )
    assert found[0].winner is None


def test_an_arm_alone_is_not_compared_with_turns_without_scores() -> None:
    rest = turns("", 200, good=0, scored=0)
    assert experiments([*turns("host/new", 100, good=90, scored=100), *rest])[0].winner is None
    # An arm without a score of that source is still waited for.
    silent = turns("host/other", 200, good=0, scored=0)
    scored = [*turns("host/new", 100, good=90, scored=100), *turns("host/old", 100, good=20, scored=100)]
    assert experiments([*scored, *silent, *rest])[0].winner is None


def test_alone_nothing_wins() -> None:
    assert experiments(turns("e/a", 100, good=90, scored=100))[0].winner is None
    assert experiments([]) == ()
    silent = experiments([ArmTurn(Arm("e", "a"), None, 0.0, True, {})])[0].arms[0]
    assert silent.latency_ms is None
