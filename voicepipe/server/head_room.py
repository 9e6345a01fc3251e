"""Head-room: whether one more session would make the running ones wait."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from voicepipe.errors import Overload
from voicepipe.server.stage_latency import ProcessTurns, StageLatency, StageVerdict

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


class SharedTime(Struct, frozen=True, kw_only=True):
    """A resource that sessions share, and how much of it they may use. All shares are of the time of one thread, 0 to
    1."""

    name: str
    """What there is none left of, for people."""

    limit: float
    """The share that all sessions may use together."""

    first: int
    """Sessions that are admitted whatever they cost: they are needed to measure what a session costs."""

    base: float
    """The share that any number of sessions uses, beside what each one does."""

    expected: float
    """The share that a session uses on the machine of the benches."""

    min_ratio: float
    """The least of what running sessions count with, as a ratio to what is expected of them: those that are silent now
    may all speak."""

    max_ratio: float
    """The most that they count with: no client may make the measurement refuse all others."""

    n_measured: int
    """The number of latest measurements whose median counts. One that is missing counts as expected. So neither a
    silence, nor sessions that have only just begun, nor a short flood of one client sets the cost of a session. If more
    came meanwhile and cost more, that counts sooner: measurements have the weight of their sessions then."""

    def expected_of(self, n_sessions: float) -> float:
        """Return the share that `n_sessions` use, at the mean, on the machine of the benches."""
        return self.base + n_sessions * self.expected


EXPECTED_SHARE: Final = 0.0064
"""Share of a core that a session uses in the event loop's thread, beside `BASE_SHARE`. Source: the admission bench in a
slow hour, where 120 to 169 sessions used 0.75 to 1.0 of this for some seconds."""

BASE_SHARE: Final = 0.08
"""Share of a core that the sessions use together, from five runs of the admission bench: the more there
are, the less each one costs."""

MAX_CPU_SHARE: Final = 0.83
"""Beyond it all sessions wait. Source: the admission bench in a slow hour, where p95 grew by 23 to 33 ms while the
loop's thread used 81 to 83 % of a core for some seconds, by 43 to 163 ms with 84 to 91 %, and by 187 and 310 ms with
97 %."""

LOOP: Final = SharedTime(
    name="CPU time",
    limit=MAX_CPU_SHARE,
    first=10,
    base=BASE_SHARE,
    expected=EXPECTED_SHARE,
    min_ratio=0.5,
    max_ratio=3,
    n_measured=9,
)
"""The event loop's thread: 36 s."""

LOCAL_MODELS: Final = SharedTime(
    name="time of the local models",
    limit=0.7,
    first=2,
    base=0,
    expected=0.17,
    min_ratio=0.12,
    max_ratio=2,
    n_measured=5,
)
"""The local model that is busiest: 20 s. Its jobs wait for each other: with 70 % of its time in use, a job of even
length waits for 1.2 times that length at the mean (Pollaczek and Khinchine: 0.7 / (2 (1 - 0.7))). What a session uses
differs by machine; on two busy cores the LLM took 17 % of its time for each of three users who talked without a
pause."""


NEW_SESSION: Final = 0.25
"""As what part of a session one counts that came during a measurement: it was there for half of it at the mean, and its
user was silent for half of that. If it counted for more, sessions would seem to cost less while many come: 0.69 to 0.79
of what is expected, where the same ones cost 0.75 to 0.89 a few seconds later (the admission bench, whose users begin
to talk within 7.2 s)."""


