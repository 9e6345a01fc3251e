"""Store the latest stalls of the event loop. Sessions read them when they handle an event: to note a stall takes as
long with a thousand sessions as with one, while all of them are late already."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

REMEMBERED: Final = 64
"""Number of stalls kept: those of more than a second in which a session had no event. A turn's record has 8."""


class StallLog:
    """The stalls, as (from_ms, until_ms) on `clock.monotonic_ms`'s scale."""

    def __init__(self) -> None:
        self.n_noted = 0
        """Number of stalls so far."""

        # Full: the oldest is dropped.
        self._latest: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def note(self, from_ms: int, until_ms: int) -> None:
        """Add a stall that has just ended."""
        self.n_noted += 1
        self._latest.append((from_ms, until_ms))

    def since(self, n_noted: int) -> tuple[tuple[int, int], ...]:
        """Return the stalls after the first `n_noted`, in time order: at most the latest `REMEMBERED`."""
        n_new = min(self.n_noted - n_noted, len(self._latest))
        return tuple(islice(self._latest, len(self._latest) - n_new, None))
