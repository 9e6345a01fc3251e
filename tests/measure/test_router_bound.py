"""The bound's turns are those that the product's race runs: the same answers in time, the same tokens paid."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from tests.measure.router_bound import Plan, Turns, draws
from voicepipe.bench.simulate_pools import published_pools
from voicepipe.bench.simulate_world import HANG
from voicepipe.cli.simulate import published_candidates
from voicepipe.router import race
from voicepipe.router.llm.usage import billed_tokens
from voicepipe.router.pool import USUAL_TOKENS

DEADLINE_MS, HOLD_MS = 600.0, 590.0
POOL = published_pools()["mid"]
CANDIDATES = published_candidates(POOL)


def raced(
    plan: Plan, answers_ms: list[float], failures_ms: list[float], hold_ms: float | None
) -> tuple[race.Race, float]:
    """Run one turn, and return when a model answered. What each model would do is given by its number."""
    numbers = {each.spec: i for i, each in enumerate(CANDIDATES)}
    first, *others = (CANDIDATES[each] for each in plan.models)
    later = tuple(map(race.Later, others, plan.starts_ms[1:]))
    running = race.Race(race.RacePlan(first=first, later=later, hold_until_ms=hold_ms, attempt_timeout_ms=math.inf))
    due: list[tuple[float, int, race.Attempt]] = []

    def execute(orders: list[race.RaceCommand]) -> None:
        for order in orders:
            if isinstance(order, race.Start):
                model = numbers[order.attempt.candidate.spec]
                after_ms = min(answers_ms[model], failures_ms[model])
                heapq.heappush(due, (order.attempt.began_ms + after_ms, order.attempt.number, order.attempt))

    execute(running.begin(0.0))
    now_ms = 0.0
    while not running.over:
        wake_ms = running.wake_ms()
        if wake_ms is not None and wake_ms < due[0][0]:
            now_ms = wake_ms
            execute(running.time_passed(now_ms))
        elif math.isinf(due[0][0]):
            break
        else:
            now_ms, _, attempt = heapq.heappop(due)
            fails = failures_ms[numbers[attempt.candidate.spec]] < HANG
            execute((running.failed if fails else running.spoke)(attempt, now_ms))
    return running, HANG if running.winner is None else now_ms


@pytest.mark.parametrize("hold_ms", [None, HOLD_MS], ids=["first to speak", "given"])
@pytest.mark.parametrize(
    "plan",
    [
        Plan((0,), (0.0,)),
        Plan((0, 1, 2), (0.0, HANG, HANG)),
        Plan((0, 2, 1), (0.0, 0.0, HANG)),
        Plan((0, 2, 1), (0.0, 325.0, HANG)),
        Plan((1, 0, 2), (0.0, 600.0, HANG)),
    ],
    ids=lambda plan: f"{plan.models} at {plan.starts_ms}",
)
def test_a_plans_turns_are_those_of_the_races_that_carry_it_out(plan: Plan, hold_ms: float | None) -> None:
    answers, failures = draws(POOL.medians_ms, (True, True, False), 1.0, seed=3, n=400)
    found = Turns(POOL, answers, failures, DEADLINE_MS, hold_ms is not None).run(plan)
    n_late, written_usd, reads = 0, 0.0, np.zeros(3)
    for turn in range(answers.shape[1]):
        ended, answered_ms = raced(plan, answers[:, turn].tolist(), failures[:, turn].tolist(), hold_ms)
        n_late += answered_ms > DEADLINE_MS
        for each in ended.attempts:
            read, written = billed_tokens(each, USUAL_TOKENS)
            number = CANDIDATES.index(each.candidate)
            reads[number] += read > 0
            written_usd += written * POOL.models[number].output_usd / 1e6
    n = answers.shape[1]
    assert found.late == pytest.approx(n_late / n)
    assert found.reads == pytest.approx(reads / n)
    assert found.written_usd == pytest.approx(written_usd / n)
