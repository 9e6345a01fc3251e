"""Run the router against given latencies in virtual time: the same decisions, races and learning as live, without a
provider, a socket or a wait.

Turns overlap as they do live: a turn decides by what the others have learned, spent and hold at that instant.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from voicepipe.errors import StageBroken
from voicepipe.router.candidate import CACHED_SHARE, Candidate
from voicepipe.router.llm.usage import failover_usd, planned_usd
from voicepipe.router.policies import RoutingQuery
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.race import Attempt, Close, Race, RaceCommand, Start


class Draw(Struct, frozen=True):
    """The behaviour of one model in one turn."""

    after_ms: float
    """Time to its first speakable token, with a cold cache, or to its failure; infinite: it hangs."""

    fails: bool = False


class DrawnTurn(Struct, frozen=True, kw_only=True):
    """A simulated turn."""

    at_ms: float
    session: str
    draws: tuple[Draw, ...]
    """The behaviour of each candidate of the pool, in their order."""

    input_tokens: int = 1_500
    output_tokens: int = 80


class SimulatedResult(Struct, frozen=True, kw_only=True):
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
    """Run every turn, and yield the results in the order of the turns.

    Args:
        turns: in the order of their beginning.
        cached_factor: factor of the time to the first token of a model that has the session in its cache.
    """
    running: list[tuple[float, int, _Simulation]] = []
    begun: deque[_Simulation] = deque()  # bounded: a turn lasts no longer than its models' time-outs and its words
    for number, turn in enumerate(turns):
        _run_until(turn.at_ms, running)
        simulation = _Simulation(pool, stats, turn, cached_factor)
        begun.append(simulation)
        heapq.heappush(running, (simulation.due_ms, number, simulation))
        yield from _complete(begun)
    _run_until(math.inf, running)
    yield from _complete(begun)


def _run_until(until_ms: float, running: list[tuple[float, int, _Simulation]]) -> None:
    """Run the turns' events that are due by then, in the order of time."""
    while running and running[0][0] <= until_ms:
        _, number, simulation = heapq.heappop(running)
        simulation.run_event()
        if simulation.result is None:
            heapq.heappush(running, (simulation.due_ms, number, simulation))


def _complete(begun: deque[_Simulation]) -> Iterator[SimulatedResult]:
    while begun and (result := begun[0].result) is not None:
        begun.popleft()
        yield result


