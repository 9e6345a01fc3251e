"""Models that may answer for one another: decides for each request which to start when, and learns from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from voicepipe.router.affinity import Affinity, SessionAffinity, warm_specs
from voicepipe.router.candidate import Candidate
from voicepipe.router.circuit_breaker import CircuitBreaker
from voicepipe.router.decision import PlanOptions, RoutingDecision
from voicepipe.router.hedge_budget import BudgetHold, HedgeBudget
from voicepipe.router.hedging import PlanBasis
from voicepipe.router.latency_stats import LatencyStats
from voicepipe.router.options import RouterOptions
from voicepipe.router.plan_table import PlanList, PlanTable
from voicepipe.router.policies import CLASSES, Candidates, Complexity, Policy, RoutingQuery
from voicepipe.router.race import Attempt, Later, Race, RacePlan
from voicepipe.router.survival import Curve
from voicepipe.values import replace

REBUILD_MS: Final = 1_000
"""Age from which the planner's table is rebuilt after a request."""

STALE_MS: Final = 30_000
"""Age from which the table is rebuilt before a request: after a pause without requests."""

USUAL_TOKENS: Final = (1_500.0, 80.0)
"""Input and output tokens of a voice agent's turn, until this pool has measured its own."""

TOKEN_MEMORY: Final = 0.02

USUAL_STAY: Final = 0.8
"""Share of turns whose session has another turn after it, until this pool has measured its own."""

LAST_TURN: Final = 15
"""Later turns of a session count as this one."""

MAX_STAY: Final = 0.95
TURN_MEMORY: Final = 0.001

RETRY_TURNS: Final = 300
"""Turns after which a model that was not called is called again, with the order `learned`: it may be fast by now."""

MAX_DEADLINES: Final = 8
"""Tables for different deadlines that one pool keeps; when full, the oldest is dropped."""


@dataclass(slots=True)
class SharedStats:
    """The statistics of every model, shared by all pools."""

    latency: LatencyStats = field(default_factory=LatencyStats)
    breakers: dict[str, CircuitBreaker] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    """Spec -> calls in flight."""

    distances_ms: dict[str, float] = field(default_factory=dict)
    """Spec -> round trip to its provider's address, where it was measured."""

    affinity: Affinity = field(default_factory=Affinity)
    cached_shares: dict[str, float] = field(default_factory=dict)
    """Spec -> of the tokens that it read for its latest counted answer, the share that it charged as cached."""

    def breaker(self, candidate: Candidate) -> CircuitBreaker:
        """Return that model's circuit breaker."""
        return self.breaker_of(candidate.spec)

    def breaker_of(self, spec: str) -> CircuitBreaker:
        """Return the circuit breaker of the model with this spec."""
        return self.breakers.setdefault(spec, CircuitBreaker())

    def began(self, attempt: Attempt) -> None:
        """Count a call as in flight."""
        spec = attempt.candidate.spec
        self.running[spec] = self.running.get(spec, 0) + 1

    @contextmanager
    def in_flight(self, spec: str) -> Iterator[None]:
        """Count a call as in flight while this context lasts."""
        self.running[spec] = self.running.get(spec, 0) + 1
        try:
            yield
        finally:
            self.running[spec] -= 1

    def ended(self, attempt: Attempt) -> None:
        """Count a call as ended."""
        self.running[attempt.candidate.spec] -= 1


