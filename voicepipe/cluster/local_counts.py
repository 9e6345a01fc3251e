"""Hold this process's copy of the counters: the store's last values, and the counts that are not written yet."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from voicepipe.cluster.port import Tally

MAX_COUNTERS: Final = 20_000
"""Limit of counters in memory, about 7 MB: 3 for each recently used client secret."""


@dataclass(slots=True)
class _Counter:
    stored: int | None
    """The store's last value; None: not known yet."""

    owed: int
    """Counted here since, and not yet written to the store."""

    until_s: int


class LocalCounts:
    """The copy; belongs to one event loop. No method waits, so of several tasks that want the last unit, exactly 1 gets
    it.
    """

    def __init__(self, most: int = MAX_COUNTERS) -> None:
        # The least recently used first. Full: the first counter without unwritten counts is dropped. If there is none,
        # the count is not stored, and `n_lost` is increased.
        self._counters: OrderedDict[str, _Counter] = OrderedDict()
        self._owed: dict[str, None] = {}  # the names in `_counters` with unwritten counts
        self._most = most
        self.n_lost = 0
        """Counts that were lost because the buffer was full while the store was away."""

    def knows(self, name: str) -> bool:
        """Return whether the store's value of a counter is known."""
        counter = self._counters.get(name)
        return counter is not None and counter.stored is not None

    def owed(self, name: str) -> int:
        """Return how much of a counter is not yet written to the store."""
        counter = self._counters.get(name)
        return counter.owed if counter is not None else 0

    def note(self, name: str, stored: int, until_s: int) -> None:
        """Store the value that the store returned."""
        counter = self._counter(name, until_s)
        if counter is not None:
            counter.stored = stored

    def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> Tally:
        """Count here, as `Cluster.count` does; the count must still be written to the store."""
        self._expire(name, now_s)
        counter = self._counter(name, until_s)
        had = (counter.stored or 0) + counter.owed if counter is not None else 0
        tally = Tally.of(had, amount, limit)
        if counter is not None:
            self._owe(name, counter, tally.total - had)
        elif tally.counted and amount:
            self.n_lost += 1
        return tally

    def settle(self, name: str, amount: int, stored: int) -> None:
        """Mark `amount` as written to the store, whose value is now `stored`."""
        counter = self._counters.get(name)
        if counter is not None:
            self._owe(name, counter, -amount)
            counter.stored = stored

    def next_owed(self, now_s: int) -> tuple[str, int, int] | None:
        """Return (name, amount, until_s) of one counter to write to the store; None: all are written."""
        while self._owed:
            name = next(iter(self._owed))
            counter = self._counters[name]
            if counter.until_s > now_s:
                return name, counter.owed, counter.until_s
            self._owe(name, counter, -counter.owed)  # an expired counter is no longer needed
        return None

    @property
    def n_owed(self) -> int:
        """Return how many counters must still be written to the store."""
        return len(self._owed)

    def _owe(self, name: str, counter: _Counter, amount: int) -> None:
        counter.owed += amount
        if counter.owed:
            self._owed[name] = None
        else:
            self._owed.pop(name, None)

    def _counter(self, name: str, until_s: int) -> _Counter | None:
        counter = self._counters.get(name)
        if counter is None:
            if len(self._counters) >= self._most and not self._make_room():
                return None
            counter = self._counters[name] = _Counter(None, 0, until_s)
        counter.until_s = max(counter.until_s, until_s)
        self._counters.move_to_end(name)
        return counter

    def _make_room(self) -> bool:
        if len(self._owed) >= len(self._counters):
            return False
        while (name := next(iter(self._counters))) in self._owed:
            self._counters.move_to_end(name)
        del self._counters[name]
        return True

    def _expire(self, name: str, now_s: int) -> None:
        counter = self._counters.get(name)
        if counter is not None and counter.until_s <= now_s:
            del self._counters[name]
            self._owed.pop(name, None)