class _Simulation:
    """One turn, from its decision to the last word of its answer."""

    def __init__(self, pool: Pool, stats: SharedStats, turn: DrawnTurn, cached_factor: float) -> None:
        """Decide, and start the first calls."""
        self._pool, self._stats, self._turn, self._cached_factor = pool, stats, turn, cached_factor
        self._draws = {each.spec: draw for each, draw in zip(pool.candidates, turn.draws, strict=True)}
        self._due: list[tuple[float, int, Attempt]] = []
        self.result: SimulatedResult | None = None
        """Known when the answer is complete."""

        self._decided: SimulatedResult | None = None
        self._query = RoutingQuery(session=turn.session, input_tokens=turn.input_tokens)
        self._decision = pool.decide(self._query, turn.at_ms)
        self._hold = pool.begin(self._decision)
        self._race = Race(self._decision.plan)
        self._execute(self._race.begin(turn.at_ms))
        pool.refresh(turn.at_ms, make_plans=False)  # no turn waits for them: each is made on demand, and is the same
        self.due_ms = self._next()
        """When its next event is due."""

    def run_event(self) -> None:
        """Run the event that is due."""
        now_ms = self.due_ms
        if self._decided is not None:
            self._answered()
        elif self._due and self._due[0][0] <= now_ms:
            self._execute(self._happen(now_ms))
        else:
            self._execute(self._race.time_passed(now_ms))
        if self._race.over and self._decided is None:
            self._decide(now_ms)
        elif self.result is None:
            self.due_ms = self._next()

    def _decide(self, now_ms: float) -> None:
        """Learn from the race, and release what it holds for calls that it did not start."""
        winner = self._race.winner
        for each in self._race.attempts:
            if each is not winner:
                self._stats.ended(each)
        self._pool.learn(self._query, self._decision, self._race, now_ms, n_tokens=self._turn.input_tokens)
        self._decided = self._result(now_ms)
        self._pool.decided(self._hold, self._decided.extra_usd - self._decided.failover_usd)
        words_ms = 1_000 * self._turn.output_tokens / winner.candidate.tokens_per_s if winner else 0.0
        self.due_ms = now_ms + words_ms

    def _answered(self) -> None:
        """Record the cost: the answer is complete."""
        self.result = result = self._decided
        assert result is not None
        if self._race.winner is not None:
            self._stats.ended(self._race.winner)
        tokens = (float(self._turn.input_tokens), float(self._turn.output_tokens))
        self._pool.spent(self._decision, self._hold, result.extra_usd - result.failover_usd, tokens)

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
            self._stats.breaker(candidate).succeeded(began_ms=attempt.began_ms)
        return attempt

    def _next(self) -> float:
        wake_ms = self._race.wake_ms()
        return min(self._due[0][0] if self._due else math.inf, math.inf if wake_ms is None else wake_ms)

    def _happen(self, now_ms: float) -> list[RaceCommand]:
        _, _, attempt = heapq.heappop(self._due)
        if not self._draws[attempt.candidate.spec].fails:
            return self._race.spoke(attempt, now_ms)
        if attempt.state == "running":
            failure = StageBroken("llm", provider=attempt.candidate.spec, why="drawn", retryable=True)
            self._stats.breaker(attempt.candidate).failed(failure, now_ms)
        return self._race.failed(attempt, now_ms)

    def _execute(self, orders: list[RaceCommand]) -> None:
        for order in orders:
            match order:
                case Start(attempt):
                    self._stats.began(attempt)
                    self._start(attempt)
                case Close(attempt) if attempt.timed_out:
                    failure = StageBroken("llm", provider=attempt.candidate.spec, why="hung", retryable=True)
                    now_ms = attempt.ended_ms or 0.0
                    self._stats.breaker(attempt.candidate).failed(failure, now_ms)
                case _:
                    pass

    def _start(self, attempt: Attempt) -> None:
        draw = self._draws[attempt.candidate.spec]
        is_warm = attempt.candidate.spec in self._decision.warm and not draw.fails
        after_ms = draw.after_ms * (self._cached_factor if is_warm else 1.0)
        if math.isfinite(after_ms):
            heapq.heappush(self._due, (attempt.began_ms + after_ms, attempt.number, attempt))

    def _cached_share(self, attempt: Attempt) -> float:
        return CACHED_SHARE if attempt.candidate.spec in self._decision.warm else 0.0

    def _result(self, now_ms: float) -> SimulatedResult:
        decision, race, first = self._decision, self._race, self._pool.candidates[0]
        tokens = (float(self._turn.input_tokens), float(self._turn.output_tokens))
        probe = None if decision.probe is None else self._probe(decision.probe)
        attempts = race.attempts if probe is None else [*race.attempts, probe]
        usd = [planned_usd(each, tokens, cached_share=self._cached_share(each)) for each in attempts]
        extra_usd = sum(usd) - first.answer_usd(*tokens, warm=decision.is_known)
        costs = list(zip(attempts, usd, strict=True))
        return SimulatedResult(
            ttft_ms=now_ms - self._turn.at_ms if race.winner else math.inf,
            n_calls=len(attempts),
            usd=sum(usd),
            lost_usd=sum(cost for each, cost in costs if each is not race.winner),
            extra_usd=extra_usd,
            failover_usd=failover_usd(costs, extra_usd, first=first, is_down=decision.is_first_down),
            speaker=race.winner.candidate.spec if race.winner else "",
        )
