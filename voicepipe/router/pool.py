"""Models that may answer for one another: decides for each request which to start when, and learns from the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from voicepipe.router.affinity import Affinity, SessionAffinity, warm_specs
from voicepipe.router.candidate import Candidate
from voicepipe.router.circuit_breaker import CircuitBreaker
from voicepipe.router.decision import Decision, PlanOptions, PricedPlan
from voicepipe.router.hedge_budget import HedgeBudget
from voicepipe.router.hedging import Planner
from voicepipe.router.latency_stats import LatencyStats
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import Candidates, Policy, RoutingQuery
from voicepipe.router.race import Attempt, Later, Plan, Race
from voicepipe.router.survival import Curve

REBUILD_MS: Final = 1_000
"""Age from which the planner's table is rebuilt after a request."""

STALE_MS: Final = 30_000
"""Age from which the table is rebuilt before a request: after a pause without requests."""

HOLD_MARGIN_MS: Final = 10
"""A held answer is released this long before the deadline."""

USUAL_TOKENS: Final = (1_500.0, 80.0)
"""Input and output tokens of a voice agent's turn, until this pool has measured its own."""

TOKEN_MEMORY: Final = 0.02

USUAL_STAY: Final = 0.8
"""Share of turns whose session has another turn after it, until this pool has measured its own."""

LAST_TURN: Final = 15
"""Later turns of a session count as this one."""

MOST_STAY: Final = 0.95
TURN_MEMORY: Final = 0.001

