"""The product's own policies in virtual time: one turn by hand, and a world of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from voicepipe.errors import StageRefused
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.simulation import Draw, DrawnTurn, SimulatedResult, simulate_turns
from voicepipe.turn.cost import Price
from voicepipe.values import replace

A = Candidate(spec="a/m", price=Price(1.0, 4.0, 0.1), ttft_p50_ms=250.0, tokens_per_s=100.0)
B = Candidate(spec="b/m", price=Price(1.0, 4.0, 0.1), ttft_p50_ms=250.0, tokens_per_s=100.0)

READ_USD = 1_500 / 1e6
ANSWER_USD = READ_USD + 80 * 4 / 1e6


def one(*draws: Draw, **options: Any) -> SimulatedResult:
    """One turn of a pool of two that knows nothing yet."""
    stats = SharedStats()
    pool = build_pool("p", (A, B)[: len(draws)], RouterOptions(**options), stats)
    (came,) = simulate_turns(pool, stats, [DrawnTurn(at_ms=1_000.0, session="s", draws=draws)])
    assert set(stats.running.values()) == {0}
    return came


def test_the_sooner_of_two_speaks_and_the_other_has_read_for_nothing() -> None:
    came = one(Draw(500), Draw(200), policy="race")
    assert (came.ttft_ms, came.n_calls, came.speaker) == (200, 2, "b/m")
    assert came.usd == pytest.approx(ANSWER_USD + READ_USD)
    assert came.lost_usd == pytest.approx(READ_USD)


def test_a_failure_costs_nothing_but_its_time() -> None:
    came = one(Draw(120, fails=True), Draw(200), policy="single")
    assert (came.ttft_ms, came.n_calls, came.speaker) == (320, 2, "b/m")
    assert came.usd == pytest.approx(ANSWER_USD)


def test_a_call_that_hangs_is_given_up_in_the_end() -> None:
    came = one(Draw(math.inf), policy="single", attempt_timeout_ms=3_000)
    assert (came.ttft_ms, came.speaker) == (math.inf, "")
    assert came.usd == pytest.approx(READ_USD)


def test_a_fallback_waits_for_its_timeout() -> None:
    came = one(Draw(math.inf), Draw(200), policy="fallback", fallback_after_ms=700)
    assert came.ttft_ms == 900


def test_a_failure_of_a_call_that_was_closed_before_counts_for_nothing() -> None:
    """The second is asked after 700 ms; the first would have failed after 800."""
    stats = SharedStats()
    pool = build_pool("p", (A, B), RouterOptions(policy="fallback", fallback_after_ms=700), stats)
    turn = DrawnTurn(at_ms=1_000.0, session="s", draws=(Draw(800, fails=True), Draw(200)))
    (came,) = simulate_turns(pool, stats, [turn])
    assert (came.ttft_ms, came.n_calls, came.speaker) == (900, 2, "b/m")
    assert stats.breaker(A).errors == {}


def test_a_held_hedge_costs_what_it_wrote_until_the_first_one_spoke() -> None:
    came = one(Draw(550), Draw(10), policy="hedge", order="given", prefer_first=True, hedge_budget_usd=1.0)
    assert came.speaker == "a/m"
    assert came.ttft_ms == 550
    assert READ_USD < came.lost_usd < ANSWER_USD


def test_a_first_that_is_alone_and_silent_at_the_deadline_is_replaced_without_any_money() -> None:
    """Its cost is no hedge's: the hedge budget does not pay it."""
    came = one(Draw(math.inf), Draw(200), hedge_budget_usd=0.0, deadline_ms=600)
    assert (came.ttft_ms, came.n_calls, came.speaker) == (800, 2, "b/m")
    assert came.failover_usd == came.extra_usd == pytest.approx(READ_USD)


def test_the_one_that_takes_the_place_at_the_deadline_is_the_best_for_that_time() -> None:
    """Of equal prices the faster one, whatever the order."""
    stats, slow = SharedStats(), replace(B, spec="slow/m", ttft_p50_ms=900.0)
    pool = build_pool("p", (A, slow, B), RouterOptions(hedge_budget_usd=0.0), stats)
    turn = DrawnTurn(at_ms=1_000.0, session="s", draws=(Draw(math.inf), Draw(100), Draw(100)))
    (came,) = simulate_turns(pool, stats, [turn])
    assert (came.ttft_ms, came.speaker) == (700, "b/m")


def test_a_model_that_the_session_was_with_is_warm_and_speaks_sooner() -> None:
    stats = SharedStats()
    pool = build_pool("p", (A,), RouterOptions(), stats)
    turns = [DrawnTurn(at_ms=1_000.0 * i, session="s", draws=(Draw(300),)) for i in (1, 2)]
    first, second = simulate_turns(pool, stats, turns, cached_factor=0.8)
    assert (first.ttft_ms, second.ttft_ms) == (300, 240)
    assert second.usd < first.usd


