"""Models that may answer for one another: decides for each request which to start when, and learns from the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from voicepipe.router.affinity import Affinity, warm_specs
from voicepipe.router.candidate import Candidate
from voicepipe.router.circuit_breaker import CircuitBreaker
from voicepipe.router.hedging import HedgeBudget, Planner
from voicepipe.router.latency_stats import WARM_FACTOR, LatencyStats
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import Candidates, Policy, RoutingQuery
from voicepipe.router.race import Attempt, Later, Plan, Race

REBUILD_MS: Final = 1_000
"""Age from which the planner's table is rebuilt after a request."""

STALE_MS: Final = 30_000
"""Age from which the table is rebuilt before a request: after a pause without requests."""

HOLD_MARGIN_MS: Final = 10
"""A held answer is released this long before the deadline."""

USUAL_TOKENS: Final = (1_500.0, 80.0)
"""Input and output tokens of a voice agent's turn, until this pool has measured its own."""

TOKEN_MEMORY: Final = 0.02

NO_SPECS: Final[frozenset[str]] = frozenset()

MOST_DEADLINES: Final = 8
"""Tables for different deadlines that one pool keeps; when full, the oldest is dropped."""


@dataclass(slots=True)
class SharedStats:
    """The statistics of every model, shared by all pools."""

    latency: LatencyStats = field(default_factory=LatencyStats)
    breakers: dict[str, CircuitBreaker] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    """Spec -> calls in flight."""

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


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options that all plans of a pool have in common."""

    deadline_ms: float
    attempt_timeout_ms: float

    def plan(
        self,
        first: Candidate,
        *,
        later: tuple[Later, ...] = (),
        reserve: Candidates = (),
        one_at_a_time: bool = False,
        hold_until_ms: float | None = None,
    ) -> Plan:
        """Return a plan with these options."""
        return Plan(
            first=first,
            later=later,
            reserve=reserve,
            one_at_a_time=one_at_a_time,
            hold_until_ms=hold_until_ms,
            deadline_ms=self.deadline_ms,
            attempt_timeout_ms=self.attempt_timeout_ms,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and the request that it was made for."""

    plan: Plan
    warm: frozenset[str]
    """The models that were assumed to have the session in their cache."""

    is_known: bool
    """Whether a model has answered in this session before."""

    probe: Candidate | None = None
    """A model whose circuit breaker is half open: it gets the request too, and its answer is not used."""