RETRY_TURNS: Final = 300
"""Turns after which a model that was not asked is asked again, with the order `learned`: it may be fast by now."""

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
        self._oldest_built_ms = math.inf
        self._plans: dict[tuple[int, int, str, int], tuple[PricedPlan, ...]] = {}
        """(deadline, warm models, last model) -> the plans with all candidates, best first, as of the latest tables."""

        self._tokens = USUAL_TOKENS
        self._n_turns, self._requested_turn = 0, [0] * len(candidates)
        self._turns = 10 * np.cumprod(np.full(LAST_TURN + 1, USUAL_STAY))
        """Turns by their number in the session; each counts less the older it is."""

        self._medians_ms: dict[str, float] = {}
        self._index = {each.spec: i for i, each in enumerate(candidates)}
        self._bits = {each.spec: 1 << i for i, each in enumerate(candidates)}
        self._breakers = tuple(stats.breaker(each) for each in candidates)
        self._all_mask = (1 << len(candidates)) - 1

    # --- deciding -----------------------------------------------------------------------------

    def decide(self, query: RoutingQuery, now_ms: float, *, within_budget: bool = True) -> Decision:
        """Decide which models to start when; or what would be best without a budget, `within_budget` false."""
        own_ms = self.options.deadline_ms
        planner = self._planner(min(own_ms, query.deadline_ms or own_ms), now_ms)
        remembered = self._stats.affinity.of(query.session)
        warm = frozenset(warm_specs(remembered, now_ms)) if remembered.read_ms else NO_SPECS
        if [each for each in self._breakers if each.is_troubled]:
            healthy, probe = self._healthy(now_ms)
        else:
            healthy, probe = self.candidates, None
        ordered = self._policy(healthy, query, self) or healthy
        worst_usd = 0.0
        if self.options.policy == "hedge":
            plans = self._hedged(ordered, planner, self._mask(warm), remembered)
            plan, worst_usd = self._affordable(plans, query.input_tokens) if within_budget else (plans[0].plan, 0.0)
        else:
            plan = self._plan(ordered, planner)
        if len(ordered) < len(healthy):
            left_out = tuple(each for each in healthy if each not in ordered)
            plan = replace(plan, reserve=plan.reserve + left_out)
        is_down = self.candidates[0] not in healthy
        return Decision(plan, warm, bool(warm), min(remembered.n_turns, LAST_TURN), worst_usd, is_down, probe)

    def _healthy(self, now_ms: float) -> tuple[Candidates, Candidate | None]:
        """Return the healthy models, or all if none is healthy; and the model to probe."""
        states = [breaker.state(now_ms) for breaker in self._breakers]
        healthy = tuple(each for each, state in zip(self.candidates, states, strict=True) if state == "closed")
        half_open = (each for each, state in zip(self.candidates, states, strict=True) if state == "half_open")
        probe = next((each for each in half_open if healthy and not self.in_flight(each)), None)
        return healthy or self.candidates, probe

    def _affordable(self, plans: tuple[PricedPlan, ...], input_tokens: float) -> tuple[Plan, float]:
        """Return the first of these plans that the ledger can pay for, else the cheapest; and its worst-case cost."""
        budget, share = self.hedge_budget, input_tokens / self._tokens[0] if input_tokens else 1.0
        within_usd = max(0.0, budget.available_usd)
        for each in plans:
            worst_usd = each.worst_usd(share)
            # A small investment leaves enough for the others.
            reserved_usd = budget.reserved_usd if each.invests and worst_usd > budget.cap_usd else 0.0
            if worst_usd <= max(0.0, within_usd - reserved_usd):
                return each.plan, max(0.0, worst_usd)
        cheapest = min(plans, key=lambda each: each.worst_usd(share))
        return cheapest.plan, max(0.0, cheapest.worst_usd(share))

    def _plan(self, ordered: Candidates, planner: Planner) -> Plan:
        options, bounds = self.options, self._bounds(planner)
        rest = ordered[1:]
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

    def _bounds(self, planner: Planner) -> PlanOptions:
        return PlanOptions(float(planner.deadline_ms), float(self.options.attempt_timeout_ms))

    def _hedged(
        self, ordered: Candidates, planner: Planner, warm: int, session: SessionAffinity
    ) -> tuple[PricedPlan, ...]:
        """Return the plans for these candidates, best first; the last one is within any budget."""
        is_complete = ordered is self.candidates
        last, turn = session.last, min(session.n_turns, LAST_TURN)
        key = (planner.deadline_ms, warm, last, turn)
        is_due = self.options.order == "learned" and self._due_again(range(len(self.candidates))) is not None
        if is_complete and not is_due and (known := self._plans.get(key)) is not None:
            return known
        allowed = self._all_mask if is_complete else self._mask({each.spec for each in ordered})
        given = self._index[ordered[0].spec]
        firsts = [given]
        if self.options.order == "learned":
            before = self._index.get(last)
            choices = [self._index[each.spec] for each in ordered]
            firsts = sorted(choices, key=lambda i: planner.score(i, warm, allowed, turn, last=before))
            if (retried := self._due_again(choices)) is not None:
                firsts, is_complete = [retried, *firsts], False
        plans = tuple(
            plan for first in firsts for plan in self._plans_from(first, ordered, planner, warm, allowed, turn)
        )
        if is_complete:
            self._plans[key] = plans
        return plans

    def _due_again(self, choices: Iterable[int]) -> int | None:
        """Return a model that was not asked for so many turns that what is known of it is old."""
        due = (i for i in choices if self._n_turns - self._requested_turn[i] > RETRY_TURNS)
        return next((i for i in due if not self._breakers[i].is_troubled), None)

    def _plans_from(
        self, first: int, ordered: Candidates, planner: Planner, warm: int, allowed: int, turn: int
    ) -> list[PricedPlan]:
        """Return the plans that begin with this model: the best hedge, the second best, ..., none."""
        bounds, hold = self._bounds(planner), self.options.prefers_first
        chosen, made = self.candidates[first], []
        while True:
            hedge = planner.hedge(first, warm, allowed, turn)
            second = None if hedge.second is None else self.candidates[hedge.second]
            is_alone = second is None or hedge.after_ms >= bounds.deadline_ms
            reserve = [each for each in ordered if each is not chosen and (is_alone or each is not second)]
            if is_alone:
                # Silent at the deadline, the first is replaced, whatever the ledger holds: by the best for that time.
                late = planner.replacement(first, warm, self._mask({each.spec for each in reserve}))
                reserve.sort(key=lambda each: self._index[each.spec] != late)
            planned = (chosen,) if is_alone or second is None else (chosen, second)
            is_third = not is_alone and bool(reserve)
            is_late = is_third and planner.pays_late(first, hedge, self._index[reserve[0].spec], warm)
            for starts_late in (True, False) if is_late else (False,):
                calls = (*planned, reserve[0]) if starts_late else planned
                plan = bounds.plan(
                    chosen,
                    later=() if is_alone or second is None else (Later(second, hedge.after_ms),),
                    reserve=tuple(reserve),
                    hold_until_ms=bounds.deadline_ms - HOLD_MARGIN_MS if hold else None,
                    starts_late=starts_late,
                )
                invests = len(planned) > 1 and not warm >> self._index[planned[1].spec] & 1
                made.append(PricedPlan(plan, *self._worst_usd(calls, warm, bool(warm)), invests))
            if hedge.second is None:
                return made
            allowed &= ~(1 << hedge.second)

    def _worst_usd(self, calls: Candidates, warm: int, is_known: bool) -> tuple[float, float]:
        """Return the most that these calls cost above the first choice alone, for input and for output: all read, and
        the dearest answers. A held hedge may have written its answer too."""
        read, written = self._tokens
        alone = self.candidates[0]
        reads = [each.read_usd(read, warm=bool(warm >> self._index[each.spec] & 1)) for each in calls]
        answers = [each.answer_usd(0.0, written, warm=False) for each in calls]
        answers_usd = sum(answers) if self.options.prefers_first else max(answers)
        return (
            sum(reads) - alone.read_usd(read, warm=is_known),
            answers_usd - alone.answer_usd(0.0, written, warm=False),
        )

    def _mask(self, specs: frozenset[str] | set[str]) -> int:
        mask = 0
        for spec in specs:
            mask |= self._bits.get(spec, 0)
        return mask

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
                oldest = next(iter(self._planners))
                del self._planners[oldest], self._built_ms[oldest]
            hold_ms = deadline_ms - HOLD_MARGIN_MS if self.options.prefers_first else 0
            planner = self._planners[deadline_ms] = Planner(self.candidates, deadline_ms, hold_ms)
            self._rebuild(deadline_ms, now_ms)
        elif now_ms - self._built_ms[deadline_ms] > STALE_MS:
            self._rebuild(deadline_ms, now_ms)
        return planner

    def is_stale(self, now_ms: float) -> bool:
        """Return whether a table is older than a second."""
        return now_ms - self._oldest_built_ms > REBUILD_MS

    def refresh(self, now_ms: float) -> None:
        """Rebuild the tables older than a second; call it while a provider is being waited for."""
        for deadline_ms in self._planners:
            if now_ms - self._built_ms[deadline_ms] > REBUILD_MS:
                self._rebuild(deadline_ms, now_ms)

    def _rebuild(self, deadline_ms: int, now_ms: float) -> None:
        latency, turn_usd = self._stats.latency, self.turn_usd(warm=True)
        unit_usd = self.hedge_budget.unit_usd(turn_usd)
        if len(self.candidates) > 1:
            # First: the weight follows from the room.
            hedges = (sum(self._worst_usd((self.candidates[0], each), 0, False)) for each in self.candidates[1:])
            self.hedge_budget.make_room(min(hedges))
        self._planners[deadline_ms].rebuild(
            latency,
            now_ms,
            weight=max(self.hedge_budget.weight, unit_usd / (self.options.late_turn_usd or math.inf)),
            unit_usd=unit_usd,
            tokens=self._tokens,
            stays=self._stays(),
        )
        self._medians_ms = self._planners[deadline_ms].medians_ms()
        self._built_ms[deadline_ms] = now_ms
        self._oldest_built_ms = min(self._built_ms[each] for each in self._planners)
        self._plans.clear()

    def _stays(self) -> Curve:
        """Return, by turn of a session, the share of sessions that have another one after it."""
        stays: Curve = np.append(self._turns[1:] / self._turns[:-1], USUAL_STAY)
        return np.clip(stays, 0.0, MOST_STAY)

    def turn_usd(self, *, warm: bool) -> float:
        """Return the cost of a usual turn with the first model alone."""
        return self.candidates[0].answer_usd(*self._tokens, warm=warm)

    # --- learning -----------------------------------------------------------------------------

    def learn(self, query: RoutingQuery, decision: Decision, race: Race, now_ms: float, *, n_tokens: float) -> None:
        """Learn from a race that is decided or abandoned: record the time of each model that was started."""
        self._n_turns += 1
        for each in race.attempts:
            self._requested_turn[self._index[each.candidate.spec]] = self._n_turns
            survival = self._stats.latency.survival(each.candidate)
            if each.first_ms is not None:
                survival.spoke(each.first_ms, now_ms)
                self._stats.breaker(each.candidate).succeeded()
            elif each.state == "lost" or each.timed_out:
                silent_ms = (now_ms if each.ended_ms is None else each.ended_ms) - each.began_ms
                survival.was_silent(silent_ms, now_ms)
        requested = tuple(each.candidate.spec for each in race.attempts if each.state != "failed")
        spoke = race.winner.candidate.spec if race.winner else ""
        self._stats.affinity.note(query.session, requested, spoke, n_tokens, now_ms)

    def begin(self, decision: Decision) -> None:
        """Hold the worst-case cost of a turn, until it is `spent`."""
        self.hedge_budget.hold(decision.worst_usd)

    def spent(self, decision: Decision, hedge_usd: float, tokens: tuple[float, float]) -> None:
        """Record a turn that has begun: its tokens, and its cost above the first choice alone, without failovers."""
        read, written = self._tokens
        self._tokens = (read + TOKEN_MEMORY * (tokens[0] - read), written + TOKEN_MEMORY * (tokens[1] - written))
        self._turns *= 1 - TURN_MEMORY
        self._turns[decision.turn] += 1
        self.hedge_budget.release(decision.worst_usd)
        self.hedge_budget.spent(hedge_usd)
