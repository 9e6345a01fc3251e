"""Head-room: whether one more session would make the running ones wait."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import deque
from collections.abc import Callable
from typing import Final

from voicepipe.errors import Overload

MAX_CPU_SHARE: Final = 0.85
"""Share of a core that the sessions of an event loop may use together. Beyond it all of them wait: in the load bench
by 16 ms (p50) with 80 sessions, 86 % of a core, and by 360 ms with 120."""

FIRST_SESSIONS: Final = 10
"""So many sessions are admitted whatever they cost, and are needed to measure what one costs."""

EXPECTED_SHARE: Final = 0.0078
"""Share of a core that a session uses until it is measured. Source: the load bench with 80 sessions, 0.94 to 0.96 % on
a quiet machine, and 0.86 of that, then 0.92 of the rest since; rounded up."""

MIN_SHARE: Final = EXPECTED_SHARE / 2
"""The least that a running session counts with: sessions that are silent now may all speak."""

MAX_SHARE: Final = 4 * EXPECTED_SHARE
"""The most that a session counts with: no client may make the measurement refuse all others."""

MEASURE_S: Final = 4.0
N_MEASURED: Final = 15
"""The median of the last minute's measurements counts. One that is missing counts as `EXPECTED_SHARE`. So neither a
silence, nor sessions that have only just begun, nor a short flood of one client, which gives way to the others, sets
the cost of a session."""

RETRY_MS: Final = 5_000
"""`Retry-After` without head-room: it returns when sessions end, which last minutes."""


class NoHeadRoom(Overload):
    """There is no head-room for another session now."""


class HeadRoom:
    """Admits as many sessions as the thread of the event loop has CPU time for. Belongs to one event loop."""

    def __init__(self, cpu_share: Callable[[], float | None]) -> None:
        """`cpu_share` returns the share of a core that the loop's thread used lately; None: not known yet."""
        self._cpu_share = cpu_share
        self._shares = deque([EXPECTED_SHARE] * N_MEASURED, maxlen=N_MEASURED)
        """What a session used, by measurement."""
        self._n_measured = 0
        """Sessions of the last measurement."""

    @property
    def capacity(self) -> int:
        """Return how many sessions there may be.

        The sessions that were measured count with what they use, each further one with `EXPECTED_SHARE` at least: it
        has not shown yet that it costs less.
        """
        share = min(max(statistics.median(self._shares), MIN_SHARE), MAX_SHARE)
        left = MAX_CPU_SHARE - self._n_measured * share
        return max(FIRST_SESSIONS, self._n_measured + math.floor(left / max(share, EXPECTED_SHARE)))

    def check(self, n_sessions: int) -> None:
        """Check that there is head-room for one session more than these.

        Raises:
            NoHeadRoom: the running sessions would wait for it.
        """
        if n_sessions >= self.capacity:
            raise NoHeadRoom(
                f"The server has no CPU time left for another session (it has for {self.capacity}).",
                retry_after_ms=RETRY_MS,
            )

    def measure(self, n_sessions: int) -> None:
        """Measure what one of these sessions uses."""
        share = self._cpu_share()
        if share is None or n_sessions < FIRST_SESSIONS:
            self._shares.append(EXPECTED_SHARE)
            self._n_measured = 0
        else:
            self._shares.append(share / n_sessions)
            self._n_measured = n_sessions

    async def run(self, n_sessions: Callable[[], int]) -> None:
        """Measure every `MEASURE_S` until cancelled."""
        while True:
            await asyncio.sleep(MEASURE_S)
            self.measure(n_sessions())
