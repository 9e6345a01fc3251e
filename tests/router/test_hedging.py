"""When the second model is started: against the closed form, and as conditions change."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from voicepipe.router.candidate import Candidate
from voicepipe.router.hedging import Hedge, PlanBasis, Planner
from voicepipe.router.latency_stats import LatencyStats
from voicepipe.turn.cost import Price

TOKENS = (1_500.0, 80.0)


def silent(median_ms: float, at_ms: float, sigma: float = 0.5) -> float:
    """Of a lognormal, the share beyond `at_ms`."""
    return 1.0 if at_ms <= 0 else 0.5 * math.erfc(math.log(at_ms / median_ms) / (sigma * math.sqrt(2)))


def taught(*medians_ms: float, prices: tuple[float, ...] = ()) -> tuple[LatencyStats, tuple[Candidate, ...]]:
    """A board that has seen 4,000 answers of each model, in the middles of equal shares, in any order."""
    latency, candidates = LatencyStats(), []
    order = np.random.default_rng(1).permutation(4_000).tolist()
    for i, median_ms in enumerate(medians_ms):
        price = prices[i] if prices else 1.0
        candidate = Candidate(spec=f"v{i}/m", ttft_p50_ms=median_ms, price=Price(price, price * 4))
        candidates.append(candidate)
        for n in order:
            ms = median_ms * math.exp(0.5 * NormalDist().inv_cdf((n + 0.5) / 4_000))
            latency.survival(candidate).spoke(ms, 0.0)
    return latency, tuple(candidates)


def cached(latency: LatencyStats, medians_ms: tuple[float, ...]) -> tuple[Candidate, ...]:
    price = Price(1.0, 4.0, 0.1)
    return tuple(Candidate(spec=f"v{i}/m", ttft_p50_ms=ms, price=price) for i, ms in enumerate(medians_ms))


def planned(
    latency: LatencyStats,
    candidates: tuple[Candidate, ...],
    weight: float,
    deadline_ms: int = 600,
    stays: tuple[float, ...] = (0.0,),
    hold_ms: float = 0.0,
) -> Planner:
    planner = Planner(candidates, deadline_ms, hold_ms)
    unit_usd = candidates[0].answer_usd(*TOKENS, warm=False)
    planner.rebuild(
        PlanBasis(latency=latency, now_ms=0.0, weight=weight, unit_usd=unit_usd, tokens=TOKENS, stays=np.array(stays))
    )
    return planner


def best(planner: Planner, first: int = 0, warm: int = 0, allowed: int = 0b11) -> Hedge:
    return planner.hedge(first, warm, allowed, 0)


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
    assert planned(latency, candidates, weight=0.1).hedge(0, 0, 0b111, 0).second == 2
    latency, candidates = taught(250.0, 800.0, 200.0)
    assert planned(latency, candidates, weight=0.1).hedge(0, 0, 0b111, 0).second == 2


def test_only_those_that_are_allowed_are_hedges() -> None:
    latency, candidates = taught(250.0, 300.0, 200.0)
    planner = planned(latency, candidates, weight=0.1)
    assert planner.hedge(0, 0, 0b011, 0).second == 1
    assert planner.hedge(0, 0, 0b001, 0).second is None


def test_a_warm_hedge_is_better_than_a_cold_one() -> None:
    """It reads the session at the cached price. It is not taken to be sooner: no vendor publishes that."""
    latency, _ = taught(300.0, 300.0, 300.0)
    planner = planned(latency, cached(latency, (300.0, 300.0, 300.0)), weight=0.1)
    assert planner.hedge(0, 0b010, 0b111, 0).second == 1
    assert planner.hedge(0, 0b010, 0b111, 0).loss < planner.hedge(0, 0, 0b111, 0).loss


def test_who_spoke_last_stays_unless_another_is_clearly_better() -> None:
    latency, candidates = taught(300.0, 295.0)
    planner = planned(latency, candidates, weight=0.1)
    scores = [planner.score(i, 0, 0b11, 0, last=0) for i in (0, 1)]
    assert scores[0] < scores[1]
    latency, candidates = taught(300.0, 200.0)
    planner = planned(latency, candidates, weight=0.1)
    scores = [planner.score(i, 0, 0b11, 0, last=0) for i in (0, 1)]
    assert scores[1] < scores[0]


def test_a_later_deadline_needs_fewer_hedges() -> None:
    latency, candidates = taught(250.0, 320.0)
    soon, late = (best(planned(latency, candidates, 0.03, deadline)).after_ms for deadline in (600, 1_500))
    assert late > soon


def test_a_hedge_that_makes_later_ones_cheaper_comes_earlier() -> None:
    """A model's first call of a session costs most: it is an investment, the larger the more turns are to come."""
    latency, _ = taught(250.0, 320.0)
    candidates = cached(latency, (250.0, 320.0))
    short = planned(latency, candidates, 0.15, stays=(0.0,))
    long = planned(latency, candidates, 0.15, stays=(*(1.0,) * 7, 0.0))
    assert long.hedge(0, 0b01, 0b11, 0).after_ms < short.hedge(0, 0b01, 0b11, 0).after_ms
    waits = [long.hedge(0, 0b01, 0b11, turn).after_ms for turn in range(8)]
    assert waits == sorted(waits)


