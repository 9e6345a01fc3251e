"""When the second model is started: against the closed form, and as conditions change."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from voicepipe.router.candidate import Candidate
from voicepipe.router.hedging import Hedge, HedgeBudget, Planner
from voicepipe.router.latency_stats import LatencyStats
from voicepipe.turn.pricing import Price

TOKENS = (1_500.0, 80.0)


def silent(median_ms: float, at_ms: float, sigma: float = 0.5) -> float:
    """Of a lognormal, the share beyond `at_ms`."""
    return 1.0 if at_ms <= 0 else 0.5 * math.erfc(math.log(at_ms / median_ms) / (sigma * math.sqrt(2)))


def taught(*medians_ms: float, prices: tuple[float, ...] = ()) -> tuple[LatencyStats, tuple[Candidate, ...]]:
    """A board that has seen 4,000 answers of each model, in the middles of equal shares."""
    latency, candidates = LatencyStats(), []
    for i, median_ms in enumerate(medians_ms):
        price = prices[i] if prices else 1.0
        candidate = Candidate(spec=f"v{i}/m", ttft_p50_ms=median_ms, price=Price(price, price * 4))
        candidates.append(candidate)
        for n in range(4_000):
            ms = median_ms * math.exp(0.5 * NormalDist().inv_cdf((n + 0.5) / 4_000))
            latency.survival(candidate).spoke(ms, 0.0)
    return latency, tuple(candidates)


def planned(latency: LatencyStats, candidates: tuple[Candidate, ...], weight: float, deadline_ms: int = 600) -> Planner:
    planner = Planner(candidates, deadline_ms)
    unit_usd = candidates[0].answer_usd(*TOKENS, warm=False)
    planner.rebuild(latency, 0.0, weight=weight, unit_usd=unit_usd, tokens=TOKENS)
    return planner


def best(planner: Planner, first: int = 0, warm: int = 0, allowed: int = 0b11) -> Hedge:
    return planner.hedge(first, warm, allowed)


@pytest.mark.parametrize("medians_ms", [(250.0, 320.0), (140.0, 180.0), (580.0, 140.0)])
def test_free_hedges_start_together(medians_ms: tuple[float, float]) -> None:
    """What costs nothing is a race, whose misses are the product of both."""
    latency, candidates = taught(*medians_ms)
    hedge = best(planned(latency, candidates, weight=1e-9))
    assert (hedge.second, hedge.after_ms) == (1, 0)
    race_miss = silent(medians_ms[0], 600) * silent(medians_ms[1], 600)
    assert hedge.loss == pytest.approx(race_miss, abs=0.012)


def test_the_dearer_a_hedge_the_later_it_comes() -> None:
    latency, candidates = taught(250.0, 320.0)
    waits = [best(planned(latency, candidates, weight=weight)).after_ms for weight in (0.001, 0.05, 0.2, 2.0)]
    assert waits == sorted(waits)
    assert waits[0] < 100
    assert waits[-1] > 600


def test_it_comes_before_the_deadline_and_not_at_the_p95() -> None:
    """The p95 of the first is 570 ms: a hedge then could not speak by 600."""
    latency, candidates = taught(250.0, 320.0)
    hedge = best(planned(latency, candidates, weight=0.05))
    assert 200 <= hedge.after_ms <= 450


def test_the_cheaper_and_the_sooner_second_is_taken() -> None:
    latency, candidates = taught(250.0, 300.0, 300.0, prices=(1.0, 1.0, 0.2))
    assert planned(latency, candidates, weight=0.1).hedge(0, 0, 0b111).second == 2
    latency, candidates = taught(250.0, 800.0, 200.0)
    assert planned(latency, candidates, weight=0.1).hedge(0, 0, 0b111).second == 2


def test_only_those_that_are_allowed_are_hedges() -> None:
    latency, candidates = taught(250.0, 300.0, 200.0)
    planner = planned(latency, candidates, weight=0.1)
    assert planner.hedge(0, 0, 0b011).second == 1
    assert planner.hedge(0, 0, 0b001).second is None


def test_a_warm_hedge_is_better_than_a_cold_one() -> None:
    latency, candidates = taught(300.0, 300.0, 300.0)
    planner = planned(latency, candidates, weight=0.1)
    assert planner.hedge(0, 0b010, 0b111).second == 1
    assert planner.hedge(0, 0b010, 0b111).loss < planner.hedge(0, 0, 0b111).loss


def test_who_spoke_last_stays_unless_another_is_clearly_better() -> None:
    latency, candidates = taught(300.0, 295.0)
    planner = planned(latency, candidates, weight=0.1)
    scores = [planner.score(i, 0, 0b11, last=0) for i in (0, 1)]
    assert scores[0] < scores[1]
    latency, candidates = taught(300.0, 200.0)
    planner = planned(latency, candidates, weight=0.1)
    scores = [planner.score(i, 0, 0b11, last=0) for i in (0, 1)]
    assert scores[1] < scores[0]


def test_a_later_deadline_needs_fewer_hedges() -> None:
    latency, candidates = taught(250.0, 320.0)
    soon, late = (best(planned(latency, candidates, 0.03, deadline)).after_ms for deadline in (600, 1_500))
    assert late > soon


def test_spending_over_the_cap_makes_hedges_dearer_and_under_it_cheaper() -> None:
    over, under = HedgeBudget(cap_usd=0.0001), HedgeBudget(cap_usd=0.0001)
    for _ in range(2_000):
        over.spent(0.0005, 0.001)
        under.spent(0.0, 0.001)
    assert over.weight > 0.05 > under.weight


def test_the_weight_stays_within_bounds() -> None:
    budget = HedgeBudget(cap_usd=0.0)
    for _ in range(20_000):
        budget.spent(1.0, 1e-6)
    assert budget.weight == 5.0
