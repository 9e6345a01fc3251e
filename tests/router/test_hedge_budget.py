"""The hedge budget: it never spends what it has not earned, in any world."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.bench.simulate_pools import published_pools
from voicepipe.bench.simulate_world import WorldOptions, draw_world
from voicepipe.cli.simulate import drawn_turns, most_spent, published_candidates
from voicepipe.errors import StageRefused
from voicepipe.router import saved_state
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.hedge_budget import GAIN, RESERVED_SHARE, TARGET, WINDOW_TURNS, HedgeBudget
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import CandidateOrder, RoutingQuery
from voicepipe.router.pool import USUAL_TOKENS, SharedStats
from voicepipe.router.simulation import SimulatedResult, simulate_turns
from voicepipe.turn.cost import Price
from voicepipe.values import replace

CAP_USD = 0.0001


def full(cap_usd: float = CAP_USD) -> HedgeBudget:
    budget = HedgeBudget(cap_usd)
    for _ in range(2 * WINDOW_TURNS):
        budget.spent(0.0)
    return budget


def test_little_is_there_at_the_start() -> None:
    assert HedgeBudget(CAP_USD).available_usd == 2 * CAP_USD


def test_a_new_budget_can_pay_for_one_hedge() -> None:
    """The first user of a new server is not the one who finds a hanging model."""
    budget = HedgeBudget(CAP_USD)
    budget.enlarge_for(12 * CAP_USD)
    assert budget.available_usd == pytest.approx(12 * CAP_USD + budget.reserved_usd)
    budget.enlarge_for(20 * CAP_USD)
    assert budget.available_usd == pytest.approx(12 * CAP_USD + 0.1 * 50 * CAP_USD)


def test_the_first_turn_of_a_new_pool_has_a_hedge() -> None:
    """The first table already knows that the hedge budget can pay for one: models without a published time or price."""
    candidates = (Candidate(spec="a/m"), Candidate(spec="b/m"))
    pool = build_pool("p", candidates, RouterOptions(), SharedStats())
    for within_budget in (False, True):
        plan = pool.decide(RoutingQuery(session="s", input_tokens=40), 0.0, within_budget=within_budget).plan
        assert [each.candidate.spec for each in plan.later] == ["b/m"]


def test_debt_pays_for_no_hedge_though_the_first_that_is_left_costs_more() -> None:
    """The cheapest plan is carried out at any cost: somebody has to answer."""
    prices = (Price(0.1, 0.4), Price(0.5, 2.0), Price(1.0, 4.0))
    candidates = tuple(Candidate(spec=f"v{i}/m", price=price) for i, price in enumerate(prices))
    stats = SharedStats()
    pool = build_pool("p", candidates, RouterOptions(hedge_budget_usd=0.01, late_turn_usd=10.0), stats)
    stats.breaker(candidates[0]).failed(StageRefused("llm", provider="v0/m", why="", retryable=True, status=429), 0.0)
    assert pool.decide(RoutingQuery(session="s"), 1.0).plan.later
    pool.hedge_budget.spent(1.0)
    decision = pool.decide(RoutingQuery(session="s"), 1.0)
    assert (decision.plan.first, decision.plan.later) == (candidates[1], ())
    assert decision.worst_usd == pytest.approx(candidates[1].answer_usd(*USUAL_TOKENS, warm=False) - 0.182e-3)


@pytest.mark.parametrize(("late_turn_usd", "n_hedges"), [(10.0, 1), (0.1, 1), (1e-5, 0)])
def test_no_hedge_costs_more_than_a_late_turn_is_worth(late_turn_usd: float, n_hedges: int) -> None:
    """Whatever the hedge budget holds."""
    candidates = (Candidate(spec="a/m"), Candidate(spec="b/m"))
    options = RouterOptions(hedge_budget_usd=1.0, late_turn_usd=late_turn_usd)
    plan = build_pool("p", candidates, options, SharedStats()).decide(RoutingQuery(session="s"), 0.0).plan
    assert len(plan.later) == n_hedges


def test_a_budget_that_has_begun_gets_nothing() -> None:
    budget, restarted = HedgeBudget(CAP_USD), HedgeBudget(CAP_USD)
    budget.spent(CAP_USD)
    restarted.restore(5 * CAP_USD, 0.4)
    for each in (budget, restarted):
        before_usd = each.available_usd
        each.enlarge_for(12 * CAP_USD)
        assert each.available_usd == before_usd


def test_a_turn_that_runs_holds_its_money() -> None:
    budget = full()
    before_usd = budget.available_usd
    hold = budget.hold(CAP_USD)
    assert budget.available_usd == pytest.approx(before_usd - CAP_USD)
    budget.release(hold)
    assert budget.available_usd == pytest.approx(before_usd)


@pytest.mark.parametrize(("may_cost_usd", "held_usd"), [(-0.1, 0.0), (0.4, 0.4), (3.0, 1.0)])
def test_a_turn_holds_no_more_than_it_may_still_cost(may_cost_usd: float, held_usd: float) -> None:
    """And never more than it did."""
    budget = HedgeBudget(10.0)
    before_usd = budget.available_usd
    hold = budget.hold(1.0)
    budget.release(hold, all_but_usd=may_cost_usd)
    assert before_usd - budget.available_usd == pytest.approx(held_usd)
    budget.release(hold)
    assert budget.available_usd == pytest.approx(before_usd)


def test_a_debt_is_paid_off_before_the_next_hedge() -> None:
    budget = HedgeBudget(CAP_USD)
    budget.spent(10 * CAP_USD)
    n_turns = 0
    while budget.available_usd <= 0:
        budget.spent(0.0)
        n_turns += 1
    assert 8 <= n_turns <= 10


def test_an_empty_budget_makes_hedges_dearer_and_a_full_one_cheaper() -> None:
    empty, much = HedgeBudget(CAP_USD), full()
    empty.spent(3 * CAP_USD)
    for _ in range(1_000):
        empty.spent(empty.earned_usd)
    assert empty.weight > HedgeBudget(CAP_USD).weight > much.weight


def test_what_is_earned_is_spent_again_soon_after_hedges_are_worth_less() -> None:
    """What a full hedge budget earns is lost: a third of the cap, while a slow weight falls."""
    budget, spent = HedgeBudget(CAP_USD), []
    for turn in range(3_000):
        worth = 1.0 if turn < 1_500 else 0.5
        extra_usd = min(budget.available_usd, worth * CAP_USD * (0.1 / budget.weight) ** 0.5)
        budget.spent(max(0.0, extra_usd))
        spent.append(max(0.0, extra_usd))
    assert np.mean(spent[2_000:]) >= 0.9 * CAP_USD


def test_the_weight_stays_within_bounds_without_a_cap_too() -> None:
    budget = HedgeBudget(cap_usd=0.0)
    for _ in range(20_000):
        budget.spent(1.0)
    assert budget.weight == 50.0
    assert full().weight >= 1e-4


@given(st.integers(0, 2**32), st.floats(0.1, 60), st.floats(0.0, 200))
@settings(max_examples=60, deadline=None)
def test_no_window_of_turns_spends_more_than_the_cap(seed: int, max_caps: float, max_hedge_caps: float) -> None:
    """Whatever hedges cost, however large they grow, and after restarts."""
    chance = np.random.default_rng(seed)
    n = 3 * WINDOW_TURNS
    turns = zip(chance.uniform(-2, max_caps, n), chance.uniform(0, max_hedge_caps, n), chance.random(n), strict=True)
    budget, spent = HedgeBudget(CAP_USD), [0.0]
    for caps, hedge_caps, restart in turns:
        if restart < 0.01:
            level_usd, weight = budget.level_usd, budget.weight
            budget = HedgeBudget(CAP_USD)
            budget.restore(level_usd, weight)
        budget.enlarge_for(hedge_caps * CAP_USD)
        extra_usd = caps * CAP_USD if caps * CAP_USD <= budget.available_usd else min(0.0, caps * CAP_USD)
        budget.spent(extra_usd)
        spent.append(spent[-1] + extra_usd)
    sums = np.array(spent)
    assert (sums[WINDOW_TURNS:] - sums[:-WINDOW_TURNS]).max() <= WINDOW_TURNS * CAP_USD * (1 + 1e-9)


def most_in_window(budgets: list[HedgeBudget], processes: list[int], caps: list[float], *, restarts: set[int]) -> float:
    """Return the most that a window of turns costs, as a multiple of the cap. A turn is in one of the processes, and
    costs what it would, or else what its budget has left, if that is more than nothing."""
    spent = [0.0]
    for turn, (process, requested) in enumerate(zip(processes, caps, strict=True)):
        budget = budgets[process]
        if turn in restarts:
            budget.restore(budgets[0].level_usd, budgets[0].weight)
        extra_usd = min(requested * CAP_USD, max(0.0, budget.available_usd))
        budget.spent(extra_usd)
        spent.append(spent[-1] + extra_usd)
    sums = np.array(spent)
    return float((sums[WINDOW_TURNS:] - sums[:-WINDOW_TURNS]).max()) / (WINDOW_TURNS * CAP_USD)


def budgets_of(n_processes: int, hedge_caps: list[float]) -> list[HedgeBudget]:
    """Return the budgets of a server's processes; `hedge_caps`: what the cheapest hedge costs in each, in caps."""
    budgets = [HedgeBudget(CAP_USD, n_processes=n_processes) for _ in range(n_processes)]
    for budget, caps in zip(budgets, hedge_caps, strict=True):
        budget.enlarge_for(caps * CAP_USD)
    return budgets