def test_a_cheaper_answer_pays_for_the_hedge() -> None:
    """The second reads at the same price and writes at a tenth: it is started sooner than one that writes at that
    price."""
    latency, _ = taught(250.0, 320.0, 320.0)
    candidates = tuple(
        Candidate(spec=f"v{i}/m", price=Price(0.1, written)) for i, written in enumerate((4.0, 4.0, 0.4))
    )
    planner = planned(latency, candidates, 0.3)
    assert planner.hedge(0, 0, 0b101, 0).after_ms < planner.hedge(0, 0, 0b011, 0).after_ms


@pytest.mark.parametrize("hold_ms", [0.0, 590.0])
def test_a_hedge_is_priced_as_turns_pay_for_it(hold_ms: float) -> None:
    """Against drawn turns: until it is released, a hedge saves nothing of the first one's answer, and writes."""
    latency, _ = taught(250.0, 300.0)
    candidates = tuple(Candidate(spec=f"v{i}/m", price=Price(0.1, written)) for i, written in enumerate((4.0, 1.0)))
    weight, unit_usd = 0.3, candidates[0].answer_usd(*TOKENS, warm=False)
    hedge = best(planned(latency, candidates, weight, hold_ms=hold_ms))
    chance = np.random.default_rng(2)
    first, second = (ms * np.exp(0.5 * chance.standard_normal(200_000)) for ms in (250.0, 300.0))
    ready = np.where(first > hedge.after_ms, hedge.after_ms + second, np.inf)
    released = np.maximum(ready, hold_ms)
    wins = released < first
    wrote = np.clip(first - ready, 0.0, None) * ~wins * candidates[1].tokens_per_s / 1_000
    usd = candidates[1].read_usd(TOKENS[0], warm=False) * np.mean(first > hedge.after_ms)
    usd += np.mean(wins) * (candidates[1].answer_usd(0, TOKENS[1], warm=False))
    usd -= np.mean(wins) * (candidates[0].answer_usd(0, TOKENS[1], warm=False))
    usd += candidates[1].answer_usd(0, float(np.mean(wrote)), warm=False) if hold_ms else 0.0
    spoke = np.minimum(first, released)
    missed = sum(share * np.mean(spoke > ms) for ms, share in ((600, 1.0), (1_000, 0.5), (2_000, 0.5), (4_000, 2.0)))
    assert hedge.second == 1
    assert hedge.loss == pytest.approx(missed + weight * usd / unit_usd, abs=0.01)


def test_a_held_hedge_to_a_cheaper_model_starts_later_than_one_that_may_answer_at_once() -> None:
    latency, _ = taught(250.0, 300.0)
    candidates = tuple(Candidate(spec=f"v{i}/m", price=Price(0.1, written)) for i, written in enumerate((4.0, 0.4)))
    at_once, held = (best(planned(latency, candidates, 0.2, hold_ms=hold_ms)) for hold_ms in (0.0, 590.0))
    assert held.after_ms > at_once.after_ms


@pytest.mark.parametrize(("weight", "pays"), [(1e-3, True), (10.0, False)])
def test_a_third_is_started_at_the_deadline_where_it_is_worth_its_price(weight: float, pays: bool) -> None:
    latency, candidates = taught(580.0, 580.0, 300.0)
    planner = planned(latency, candidates, weight)
    assert planner.pays_late(0, Hedge(0.0, 1, 0.0), 2, 0) is pays
    assert planner.pays_late(0, Hedge(0.0, None, 0.0), 2, 0) is pays
