"""Head-room: whether one more session would make the running ones wait."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from voicepipe.errors import Overload

MEASURE_S: Final = 4.0
"""How often it is measured what sessions use."""

N_LAGS: Final = 5
MAX_LAG_MS: Final = 250.0
"""At the median of the last `N_LAGS` measurements, 20 s, a twentieth of the event loop's steps may be this late. It is
a quarter of a turn's budget. Beyond it the machine has no time left, whatever its sessions are measured to cost. Less
would refuse users of a machine that is only busy: beside four test processes on two cores it was 50 to 99 ms."""

RETRY_MS: Final = 5_000
"""`Retry-After` without head-room: it returns when sessions end, which last minutes."""


class NoHeadRoom(Overload):
    """There is no head-room for another session now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTime:
    """A resource that sessions share, and how much of it they may use. All shares are of the time of one thread, 0 to
    1."""

    name: str
    """What there is none left of, for people."""

    limit: float
    """The share that all sessions may use together."""

    first: int
    """So many sessions are admitted whatever they cost, and are needed to measure what one costs."""

    expected: float
    """The share that a session uses until it is measured, and at least what each further one counts with."""

    min_share: float
    """The least that a running session counts with: sessions that are silent now may all speak."""

    max_share: float
    """The most that a session counts with: no client may make the measurement refuse all others."""

    n_measured: int
    """Of so many of the latest measurements the median counts. One that is missing counts as expected. So neither a
    silence, nor sessions that have only just begun, nor a short flood of one client sets the cost of a session."""


EXPECTED_SHARE: Final = 0.0078
"""Share of a core that a session uses in the event loop's thread. Source: the load bench with 80 sessions, 0.94 to
0.96 % on a quiet machine, and 0.86 of that, then 0.92 of the rest since; rounded up."""

MAX_CPU_SHARE: Final = 0.85
"""Beyond it all sessions wait: in the load bench by 16 ms (p50) with 80 sessions, 86 % of a core, and by 360 ms with
120."""

LOOP: Final = SharedTime(
    name="CPU time",
    limit=MAX_CPU_SHARE,
    first=10,
    expected=EXPECTED_SHARE,
    min_share=EXPECTED_SHARE / 2,
    max_share=4 * EXPECTED_SHARE,
    n_measured=15,
)
"""The event loop's thread: a minute."""

LOCAL_MODELS: Final = SharedTime(
    name="time of the local models", limit=0.7, first=2, expected=0.17, min_share=0.02, max_share=0.35, n_measured=5
)
"""The local model that is busiest: 20 s. Its jobs wait for each other: with 70 % of its time in use, a job of even
length waits for 1.2 times that length at the mean (Pollaczek and Khinchine: 0.7 / (2 (1 - 0.7))). What a session uses
differs by machine; on two busy cores the LLM took 17 % of its time for each of three users who talked without a
pause."""


class MeasuredCost:
    """Estimates for how many sessions something suffices that they share."""

    def __init__(self, what: SharedTime, used: Callable[[], float | None]) -> None:
        """`used` returns the share that was used lately; None: not known."""
        self.what, self._used = what, used
        self._shares = deque([what.expected] * what.n_measured, maxlen=what.n_measured)
        """What a session used, by measurement."""
        self._n_measured = 0
        """Sessions of the last measurement."""

    @property
    def capacity(self) -> int:
        """Return how many sessions there may be.

        The sessions that were measured count with what they use, each further one with the expected share at least: it
        has not shown yet that it costs less.
        """
        what = self.what
        share = min(max(statistics.median(self._shares), what.min_share), what.max_share)
        left = what.limit - self._n_measured * share
        return max(what.first, self._n_measured + math.floor(left / max(share, what.expected)))

    def measure(self, n_sessions: int) -> None:
        """Measure what one of these sessions uses."""
        used = self._used()
        if used is None or n_sessions < self.what.first:
            self._shares.append(self.what.expected)
            self._n_measured = 0
        else:
            self._shares.append(used / n_sessions)
            self._n_measured = n_sessions


class HeadRoom:
    """Admits as many sessions as the event loop and the local models have time for. Belongs to one event loop."""

    def __init__(
        self,
        cpu_share: Callable[[], float | None],
        *,
        lag_ms: Callable[[], float] = lambda: 0.0,
        local_share: Callable[[], float | None] | None = None,
    ) -> None:
        """`cpu_share` returns the share of a core that the loop's thread used lately, `lag_ms` the 95th percentile of
        its delays, and `local_share` the share of its time that the busiest local model worked; None: there is no local
        model."""
        self._costs = [MeasuredCost(LOOP, cpu_share)]
        if local_share is not None:
            self._costs.append(MeasuredCost(LOCAL_MODELS, local_share))
        self._lag_ms = lag_ms
        self._lags = deque([0.0] * N_LAGS, maxlen=N_LAGS)

    @property
    def capacity(self) -> int:
        """Return how many sessions there may be."""
        return min(cost.capacity for cost in self._costs)

    def check(self, n_sessions: int) -> None:
        """Check that there is head-room for one session more than these.

        Raises:
            NoHeadRoom: the running sessions would wait for it.
        """
        for cost in self._costs:
            if n_sessions >= cost.capacity:
                raise NoHeadRoom(
                    f"The server has no {cost.what.name} left for another session (it has for {cost.capacity}).",
                    retry_after_ms=RETRY_MS,
                )
        if n_sessions >= LOOP.first and (lag_ms := statistics.median(self._lags)) > MAX_LAG_MS:
            raise NoHeadRoom(
                f"The server's event loop is {lag_ms:.0f} ms late (limit {MAX_LAG_MS:.0f} ms).", retry_after_ms=RETRY_MS
            )

    def measure(self, n_sessions: int) -> None:
        """Measure what one of these sessions uses."""
        for cost in self._costs:
            cost.measure(n_sessions)
        self._lags.append(self._lag_ms())

    async def run(self, n_sessions: Callable[[], int]) -> None:
        """Measure every `MEASURE_S` until cancelled."""
        while True:
            await asyncio.sleep(MEASURE_S)
            self.measure(n_sessions())