def bound(n_processes: int, hedge_caps: float) -> float:
    """Return the most that a window may cost, as a multiple of the cap: 1.05, but for a hedge too large for that."""
    held = n_processes * min(1.25 * hedge_caps, 275)
    return max(1.05, 0.5 + held / WINDOW_TURNS)


@given(st.integers(0, 2**32), st.integers(1, 64), st.floats(0, 400), st.floats(0.0, 1.0), st.floats(0.1, 300))
@settings(max_examples=80, deadline=None)
def test_no_window_of_a_server_s_turns_spends_more_than_the_cap(
    seed: int, n_processes: int, hedge_caps: float, crowding: float, max_caps: float
) -> None:
    """However its turns are distributed over processes, whose budgets are as large as they get, and after restarts."""
    chance = np.random.default_rng(seed)
    n = 4 * WINDOW_TURNS
    shares = chance.dirichlet(np.full(n_processes, 10 ** (2 - 4 * crowding)))
    processes = chance.choice(n_processes, n, p=shares).tolist()
    caps = (chance.uniform(-2, max_caps, n) * (chance.random(n) < chance.random())).tolist()
    restarts = set(np.flatnonzero(chance.random(n) < 0.005).tolist())
    budgets = budgets_of(n_processes, [hedge_caps] * n_processes)
    most = most_in_window(budgets, processes, caps, restarts=restarts)
    assert most <= bound(n_processes, hedge_caps) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("n_processes", "hedge_caps", "most"),
    [
        (1, 12, 1.05),
        (2, 12, 1.05),
        (8, 12, 1.05),
        (8, 27.5, 1.05),
        (8, 40, 1.3),
        (16, 28, 1.62),
        (64, 3, 1.05),
    ],
)
@pytest.mark.parametrize("last", ["one", "all"])
def test_the_worst_window_of_a_server(n_processes: int, hedge_caps: float, most: float, last: str) -> None:
    """All budgets are full, each is spent at once, and then what each turn earns: in one process or in all."""
    budgets = budgets_of(n_processes, [hedge_caps] * n_processes)
    filling = [turn % n_processes for turn in range(2 * WINDOW_TURNS)]
    emptying = [0 if last == "one" and turn >= n_processes else turn % n_processes for turn in range(WINDOW_TURNS)]
    caps = [0.0] * len(filling) + [1e6] * WINDOW_TURNS
    found = most_in_window(budgets, filling + emptying, caps, restarts=set())
    assert found <= most * (1 + 1e-9)
    assert found >= most - 0.01 - n_processes / WINDOW_TURNS
    assert most == pytest.approx(bound(n_processes, hedge_caps))