class MeasuredCost:
    """Estimates for how many sessions something suffices that they share."""

    def __init__(self, what: SharedTime, used: Callable[[], float | None]) -> None:
        """`used` returns the share that was used lately; None: not known."""
        self.what, self._used = what, used
        self._measured = deque([(1.0, float(what.first))] * what.n_measured, maxlen=what.n_measured)
        """(the share that sessions used as a ratio to the expected one, how many sessions), by measurement. The
        ratio of a few sessions shows what many would use: how much slower this machine is, or how much more they do."""
        self._n_before = 0
        """Sessions at the last measurement."""

        self._n_measured = 0
        """The same; 0: that measurement does not show what sessions cost."""

    @property
    def capacity(self) -> int:
        """Return how many sessions there may be.

        The sessions that were measured count with what they use, each further one with the expected share at least: it
        has not shown yet that it costs less.
        """
        what = self.what
        ratios = [ratio for ratio, _ in self._measured]
        ratio = max(statistics.median(ratios), _weighted_median(self._measured))
        ratio = min(max(ratio, what.min_ratio), what.max_ratio)
        left = what.limit - what.expected_of(self._n_measured) * (ratio if self._n_measured else 1)
        return max(what.first, self._n_measured + math.floor(left / (what.expected * max(ratio, 1))))

    def measure(self, n_sessions: int) -> None:
        """Measure what these sessions use."""
        n_new = max(0, n_sessions - self._n_before)
        n_ended = max(0, self._n_before - n_sessions)
        n_mean = n_sessions - (1 - NEW_SESSION) * n_new + n_ended / 2
        used, self._n_before = self._used(), n_sessions
        if used is None or n_sessions < self.what.first:
            self._measured.append((1.0, self.what.first))
            self._n_measured = 0
        else:
            self._measured.append((used / self.what.expected_of(n_mean), n_mean))
            self._n_measured = n_sessions


def _weighted_median(measured: Iterable[tuple[float, float]]) -> float:
    """Return the value that half of the weight is not above; each one comes with its weight."""
    ordered = sorted(measured)
    half = sum(weight for _, weight in ordered) / 2
    below = accumulate(weight for _, weight in ordered)
    return next(value for (value, _), weight in zip(ordered, below, strict=True) if weight >= half)


class HeadRoom:
    """Admits as many sessions as the event loop, the local models and the providers have time for. Belongs to one event
    loop."""

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
        self._loop_cost = MeasuredCost(LOOP, cpu_share)
        self._local_cost = None if local_share is None else MeasuredCost(LOCAL_MODELS, local_share)
        self.stages = StageLatency()
        self._lag_ms = lag_ms
        self._lags = deque([0.0] * N_LAGS, maxlen=N_LAGS)

    @property
    def capacity(self) -> int:
        """Return how many sessions the event loop has time for."""
        return self._loop_cost.capacity

    @property
    def local_capacity(self) -> int | None:
        """Return for how many sessions of all processes the local models have time; None: there is no local model."""
        return None if self._local_cost is None else self._local_cost.capacity

    def check(self, n_sessions: int) -> None:
        """Check that there is head-room in this process for one session more than these.

        Raises:
            NoHeadRoom: the running sessions would wait for it.
        """
        if n_sessions >= self.capacity:
            raise no_head_room(LOOP, self.capacity)
        if n_sessions >= LOOP.first and (lag_ms := statistics.median(self._lags)) > MAX_LAG_MS:
            raise NoHeadRoom(
                f"The server's event loop is {lag_ms:.0f} ms late (limit {MAX_LAG_MS:.0f} ms).", retry_after_ms=RETRY_MS
            )

    def measure(self, n_sessions: int) -> None:
        """Measure what one of the sessions of this process uses."""
        self._loop_cost.measure(n_sessions)
        self._lags.append(self._lag_ms())

    def measure_shared(self, processes: Sequence[ProcessTurns]) -> None:
        """Measure what the sessions of all processes share: the local models and the providers."""
        self.stages.measure(processes)
        self._measure_local()

    def adopt(self, verdict: StageVerdict | None) -> None:
        """Use what another process has measured for all; None: nothing lately. Then no stage refuses, since it may have
        become faster, and the last known number of sessions counts."""
        self.stages.verdict = StageVerdict(self.stages.verdict.sessions) if verdict is None else verdict
        self._measure_local()

    def _measure_local(self) -> None:
        if self._local_cost is not None:
            self._local_cost.measure(self.stages.verdict.sessions)


def no_head_room(what: SharedTime, capacity: int) -> NoHeadRoom:
    """Return the refusal of a session for which there is no such time left."""
    return NoHeadRoom(
        f"The server has no {what.name} left for another session (it has for {capacity}).", retry_after_ms=RETRY_MS
    )
