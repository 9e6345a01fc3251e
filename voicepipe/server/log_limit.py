"""Rate-limit log lines that unauthenticated clients cause, with the count of the suppressed ones."""

from __future__ import annotations

from typing import Final

EVERY_MS: Final = 10_000
"""Minimum time between two lines: a client that sends garbage would fill the disk."""


class LogLimit:
    """Allows a line now and then. Belongs to one event loop."""

    def __init__(self, every_ms: int = EVERY_MS) -> None:
        self._every_ms = every_ms
        self._next_ms: int | None = None
        self._unlogged = 0

    def take(self, now_ms: int) -> int | None:
        """Return how many lines were suppressed since the last one; None: suppress this one too."""
        if self._next_ms is not None and now_ms < self._next_ms:
            self._unlogged += 1
            return None
        self._next_ms = now_ms + self._every_ms
        unlogged, self._unlogged = self._unlogged, 0
        return unlogged