@given(st.integers(0, 2**32), st.integers(2, 16))
@settings(max_examples=40, deadline=None)
def test_budgets_of_different_sizes_hold_the_bound_of_turns_in_equal_parts(seed: int, n_processes: int) -> None:
    """Each process has measured its own turns: where hedges cost more, a turn earns less."""
    chance = np.random.default_rng(seed)
    budgets = budgets_of(n_processes, chance.uniform(0, 220 / n_processes, n_processes).tolist())
    n_rounds = 4 * WINDOW_TURNS // n_processes
    processes = list(range(n_processes)) * n_rounds
    caps = (chance.uniform(0, 100, len(processes)) * (chance.random(len(processes)) < 0.3)).tolist()
    most = most_in_window(budgets, processes, caps, restarts=set())
    rounding = n_processes / WINDOW_TURNS  # a window may hold one turn more of some processes
    assert most <= 1.05 + rounding


@given(st.integers(0, 2**32), st.integers(2, 16), st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_budgets_of_different_sizes_exceed_the_bound_by_their_differences(
    seed: int, n_processes: int, crowding: float
) -> None:
    """At most, however the turns are distributed."""
    chance = np.random.default_rng(seed)
    n = 4 * WINDOW_TURNS
    budgets = budgets_of(n_processes, chance.uniform(0, 220 / n_processes, n_processes).tolist())
    sizes = [budget.reserved_usd / RESERVED_SHARE / CAP_USD for budget in budgets]
    shares = chance.dirichlet(np.full(n_processes, 10 ** (2 - 4 * crowding)))
    caps = (chance.uniform(0, 100, n) * (chance.random(n) < 0.3)).tolist()
    most = most_in_window(budgets, chance.choice(n_processes, n, p=shares).tolist(), caps, restarts=set())
    assert most <= 1.05 + (sum(sizes) - n_processes * min(sizes)) / WINDOW_TURNS + 1e-9


@pytest.mark.parametrize("n_processes", [1, 2, 8, 64])
@pytest.mark.parametrize("hedge_caps", [0.5, 12.0, 100.0, 200.0])
def test_the_budget_of_each_process_can_pay_for_one_hedge(n_processes: int, hedge_caps: float) -> None:
    """A new one too, and it leaves what is reserved."""
    (budget, *_) = budgets_of(n_processes, [hedge_caps] * n_processes)
    for _ in range(2):
        if hedge_caps > 1:
            assert budget.available_usd - budget.reserved_usd >= hedge_caps * CAP_USD * (1 - 1e-9)
        assert budget.earned_usd >= 0.5 * CAP_USD * (1 - 1e-9)
        for _ in range(2 * WINDOW_TURNS):
            budget.spent(0.0)


@pytest.mark.parametrize(("level_usd", "weight"), [(math.nan, 0.2), (math.inf, 0.2), (0.0, 0.0), (0.0, math.nan)])
def test_what_no_budget_can_hold_is_not_restored(level_usd: float, weight: float) -> None:
    with pytest.raises(ValueError, match="expected a level"):
        HedgeBudget(CAP_USD).restore(level_usd, weight)


def test_a_restart_continues_the_debt_and_not_the_savings() -> None:
    budget = HedgeBudget(CAP_USD)
    budget.restore(5 * CAP_USD, 0.4)
    assert budget.level_usd == 0.0
    assert budget.weight == pytest.approx(0.4 * math.exp(GAIN * TARGET))
    budget.restore(-5 * CAP_USD, 0.4)
    assert budget.level_usd == -5 * CAP_USD


# --- worlds ---------------------------------------------------------------------------------------


RESTART_TURNS = 70
SHIPPED = RouterOptions()


def simulated(
    pool_name: str,
    share: float | None,
    seed: int,
    *,
    slower: float = 1.0,
    shift: float = 1.0,
    order: CandidateOrder = "given",
    folder: Path | None = None,
) -> tuple[list[SimulatedResult], float]:
    """Turns of a published pool from the first one on, half of them after a shift of its first model; and the cap: this
    share of what a turn of the first model costs, or the shipped one.

    With a folder, the server restarts after each `RESTART_TURNS`, and a model that has read the session is faster.
    """
    published = published_pools()[pool_name]
    candidates = published_candidates(published)
    world = draw_world([slower * ms for ms in published.medians_ms], WorldOptions(n_turns=1_500, seed=seed))
    world.after_ms[750:, 0] *= shift
    cap_usd = share * candidates[0].answer_usd(*USUAL_TOKENS, warm=True) if share else SHIPPED.hedge_budget_usd
    options = replace(SHIPPED, hedge_budget_usd=cap_usd, order=order)
    drawn = drawn_turns(world, len(candidates))
    if folder is None:
        stats = SharedStats()
        return list(simulate_turns(build_pool(pool_name, candidates, options, stats), stats, drawn)), cap_usd
    turns: list[SimulatedResult] = []
    while few := list(islice(drawn, RESTART_TURNS)):
        stats = SharedStats()
        pool = build_pool(pool_name, candidates, options, stats)
        assert saved_state.restore(folder, stats, {pool_name: pool}) is bool(turns)
        turns += simulate_turns(pool, stats, few, cached_factor=0.8)
        saved_state.save(folder, saved_state.state_of(stats, {pool_name: pool}))
    return turns, cap_usd


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.02, None])
@pytest.mark.parametrize(
    ("pool_name", "seed", "options"),
    [
        ("mid", 1, {}),
        ("mid", 2, {"slower": 2.0}),
        ("mid", 3, {"shift": 3.0}),
        ("mid", 4, {"order": "learned"}),
        ("mid-wrong", 5, {}),
        ("same-price", 6, {"slower": 2.0}),
        ("fast", 7, {"order": "learned", "shift": 4.0}),
        ("quality", 8, {"slower": 2.0}),
    ],
)
def test_hedges_cost_no_more_than_the_cap_in_any_500_turns_of_a_world(
    pool_name: str, seed: int, options: dict[str, float], share: float | None
) -> None:
    turns, cap_usd = simulated(pool_name, share, seed, **options)  # type: ignore[arg-type]
    assert most_spent(turns, cap_usd) <= 1.05
    assert sum(turn.n_calls for turn in turns) > len(turns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool_name", "share", "seed", "options"),
    [
        ("mid", 0.1, 11, {}),
        ("mid", 0.02, 12, {"slower": 2.0}),
        ("same-price", 0.3, 13, {"shift": 3.0}),
        ("quality", 0.1, 14, {"order": "learned"}),
        ("mid", None, 15, {"slower": 2.0}),
        ("fast", None, 16, {}),
    ],
)
def test_restarts_do_not_get_around_the_cap(
    tmp_path: Path, pool_name: str, share: float | None, seed: int, options: dict[str, float]
) -> None:
    """A new hedge budget pays for one hedge at once: it must not do so after each restart."""
    turns, cap_usd = simulated(pool_name, share, seed, folder=tmp_path, **options)  # type: ignore[arg-type]
    assert most_spent(turns, cap_usd) <= 1.05
    assert sum(turn.n_calls for turn in turns) > len(turns)