class Pool:
    """A pool of models. Pure: instants are passed in, and nothing waits."""

    def __init__(
        self,
        name: str,
        candidates: Candidates,
        options: RouterOptions,
        policy: Policy,
        stats: SharedStats,
        *,
        class_of: Callable[[RoutingQuery], Complexity] | None = None,
        judge: Candidate | None = None,
        n_processes: int = 1,
    ) -> None:
        """`n_processes`: those of the server, which share the hedge budget."""
        self.name, self.candidates, self.options = name, candidates, options
        self.judge = judge
        """The model that judges how hard a question is; None: there is none."""

        self._class_of = class_of

        self._policy, self._stats = policy, stats
        self.hedge_budget = HedgeBudget(options.hedge_budget_usd, n_processes=n_processes)
        self._tables: dict[int, PlanTable] = {}
        """By deadline in ms."""

        self._oldest_built_ms = math.inf

        self._tokens = USUAL_TOKENS
        self._n_turns, self._requested_turn = 0, [0] * len(candidates)
        self._turns: list[float] = (10 * np.cumprod(np.full(LAST_TURN + 1, USUAL_STAY))).tolist()
        """Turns by their number in the session, each weighted with what `_turn_weight` was."""

        self._turn_weight = 1.0
        """Weight of the next turn: it grows, so that each turn counts less the older it is."""

        self._medians_ms: dict[str, float] = {}
        self._index = {each.spec: i for i, each in enumerate(candidates)}
        self._bits = {each.spec: 1 << i for i, each in enumerate(candidates)}
        self._breakers = tuple(stats.breaker(each) for each in candidates)
        self._all = tuple(range(len(candidates)))
        self.reads_words = class_of is not None
        """Whether the plan depends on the user's words."""

    # --- deciding -----------------------------------------------------------------------------

    def decide(self, query: RoutingQuery, now_ms: float, *, within_budget: bool = True) -> RoutingDecision:
        """Decide which models to start when; or what would be best without a budget, `within_budget` false."""
        table = self._table(query.deadline_ms, now_ms)
        remembered = self._stats.affinity.of(query.session)
        warm = warm_specs(remembered, now_ms)
        healthy: Candidates = self.candidates
        probe: Candidate | None = None
        for each in self._breakers:
            if each.is_tripped:
                healthy, probe = self._healthy(now_ms)
                break
        ordered = self._policy(healthy, query, self) or healthy
        worst_usd = 0.0
        if self.options.policy == "hedge":
            plans = self._hedged(ordered, table, self._mask(warm), remembered)
            if within_budget:
                share = query.input_tokens / self._tokens[0] if query.input_tokens else 1.0
                plan, worst_usd = plans.affordable(self.hedge_budget, share)
            else:
                plan = next(iter(plans)).plan
        else:
            plan = self._plan(ordered, table.bounds)
        if len(ordered) < len(healthy):
            left_out = tuple(each for each in healthy if each not in ordered)
            plan = replace(plan, reserve=plan.reserve + left_out)
        is_down = healthy[0] is not self.candidates[0]
        return RoutingDecision(plan, warm, bool(warm), min(remembered.n_turns, LAST_TURN), worst_usd, is_down, probe)

    def _healthy(self, now_ms: float) -> tuple[Candidates, Candidate | None]:
        """Return the healthy models, or all if none is healthy; and the model to probe."""
        states = [breaker.state(now_ms) for breaker in self._breakers]
        healthy = tuple(each for each, state in zip(self.candidates, states, strict=True) if state == "closed")
        half_open = (each for each, state in zip(self.candidates, states, strict=True) if state == "half_open")
        probe = next((each for each in half_open if healthy and not self.in_flight(each)), None)
        return healthy or self.candidates, probe

    def _plan(self, ordered: Candidates, bounds: PlanOptions) -> RacePlan:
        options, rest = self.options, ordered[1:]
        match options.policy:
            case "single" | "hedge":
                return bounds.plan(ordered[0], reserve=rest, one_at_a_time=True)
            case "fallback":
                waits = (options.fallback_after_ms * (i + 1) for i in range(len(rest)))
                later = tuple(Later(each, wait) for each, wait in zip(rest, waits, strict=False))
                return bounds.plan(ordered[0], later=later, one_at_a_time=True)
            case "race":
                n = options.race_width - 1
                return bounds.plan(ordered[0], later=tuple(Later(each, 0) for each in rest[:n]), reserve=rest[n:])

    def _hedged(self, ordered: Candidates, table: PlanTable, warm: int, session: SessionAffinity) -> PlanList:
        """Return the plans for these candidates, best first; the last one is within any budget."""
        numbers = self._all if ordered is self.candidates else tuple([self._index[each.spec] for each in ordered])
        turn, last, due = min(session.n_turns, LAST_TURN), None, None
        if self.options.order == "learned":
            last, due = self._index.get(session.last), self._due_again(numbers)
        return table.plans(numbers, warm, turn, last=last, due=due)

    def _due_again(self, choices: Iterable[int]) -> int | None:
        """Return a model that got no request in the latest `RETRY_TURNS` turns: what is known of it is old."""
        due = (i for i in choices if self._n_turns - self._requested_turn[i] > RETRY_TURNS)
        return next((i for i in due if not self._breakers[i].is_tripped), None)

    def _mask(self, specs: frozenset[str]) -> int:
        mask = 0
        for spec in specs:
            mask |= self._bits.get(spec, 0)
        return mask

    def better(self, query: RoutingQuery, complexity: Complexity, now_ms: float) -> Candidate | None:
        """Return the first healthy model for questions of that class, if this one was taken for an easier one and
        `decide` chooses another model for it."""
        if self._class_of is None or CLASSES.index(complexity) <= CLASSES.index(self._class_of(query)):
            return None
        healthy, _ = self._healthy(now_ms)
        chosen = self._policy(healthy, query, self)[0]
        better = self._policy(healthy, query._replace(complexity=complexity), self)[0]
        return None if better is chosen else better

    # --- statistics for policies --------------------------------------------------------------

    def ttft_ms(self, candidate: Candidate) -> float:
        """Return its median time to the first token, learned, as of the latest table."""
        return self._medians_ms.get(candidate.spec, candidate.ttft_p50_ms)

    def in_flight(self, candidate: Candidate) -> int:
        """Return its number of running calls."""
        return self._stats.running.get(candidate.spec, 0)

    def distance_ms(self, candidate: Candidate) -> float | None:
        """Return the measured round trip to its provider."""
        return self._stats.distances_ms.get(candidate.spec)

    # --- the tables ---------------------------------------------------------------------------

    def _table(self, requested_ms: int | None, now_ms: float) -> PlanTable:
        own_ms = self.options.deadline_ms
        deadline_ms = min(own_ms, requested_ms) if requested_ms else own_ms
        table = self._tables.get(deadline_ms)
        if table is None:
            if len(self._tables) >= MAX_DEADLINES:
                del self._tables[next(iter(self._tables))]
            table = self._tables[deadline_ms] = PlanTable(self.candidates, self.options, deadline_ms)
            self._rebuild(table, now_ms)
        elif now_ms - table.built_ms > STALE_MS:
            self._rebuild(table, now_ms)
        return table

    def is_stale(self, now_ms: float) -> bool:
        """Return whether a table is older than a second."""
        return now_ms - self._oldest_built_ms > REBUILD_MS

    def refresh(self, now_ms: float, *, make_plans: bool = True) -> None:
        """Rebuild the oldest table if it is older than a second; call it while a provider is being waited for.

        Args:
            make_plans: make the plans of recent kinds of requests again, so that the next request finds its own.
        """
        if self.is_stale(now_ms):
            table = min(self._tables.values(), key=lambda each: each.built_ms)
            self._rebuild(table, now_ms)
            if make_plans:
                table.make_again()

    def _rebuild(self, table: PlanTable, now_ms: float) -> None:
        unit_usd = self.hedge_budget.unit_usd(self.turn_usd(warm=True))
        table.price(self._tokens)
        if len(self.candidates) > 1:
            self.hedge_budget.enlarge_for(table.cheapest_hedge_usd())  # first: the weight follows from the room
        basis = PlanBasis(
            latency=self._stats.latency,
            now_ms=now_ms,
            weight=max(self.hedge_budget.weight, unit_usd / self.options.late_turn_usd),
            unit_usd=unit_usd,
            tokens=self._tokens,
            stays=self._stays(),
        )
        table.rebuild(basis)
        self._medians_ms = table.planner.medians_ms()
        self._oldest_built_ms = min(each.built_ms for each in self._tables.values())

    def _stays(self) -> Curve:
        """Return, by turn of a session, the share of sessions that have another one after it."""
        turns = np.array(self._turns) / self._turn_weight
        self._turns, self._turn_weight = turns.tolist(), 1.0
        stays: Curve = np.append(turns[1:] / turns[:-1], USUAL_STAY)
        return np.clip(stays, 0.0, MAX_STAY)

    def turn_usd(self, *, warm: bool) -> float:
        """Return the cost of a usual turn with the first model alone."""
        return self.candidates[0].answer_usd(*self._tokens, warm=warm)

    # --- learning -----------------------------------------------------------------------------

    def learn(
        self, query: RoutingQuery, decision: RoutingDecision, race: Race, now_ms: float, *, n_tokens: float
    ) -> None:
        """Learn from a race that is decided or abandoned: record the time of each model that was started."""
        self._n_turns += 1
        for each in race.attempts:
            self._requested_turn[self._index[each.candidate.spec]] = self._n_turns
            survival = self._stats.latency.survival(each.candidate)
            if each.first_ms is not None:
                survival.spoke(each.first_ms, now_ms)
                self._stats.breaker(each.candidate).succeeded(began_ms=each.began_ms)
            elif each.state == "lost" or each.timed_out:
                silent_ms = (now_ms if each.ended_ms is None else each.ended_ms) - each.began_ms
                survival.was_silent(silent_ms, now_ms)
        requested = tuple(each.candidate.spec for each in race.attempts if each.state != "failed")
        spoke = race.winner.candidate.spec if race.winner else ""
        self._stats.affinity.record(query.session, requested, spoke, n_tokens, now_ms)

    def begin(self, decision: RoutingDecision) -> BudgetHold:
        """Hold the worst-case cost of a turn, until its race is `decided`."""
        return self.hedge_budget.hold(decision.worst_usd)

    def decided(self, hold: BudgetHold, hedge_usd: float) -> None:
        """Release what a turn holds for calls that its decided race has not started.

        Args:
            hedge_usd: what its hedges are expected to cost; it is held until that is `spent`.
        """
        self.hedge_budget.release(hold, all_but_usd=hedge_usd)

    def expected_tokens(self, input_tokens: float) -> tuple[float, float]:
        """Return the input and output tokens of a turn whose answer is not complete: the output of a usual turn."""
        return input_tokens or self._tokens[0], self._tokens[1]

    def spent(self, decision: RoutingDecision, hold: BudgetHold, hedge_usd: float, tokens: tuple[float, float]) -> None:
        """Record a turn that has begun: its tokens, and its cost above the first choice alone, without failovers."""
        read, written = self._tokens
        self._tokens = (read + TOKEN_MEMORY * (tokens[0] - read), written + TOKEN_MEMORY * (tokens[1] - written))
        self._turn_weight /= 1 - TURN_MEMORY
        self._turns[decision.turn] += self._turn_weight
        self.hedge_budget.release(hold)
        self.hedge_budget.spent(hedge_usd)
