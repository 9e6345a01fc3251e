"""Hold this process's copy of the counters: the store's last values, and the counts that are not written yet."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from voicepipe.cluster.port import CountResult

MAX_COUNTERS: Final = 20_000
"""Limit of counters in memory, about 7 MB: 3 for each recently used client secret."""


@dataclass(slots=True)
class _Counter:
    stored: int | None
    """The store's last value; None: not known yet."""

    unwritten: int
    """Counted here since, and not yet written to the store."""

    until_s: int


class LocalCounts:
    """The copy; belongs to one event loop. No method waits, so of several tasks that request the last unit, exactly 1
    gets it.
    """

    def __init__(self, max_counters: int = MAX_COUNTERS) -> None:
        # The least recently used first. Full: the first counter without unwritten counts is dropped. If there is none,
        # the count is not stored, and `n_lost` is increased.
        self._counters: OrderedDict[str, _Counter] = OrderedDict()
        self._unwritten: dict[str, None] = {}  # the names in `_counters` with unwritten counts
        self._max_counters = max_counters
        self.n_lost = 0
        """Counts that were lost because the buffer was full while the store was away."""

    def knows(self, name: str) -> bool:
        """Return whether the store's value of a counter is known."""
        counter = self._counters.get(name)
        return counter is not None and counter.stored is not None

    def unwritten(self, name: str) -> int:
        """Return how much of a counter is not yet written to the store."""
        counter = self._counters.get(name)
        return counter.unwritten if counter is not None else 0

    def set_stored(self, name: str, stored: int, until_s: int) -> None:
        """Store the value that the store returned."""
        counter = self._counter(name, until_s)
        if counter is not None:
            counter.stored = stored

    def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        """Count here, as `Cluster.count` does; the count must still be written to the store."""
        self._expire(name, now_s)
        counter = self._counter(name, until_s)
        had = (counter.stored or 0) + counter.unwritten if counter is not None else 0
        result = CountResult.of(had, amount, limit)
        if counter is not None:
            self._add_unwritten(name, counter, result.total - had)
        elif result.counted and amount:
            self.n_lost += 1
        return result

    def mark_written(self, name: str, amount: int, stored: int) -> None:
        """Mark `amount` as written to the store, whose value is now `stored`."""
        counter = self._counters.get(name)
        if counter is not None:
            self._add_unwritten(name, counter, -amount)
            counter.stored = stored

    def next_unwritten(self, now_s: int) -> tuple[str, int, int] | None:
        """Return (name, amount, until_s) of one counter to write to the store; None: all are written."""
        while self._unwritten:
            name = next(iter(self._unwritten))
            counter = self._counters[name]
            if counter.until_s > now_s:
                return name, counter.unwritten, counter.until_s
            self._add_unwritten(name, counter, -counter.unwritten)  # an expired counter is no longer needed
        return None

    @property
    def n_unwritten(self) -> int:
        """Return how many counters must still be written to the store."""
        return len(self._unwritten)

    def _add_unwritten(self, name: str, counter: _Counter, amount: int) -> None:
        counter.unwritten += amount
        if counter.unwritten:
            self._unwritten[name] = None
        else:
            self._unwritten.pop(name, None)

    def _counter(self, name: str, until_s: int) -> _Counter | None:
        counter = self._counters.get(name)
        if counter is None:
            if len(self._counters) >= self._max_counters and not self._evict_oldest():
                return None
            counter = self._counters[name] = _Counter(None, 0, until_s)
        counter.until_s = max(counter.until_s, until_s)
        self._counters.move_to_end(name)
        return counter

    def _evict_oldest(self) -> bool:
        if len(self._unwritten) >= len(self._counters):
            return False
        while (name := next(iter(self._counters))) in self._unwritten:
            self._counters.move_to_end(name)
        del self._counters[name]
        return True

    def _expire(self, name: str, now_s: int) -> None:
        counter = self._counters.get(name)
        if counter is not None and counter.until_s <= now_s:
            del self._counters[name]
            self._unwritten.pop(name, None)