SWING_TURNS, SWING_TURNS_PER_S = 5_040, 0.35


def swing(options: RouterOptions, seed: int) -> list[SimulatedResult]:
    """One swing of the load, four hours, in the pool `mid`."""
    published, stats = published_pools()["mid"], SharedStats()
    candidates = published_candidates(published)
    world = draw_world(
        published.medians_ms, WorldOptions(n_turns=SWING_TURNS, seed=seed, turns_per_s=SWING_TURNS_PER_S)
    )
    pool = build_pool("mid", candidates, options, stats)
    return list(simulate_turns(pool, stats, drawn_turns(world, len(candidates))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8])
def test_the_shipped_limit_of_a_late_turn_buys_more_than_half_the_cap_alone(seed: int) -> None:
    """It spends in slow hours what it saves in fast ones."""
    half = replace(SHIPPED, hedge_budget_usd=SHIPPED.hedge_budget_usd / 2, late_turn_usd=10.0)
    shipped, alone = swing(SHIPPED, seed), swing(half, seed)
    late, late_alone = ([turn.ttft_ms > SHIPPED.deadline_ms for turn in turns] for turns in (shipped, alone))
    usd, alone_usd = (np.mean([turn.usd for turn in turns]) for turns in (shipped, alone))
    assert np.mean(late) < 0.016
    assert np.mean(late) < 0.7 * np.mean(late_alone)
    assert usd < 1.1 * alone_usd


@pytest.mark.slow
def test_where_little_is_late_little_is_spent() -> None:
    """The cap is no amount to use up."""
    published = published_pools()["same-price"]
    candidates = published_candidates(published)
    world = draw_world(published.medians_ms, WorldOptions(n_turns=2_000, seed=7, sigma=0.2, straggler_share=0.01))
    spent_usd = []
    for options in (replace(SHIPPED, late_turn_usd=10.0), SHIPPED):
        stats = SharedStats()
        turns = simulate_turns(build_pool("p", candidates, options, stats), stats, drawn_turns(world, len(candidates)))
        extra_usd = [turn.extra_usd - turn.failover_usd for turn in turns]
        spent_usd.append(np.mean(extra_usd[500:]))
    assert spent_usd[1] < 0.5 * spent_usd[0]