class Pool:
    """A pool of models. Pure: instants are passed in, and nothing waits."""

    def __init__(
        self, name: str, candidates: Candidates, options: RouterOptions, policy: Policy, stats: SharedStats
    ) -> None:
        self.name, self.candidates, self.options = name, candidates, options
        self._policy, self._stats = policy, stats
        self.hedge_budget = HedgeBudget(options.hedge_budget_usd)
        self._planners: dict[int, Planner] = {}
        self._built_ms: dict[int, float] = {}
        self._plans: dict[tuple[int, int, str], Plan] = {}
        """(deadline, warm models, last model) -> the plan with all candidates, as of the latest tables."""

        self._tokens = USUAL_TOKENS
        self._medians_ms: dict[str, float] = {}
        self._index = {each.spec: i for i, each in enumerate(candidates)}
        self._breakers = tuple(stats.breaker(each) for each in candidates)
        self._all_mask = (1 << len(candidates)) - 1

    # --- deciding -----------------------------------------------------------------------------

    def decide(self, query: RoutingQuery, now_ms: float) -> Decision:
        """Decide which models to start when."""
        own_ms = self.options.deadline_ms
        planner = self._planner(min(own_ms, query.deadline_ms or own_ms), now_ms)
        remembered = self._stats.affinity.of(query.session)
        warm = frozenset(warm_specs(remembered, now_ms)) if remembered.read_ms else NO_SPECS
        if any(each.is_troubled for each in self._breakers):
            healthy, probe = self._healthy(now_ms)
        else:
            healthy, probe = self.candidates, None
        ordered = self._policy(healthy, query, self) or healthy
        plan = self._plan(ordered, planner, self._mask(warm), remembered.last)
        if len(ordered) < len(healthy):
            left_out = tuple(each for each in healthy if each not in ordered)
            plan = replace(plan, reserve=plan.reserve + left_out)
        return Decision(plan, warm, bool(remembered.last), probe)

    def _healthy(self, now_ms: float) -> tuple[Candidates, Candidate | None]:
        """Return the healthy models, or all if none is healthy; and the model to probe."""
        states = [breaker.state(now_ms) for breaker in self._breakers]
        healthy = tuple(each for each, state in zip(self.candidates, states, strict=True) if state == "closed")
        half_open = (each for each, state in zip(self.candidates, states, strict=True) if state == "half_open")
        probe = next((each for each in half_open if healthy and not self.in_flight(each)), None)
        return healthy or self.candidates, probe

    def _plan(self, ordered: Candidates, planner: Planner, warm: int, last: str) -> Plan:
        options = self.options
        rest = ordered[1:]
        bounds = PlanOptions(float(planner.deadline_ms), float(options.attempt_timeout_ms))
        match options.policy:
            case "single":
                return bounds.plan(ordered[0], reserve=rest, one_at_a_time=True)
            case "fallback":
                waits = (options.fallback_after_ms * (i + 1) for i in range(len(rest)))
                later = tuple(Later(each, wait) for each, wait in zip(rest, waits, strict=False))
                return bounds.plan(ordered[0], later=later, one_at_a_time=True)
            case "race":
                n = options.race_width - 1
                return bounds.plan(ordered[0], later=tuple(Later(each, 0) for each in rest[:n]), reserve=rest[n:])
            case "hedge":
                return self._hedged(ordered, planner, warm, last, bounds)

    def _hedged(self, ordered: Candidates, planner: Planner, warm: int, last: str, bounds: PlanOptions) -> Plan:
        is_complete = ordered is self.candidates
        key = (planner.deadline_ms, warm, last)
        if is_complete and (known := self._plans.get(key)) is not None:
            return known
        allowed = self._all_mask if is_complete else self._mask({each.spec for each in ordered})
        first = self._index[ordered[0].spec]
        if self.options.order == "learned":
            before = self._index.get(last)
            choices = self._index.values() if is_complete else [self._index[each.spec] for each in ordered]
            first = min(choices, key=lambda i: planner.score(i, warm, allowed, last=before))
        hedge = planner.hedge(first, warm, allowed)
        chosen = self.candidates[first]
        second = None if hedge.second is None else self.candidates[hedge.second]
        plan = bounds.plan(
            chosen,
            later=() if second is None else (Later(second, hedge.after_ms),),
            reserve=tuple([each for each in ordered if each is not chosen and each is not second]),
            hold_until_ms=bounds.deadline_ms - HOLD_MARGIN_MS if self.options.prefers_first else None,
        )
        if is_complete:
            self._plans[key] = plan
        return plan

    def _mask(self, specs: frozenset[str] | set[str]) -> int:
        return sum([1 << i for i, each in enumerate(self.candidates) if each.spec in specs]) if specs else 0

    # --- statistics for policies --------------------------------------------------------------

    def ttft_ms(self, candidate: Candidate) -> float:
        """Return its median time to the first token, learned, as of the latest table."""
        return self._medians_ms.get(candidate.spec, candidate.ttft_p50_ms)

    def in_flight(self, candidate: Candidate) -> int:
        """Return its number of running calls."""
        return self._stats.running.get(candidate.spec, 0)

    # --- the table ----------------------------------------------------------------------------

    def _planner(self, deadline_ms: int, now_ms: float) -> Planner:
        planner = self._planners.get(deadline_ms)
        if planner is None:
            if len(self._planners) >= MOST_DEADLINES:
                self._planners.pop(next(iter(self._planners)))
            planner = self._planners[deadline_ms] = Planner(self.candidates, deadline_ms)
            self._rebuild(deadline_ms, now_ms)
        elif now_ms - self._built_ms[deadline_ms] > STALE_MS:
            self._rebuild(deadline_ms, now_ms)
        return planner

    def refresh(self, now_ms: float) -> None:
        """Rebuild the tables older than a second; call it while a provider is being waited for."""
        for deadline_ms in self._planners:
            if now_ms - self._built_ms[deadline_ms] > REBUILD_MS:
                self._rebuild(deadline_ms, now_ms)

    def _rebuild(self, deadline_ms: int, now_ms: float) -> None:
        latency, turn_usd = self._stats.latency, self.turn_usd(warm=True)
        unit_usd = self.hedge_budget.unit_usd(turn_usd)
        self._planners[deadline_ms].rebuild(
            latency, now_ms, weight=self.hedge_budget.weight, unit_usd=unit_usd, tokens=self._tokens
        )
        self._medians_ms = {each.spec: latency.quantile_ms(each, 0.5, now_ms) for each in self.candidates}
        self._built_ms[deadline_ms] = now_ms
        self._plans.clear()

    def turn_usd(self, *, warm: bool) -> float:
        """Return the cost of a usual turn with the first model alone."""
        return self.candidates[0].answer_usd(*self._tokens, warm=warm)

    # --- learning -----------------------------------------------------------------------------

    def learn(self, query: RoutingQuery, decision: Decision, race: Race, now_ms: float, *, n_tokens: float) -> None:
        """Learn from a race that is decided or abandoned: record the time of each model that was started."""
        for each in race.attempts:
            survival = self._stats.latency.survival(each.candidate)
            factor = WARM_FACTOR if each.candidate.spec in decision.warm else 1.0
            if each.first_ms is not None:
                survival.spoke(each.first_ms / factor, now_ms)
                self._stats.breaker(each.candidate).succeeded()
            elif each.state == "lost" or each.timed_out:
                silent_ms = (now_ms if each.ended_ms is None else each.ended_ms) - each.began_ms
                survival.was_silent(silent_ms / factor, now_ms)
        requested = tuple(each.candidate.spec for each in race.attempts if each.state != "failed")
        spoke = race.winner.candidate.spec if race.winner else ""
        self._stats.affinity.note(query.session, requested, spoke, n_tokens, now_ms)

    def spent(self, decision: Decision, usd: float, tokens: tuple[float, float]) -> None:
        """Record the tokens and the total cost of a turn."""
        read, written = self._tokens
        self._tokens = (read + TOKEN_MEMORY * (tokens[0] - read), written + TOKEN_MEMORY * (tokens[1] - written))
        alone_usd = self.candidates[0].answer_usd(*tokens, warm=decision.is_known)
        self.hedge_budget.spent(usd - alone_usd, self.turn_usd(warm=True))
