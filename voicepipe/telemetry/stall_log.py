"""Store the latest stalls of the event loop. Each session reads them when it handles an event, so that recording a
stall takes as long with a thousand sessions as with one."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

MAX_STALLS: Final = 64
"""Maximum of stalls stored: those of over a second, in which a session may handle no event. A turn's record has 8."""


class StallLog:
    """The stalls, as (from_ms, until_ms) on `clock.monotonic_ms`'s scale."""

    def __init__(self) -> None:
        self.n_recorded = 0
        """Number of stalls so far."""

        # Full: the oldest is dropped.
        self._latest: deque[tuple[int, int]] = deque(maxlen=MAX_STALLS)

    def record(self, from_ms: int, until_ms: int) -> None:
        """Add a stall that has just ended."""
        self.n_recorded += 1
        self._latest.append((from_ms, until_ms))

    def since(self, n_recorded: int) -> tuple[tuple[int, int], ...]:
        """Return the stalls after the first `n_recorded`, in time order: at most the latest `MAX_STALLS`."""
        n_new = min(self.n_recorded - n_recorded, len(self._latest))
        return tuple(islice(self._latest, len(self._latest) - n_new, None))
