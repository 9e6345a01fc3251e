"""Simulate the calls of many users on many event loops in virtual time, with the product's own admission rule.

Arrivals are a Poisson process, and each arrival goes to a loop at random or to the emptiest. Of more loops than
`SAMPLED_LOOPS` that number is simulated, with its share of the arrivals: loops do not depend on each other.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, Protocol

import numpy as np

from voicepipe.bench.capacity_loop import FRAME_US, Costs, LoopLoad, Talk, simulate_loop
from voicepipe.errors import Overload

SAMPLED_LOOPS: Final = 32

SIMULATED_SESSIONS: Final = (1, 5, *range(10, 170, 10))
LOOP_S: Final = 15.0
"""Numbers of sessions for which one loop is simulated, and for how long."""

FIRST_GUESS: Final = 90
"""Sessions on a loop of the first fleet that is tried."""

MEASURE_S: Final = 4.0
"""The admission rule measures the loop this often, see `voicepipe.server.head_room`."""

RETRY_S: Final = 5.0
"""Time after which a refused user calls again: the server's `Retry-After`."""

WARM_UP_CALLS: Final = 3
MEASURED_CALLS: Final = 6
"""Mean call lengths before the counting begins, and while it lasts."""


class Admission(Protocol):
    """The admission rule of one loop."""

    def check(self, n_sessions: int) -> None:
        """Raise `Overload` when there is no room for one session more."""
        ...

    def measure(self, n_sessions: int) -> None:
        """Measure what a session uses."""
        ...


NewAdmission = Callable[[Callable[[], float | None]], Admission]
"""Returns the rule of a new loop, given the function that returns its CPU share."""

Balance = Literal["random", "least"]


