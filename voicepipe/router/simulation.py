"""Run the router against given latencies in virtual time: the same decisions, races and learning as live, without a
provider, a socket or a wait."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voicepipe.errors import StageBroken
from voicepipe.router.candidate import CACHED_SHARE, Candidate
from voicepipe.router.decision import Decision
from voicepipe.router.llm.usage import failover_usd, planned_usd
from voicepipe.router.policies import RoutingQuery
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.race import Attempt, Close, Order, Race, Start


@dataclass(frozen=True, slots=True)
class Draw:
    """The behaviour of one model in one turn."""

    after_ms: float
    """Time to its first speakable token, with a cold cache, or to its failure; infinite: it hangs."""

    fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTurn:
    """A simulated turn."""

    at_ms: float
    session: str
    draws: tuple[Draw, ...]
    """The behaviour of each candidate of the pool, in their order."""

    input_tokens: int = 1_500
    output_tokens: int = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResult:
    """The result of one question."""

    ttft_ms: float
    """Infinite: no model answered."""

    n_calls: int
    usd: float
    lost_usd: float
    """The part of it spent on calls that were closed without being used."""

    extra_usd: float
    """The cost above that of the first model alone; below 0 if a cheaper one answered."""

    failover_usd: float
    """The part of it that no cap bounds: of models that take the place of one that failed, or was alone and silent at
    the deadline."""

    speaker: str


def simulate_turns(
    pool: Pool, stats: SharedStats, turns: Iterable[DrawnTurn], *, cached_factor: float = 1.0
) -> Iterator[SimulatedResult]:
    """Run every turn, in order, and yield the result of each.

    Args:
        cached_factor: factor of the time to the first token of a model that has the session in its cache.
    """
    for turn in turns:
        yield _Simulation(pool, stats, turn, cached_factor).run()


class _Simulation:
    def __init__(self, pool: Pool, stats: SharedStats, turn: DrawnTurn, cached_factor: float) -> None:
        self._pool, self._stats, self._turn, self._cached_factor = pool, stats, turn, cached_factor
        self._draws = {each.spec: draw for each, draw in zip(pool.candidates, turn.draws, strict=True)}
        self._due: list[tuple[float, int, Attempt]] = []

    def run(self) -> SimulatedResult:
        turn = self._turn
        query = RoutingQuery(session=turn.session, input_tokens=turn.input_tokens)
        decision = self._pool.decide(query, turn.at_ms)
        self._pool.begin(decision)
        race = Race(decision.plan)
        now_ms = turn.at_ms
        self._obey(race.begin(now_ms), decision)
        self._pool.refresh(now_ms)
        while not race.over:
            now_ms = self._next(race)
            if self._due and self._due[0][0] <= now_ms:
                self._obey(self._happen(race, now_ms), decision)
            else:
                self._obey(race.time_passed(now_ms), decision)
        for each in race.attempts:
            self._stats.ended(each)
        self._pool.learn(query, decision, race, now_ms, n_tokens=turn.input_tokens)
        probe = None if decision.probe is None else self._probe(decision.probe)
        return self._account(decision, race, probe, now_ms)

    def _probe(self, candidate: Candidate) -> Attempt:
        draw, attempt = self._draws[candidate.spec], Attempt(0, candidate, "probe", self._turn.at_ms)
        timeout_ms = self._pool.options.attempt_timeout_ms
        attempt.timed_out = draw.after_ms > timeout_ms
        attempt.ended_ms = self._turn.at_ms + min(draw.after_ms, timeout_ms)
        attempt.state = "failed" if draw.fails or attempt.timed_out else "lost"
        if attempt.state == "failed":
            failure = StageBroken("llm", provider=candidate.spec, why="drawn", retryable=True)
            self._stats.breaker(candidate).failed(failure, attempt.ended_ms)
        else:
            attempt.first_ms = draw.after_ms
            self._stats.latency.survival(candidate).spoke(draw.after_ms, attempt.ended_ms)
            self._stats.breaker(candidate).succeeded()
        return attempt

    def _next(self, race: Race) -> float:
        wake_ms = race.wake_ms()
        return min(self._due[0][0] if self._due else math.inf, math.inf if wake_ms is None else wake_ms)

    def _happen(self, race: Race, now_ms: float) -> list[Order]:
        _, _, attempt = heapq.heappop(self._due)
        if not self._draws[attempt.candidate.spec].fails:
            return race.spoke(attempt, now_ms)
        if attempt.state == "running":
            failure = StageBroken("llm", provider=attempt.candidate.spec, why="drawn", retryable=True)
            self._stats.breaker(attempt.candidate).failed(failure, now_ms)
        return race.failed(attempt, now_ms)

    def _obey(self, orders: list[Order], decision: Decision) -> None:
        for order in orders:
            match order:
                case Start(attempt):
                    self._stats.began(attempt)
                    self._start(attempt, decision)
                case Close(attempt) if attempt.timed_out:
                    failure = StageBroken("llm", provider=attempt.candidate.spec, why="hung", retryable=True)
                    now_ms = attempt.ended_ms or 0.0
                    self._stats.breaker(attempt.candidate).failed(failure, now_ms)
                case _:
                    pass

    def _start(self, attempt: Attempt, decision: Decision) -> None:
        draw = self._draws[attempt.candidate.spec]
        is_warm = attempt.candidate.spec in decision.warm and not draw.fails
        after_ms = draw.after_ms * (self._cached_factor if is_warm else 1.0)
        if math.isfinite(after_ms):
            heapq.heappush(self._due, (attempt.began_ms + after_ms, attempt.number, attempt))

    @staticmethod
    def _cached_share(attempt: Attempt, decision: Decision) -> float:
        return CACHED_SHARE if attempt.candidate.spec in decision.warm else 0.0

    def _account(self, decision: Decision, race: Race, probe: Attempt | None, now_ms: float) -> SimulatedResult:
        tokens = (float(self._turn.input_tokens), float(self._turn.output_tokens))
        attempts = race.attempts if probe is None else [*race.attempts, probe]
        usd = [planned_usd(each, tokens, cached_share=self._cached_share(each, decision)) for each in attempts]
        lost_usd = sum(cost for cost, each in zip(usd, attempts, strict=True) if each is not race.winner)
        alone_usd = self._pool.candidates[0].answer_usd(*tokens, warm=decision.is_known)
        extra_usd, first = sum(usd) - alone_usd, self._pool.candidates[0]
        costs = list(zip(attempts, usd, strict=True))
        moved_usd = failover_usd(costs, extra_usd, first=first, is_down=decision.is_first_down)
        self._pool.spent(decision, extra_usd - moved_usd, tokens)
        return SimulatedResult(
            ttft_ms=now_ms - self._turn.at_ms if race.winner else math.inf,
            n_calls=len(attempts),
            usd=sum(usd),
            lost_usd=lost_usd,
            extra_usd=extra_usd,
            failover_usd=moved_usd,
            speaker=race.winner.candidate.spec if race.winner else "",
        )