def test_a_model_that_goes_bad_loses_its_turns_and_gets_them_back() -> None:
    """The model is slow for two minutes: within half a minute the other gets requests first; a few minutes later it is
    tried again.
    """
    stats = SharedStats()
    pool = build_pool("p", (A, B), RouterOptions(order="learned", hedge_budget_usd=0.0002), stats)

    def turn(second: int) -> DrawnTurn:
        slow = 100 <= second < 220
        draws = (Draw(1_500 if slow else 200), Draw(520))
        return DrawnTurn(at_ms=1_000.0 * second, session=f"s{second}", draws=draws)

    firsts = [each.speaker for each in simulate_turns(pool, stats, map(turn, range(1, 800)))]
    assert set(firsts[:90]) == {"a/m"}
    assert set(firsts[130:215]) == {"b/m"}
    assert "a/m" in firsts[700:]


def test_a_turn_decides_by_what_is_known_when_it_begins() -> None:
    """The first model fails after 300 ms. The turns that begin before that do not know it, whatever their number."""
    stats = SharedStats()
    pool = build_pool("p", (A, B), RouterOptions(policy="single"), stats)
    draws = (Draw(300, fails=True), Draw(200))
    turns = [DrawnTurn(at_ms=at_ms, session=f"s{at_ms}", draws=draws) for at_ms in (*range(0, 120, 10), 2_000)]
    *at_once, later = simulate_turns(pool, stats, turns)
    assert [each.n_calls for each in at_once] == [2] * 12
    assert {each.ttft_ms for each in at_once} == {500}
    assert later.n_calls == 1


def test_results_come_in_the_order_of_the_turns() -> None:
    stats = SharedStats()
    pool = build_pool("p", (A,), RouterOptions(), stats)
    turns = [DrawnTurn(at_ms=10.0 * n, session=f"s{n}", draws=(Draw(900 - 300 * n),)) for n in range(3)]
    assert [each.ttft_ms for each in simulate_turns(pool, stats, turns)] == [900, 600, 300]
    assert stats.running == {"a/m": 0}


def test_a_first_choice_comes_back_after_a_rate_limit_though_the_second_is_faster() -> None:
    """One 429 opens its circuit breaker for 15 s. One probe shows that it answers; then it is the first again."""
    stats = SharedStats()
    pool = build_pool("p", (A, B), RouterOptions(order="given"), stats)
    refused = StageRefused("llm", provider="a/m", why="HTTP 429", retryable=True, status=429)
    stats.breaker(A).failed(refused, 0.0)
    draws = (Draw(300), Draw(100))
    turns = (DrawnTurn(at_ms=1_000.0 * n, session=f"s{n}", draws=draws) for n in range(1, 61))
    came = list(simulate_turns(pool, stats, turns))
    assert [each.speaker for each in came] == ["b/m"] * 15 + ["a/m"] * 45
    assert [each.n_calls for each in came[14:16]] == [2, 1]
    assert stats.breaker(A).state(60_000.0) == "closed"


def test_a_probe_that_fails_costs_nothing_and_opens_the_circuit_breaker_again() -> None:
    stats = SharedStats()
    pool = build_pool("p", (A, B), RouterOptions(order="given"), stats)
    refused = StageRefused("llm", provider="a/m", why="HTTP 429", retryable=True, status=429)
    stats.breaker(A).failed(refused, 0.0)
    draws = (Draw(50, fails=True), Draw(100))
    turns = (DrawnTurn(at_ms=1_000.0 * n, session=f"s{n}", draws=draws) for n in range(1, 61))
    came = list(simulate_turns(pool, stats, turns))
    assert {each.speaker for each in came} == {"b/m"}
    assert sum(each.n_calls for each in came) - 60 == 3
    assert {each.lost_usd for each in came} == {0.0}


def test_a_cheaper_and_faster_second_answers_only_when_the_first_is_late_or_fails() -> None:
    """`[A, B]` without an order; only `learned` prefers B."""
    cheap = replace(B, price=Price(0.1, 0.4, 0.01))
    draws = [(Draw(300), Draw(150))] * 30 + [(Draw(math.inf), Draw(150)), (Draw(50, fails=True), Draw(150))]
    turns = [DrawnTurn(at_ms=2_000.0 * n, session=f"s{n}", draws=each) for n, each in enumerate(draws)]
    speakers = {}
    for name, options in {"default": {}, "learned": {"order": "learned"}}.items():
        stats = SharedStats()
        pool = build_pool("p", (A, cheap), RouterOptions(**options), stats)  # type: ignore[arg-type]
        speakers[name] = [each.speaker for each in simulate_turns(pool, stats, turns)]
    assert speakers["default"] == ["a/m"] * 30 + ["b/m"] * 2
    assert speakers["learned"].count("b/m") > 20