class LoopCurve:
    """One loop's figures by its number of sessions, simulated for some numbers."""

    def __init__(self, talk: Talk, costs: Costs, numbers: Sequence[int] = SIMULATED_SESSIONS) -> None:
        self.talk, self.costs = talk, costs
        self._loads = [simulate_loop(n, talk, costs, duration_s=LOOP_S) for n in sorted(numbers)]

    def cpu_share(self, n_sessions: int) -> float:
        """Return the mean share of a core that this number of sessions uses."""
        numbers = [0, *(load.n_sessions for load in self._loads)]
        return float(np.interp(n_sessions, numbers, [0.0, *(load.cpu_share for load in self._loads)]))

    def nearest(self, n_sessions: int) -> LoopLoad:
        """Return the simulated load with about this number of sessions."""
        return min(self._loads, key=lambda load: abs(load.n_sessions - n_sessions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of all users."""

    users: int
    """Mean number of users in calls at once."""

    call_s: float = 180.0
    """Mean length of a call."""

    call_spread: float = 0.8
    """Standard deviation of the logarithm of its length."""

    retries: int = 2
    """How often a refused user calls again."""

    lost_nodes: int = 0
    """Nodes that die at once in the middle; their users call again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The loops, and how arrivals come to them. A loop fills a core."""

    loops: int
    loops_per_node: int = 8
    balance: Balance = "random"

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return math.ceil(self.loops / self.loops_per_node)


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """The result for one fleet."""

    fleet: Fleet
    refused: float
    """Share of all attempts of users, second ones too, that were refused."""

    gave_up: float
    """Share of the users who were refused as often as they try."""

    sessions: Mapping[int, int]
    """Number of sessions on a loop -> how often it was seen."""

    def sessions_at(self, share: float) -> int:
        """Return a quantile of the sessions on a loop."""
        total, seen = sum(self.sessions.values()), 0
        for n_sessions, times in sorted(self.sessions.items()):
            seen += times
            if seen >= share * total:
                return n_sessions
        return 0


def simulate_fleet(
    fleet: Fleet, calls: Calls, curve: LoopCurve, new_admission: NewAdmission, *, seed: int = 7
) -> FleetLoad:
    """Simulate a fleet until its load is steady, and then for `MEASURED_CALLS` mean call lengths."""
    return _Fleet(fleet, calls, curve, new_admission, Random(seed)).run()


def loops_needed(
    calls: Calls,
    curve: LoopCurve,
    new_admission: NewAdmission,
    *,
    loops_per_node: int,
    balance: Balance,
    max_refused: float,
    seed: int = 7,
) -> FleetLoad:
    """Return about the smallest fleet that refuses at most `max_refused` of the attempts, to half a percent."""

    def load(nodes: int) -> FleetLoad:
        fleet = Fleet(loops=nodes * loops_per_node, loops_per_node=loops_per_node, balance=balance)
        return simulate_fleet(fleet, calls, curve, new_admission, seed=seed)

    low = calls.lost_nodes
    high = low + max(1, round(calls.users / (loops_per_node * FIRST_GUESS)))
    while (best := load(high)).refused > max_refused:
        low, high = high, high + math.ceil(high / 8)
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        found = load(middle)
        if found.refused <= max_refused:
            high, best = middle, found
        else:
            low = middle
    return best


class _Loop:
    """One event loop: its sessions, and its CPU share at a moment."""

    def __init__(self, new_admission: NewAdmission, curve: LoopCurve, draws: np.random.Generator) -> None:
        self.n_sessions = 0
        self.alive = True
        self._curve, self._draws = curve, draws
        self.admission = new_admission(self.cpu_share)

    def cpu_share(self) -> float:
        """Return the share of a core now: by its sessions, of which more or fewer speak than on average."""
        talk, costs = self._curve.talk, self._curve.costs
        speaks = talk.speech_ms / talk.turn_ms
        more = self._draws.binomial(self.n_sessions, speaks) - speaks * self.n_sessions
        return min(1.0, self._curve.cpu_share(self.n_sessions) + more * (costs.voiced_us - costs.silent_us) / FRAME_US)


class _Fleet:
    def __init__(
        self, fleet: Fleet, calls: Calls, curve: LoopCurve, new_admission: NewAdmission, random: Random
    ) -> None:
        self._fleet, self._calls, self._random = fleet, calls, random
        n_loops = min(fleet.loops, SAMPLED_LOOPS)
        draws = np.random.default_rng(random.getrandbits(32))
        self._loops = [_Loop(new_admission, curve, draws) for _ in range(n_loops)]
        self._alive = list(self._loops)
        self._rate_per_s = calls.users / calls.call_s * n_loops / fleet.loops
        self._due: list[tuple[float, int, str, int, _Loop | None]] = []
        self._n_due = self._tried = self._refused = self._users = self._gave_up = 0
        self._counting = False
        self._sessions: Counter[int] = Counter()
        self._open: dict[int, _Loop] = {}
        """Call -> its loop."""

    def run(self) -> FleetLoad:
        """Run to the end and return the result."""
        warm_s = WARM_UP_CALLS * self._calls.call_s
        end_s = warm_s + MEASURED_CALLS * self._calls.call_s
        self._at(self._random.expovariate(self._rate_per_s), "arrival", 0, None)
        for n, loop in enumerate(self._loops):
            self._at(MEASURE_S * n / len(self._loops), "measure", 0, loop)
        if self._calls.lost_nodes:
            self._at((warm_s + end_s) / 2, "loss", 0, None)
        while self._due and (now_s := self._due[0][0]) < end_s:
            _, _, kind, number, measured = heapq.heappop(self._due)
            self._counting = now_s >= warm_s
            match kind:
                case "arrival":
                    self._at(now_s + self._random.expovariate(self._rate_per_s), "arrival", 0, None)
                    self._try(now_s, self._calls.retries)
                case "retry":
                    self._try(now_s, number)
                case "end":
                    self._end(number)
                case "loss":
                    self._lose(now_s)
                case _:
                    assert measured is not None
                    self._measure(now_s, measured)
        return FleetLoad(
            self._fleet, self._refused / max(1, self._tried), self._gave_up / max(1, self._users), self._sessions
        )

    def _try(self, now_s: float, retries: int) -> None:
        """Let a user call who calls again up to `retries` times."""
        loop = self._chosen()
        self._tried += self._counting
        first = retries == self._calls.retries
        self._users += self._counting and first
        try:
            loop.admission.check(loop.n_sessions)
        except Overload:
            self._refused += self._counting
            if retries:
                self._at(now_s + RETRY_S, "retry", retries - 1, None)
            else:
                self._gave_up += self._counting
            return
        loop.n_sessions += 1
        self._n_due += 1
        self._open[self._n_due] = loop
        spread = self._calls.call_spread
        length_s = self._random.lognormvariate(math.log(self._calls.call_s) - spread**2 / 2, spread)
        self._at(now_s + length_s, "end", self._n_due, loop)

    def _chosen(self) -> _Loop:
        if self._fleet.balance == "random":
            return self._random.choice(self._alive)
        return min(self._alive, key=lambda loop: loop.n_sessions)

    def _end(self, call: int) -> None:
        if call in self._open:  # else it was lost with its node
            self._open.pop(call).n_sessions -= 1

    def _lose(self, now_s: float) -> None:
        """Let nodes die: their calls are over, and their users call again at once."""
        share = self._calls.lost_nodes / self._fleet.nodes
        lost = set(self._random.sample(self._loops, min(len(self._loops) - 1, math.ceil(share * len(self._loops)))))
        for loop in lost:
            loop.alive = False
        self._alive = [loop for loop in self._loops if loop.alive]
        for call in [call for call, loop in self._open.items() if loop in lost]:
            self._end(call)
            self._try(now_s, self._calls.retries)

    def _measure(self, now_s: float, loop: _Loop) -> None:
        if not loop.alive:
            return
        loop.admission.measure(loop.n_sessions)
        if self._counting:
            self._sessions[loop.n_sessions] += 1
        self._at(now_s + MEASURE_S, "measure", 0, loop)

    def _at(self, at_s: float, kind: str, number: int, loop: _Loop | None) -> None:
        self._n_due += 1
        heapq.heappush(self._due, (at_s, self._n_due, kind, number, loop))


def latency_ms(load: FleetLoad, curve: LoopCurve, share: float) -> float:
    """Return a quantile of the turn latency over a fleet.

    A loop counts as often as it has sessions, with the nearest number of sessions that was simulated.
    """
    weighted: list[tuple[float, float]] = []
    for n_sessions, times in load.sessions.items():
        known = curve.nearest(n_sessions).latencies_ms if n_sessions else ()
        weighted += [(ms, times * n_sessions / len(known)) for ms in known]
    weighted.sort()
    until = share * sum(weight for _, weight in weighted)
    for ms, weight in weighted:
        until -= weight
        if until <= 0:
            return ms
    return math.nan
