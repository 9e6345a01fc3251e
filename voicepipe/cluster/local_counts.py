"""The counters as this process knows them: what the store said last, and what the store has yet to be told."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from voicepipe.cluster.port import Tally

MOST_COUNTERS: Final = 20_000
"""Remembered at once, some 7 MB: three for each client secret that was used lately."""


@dataclass(slots=True)
class _Counter:
    stored: int | None
    """What the store said last; None: nothing yet."""

    owed: int
    """What was counted here since, and the store does not know."""

    until_s: int


class LocalCounts:
    """Belongs to one event loop. Nothing here waits, so of several that want the last one of something, one gets it."""

    def __init__(self, most: int = MOST_COUNTERS) -> None:
        # The least lately used first. Full, the first one goes that the store knows as well; are there none, what is
        # counted is not remembered, which is counted in turn.
        self._counters: OrderedDict[str, _Counter] = OrderedDict()
        self._owed: dict[str, None] = {}  # the names that `_counters` has something owed of
        self._most = most
        self.forgotten = 0
        """Counts that found no room while the store was away."""

    def knows(self, name: str) -> bool:
        """Whether the store has said what a counter's total is."""
        counter = self._counters.get(name)
        return counter is not None and counter.stored is not None

    def owed(self, name: str) -> int:
        """How much of a counter the store does not know."""
        counter = self._counters.get(name)
        return counter.owed if counter is not None else 0

    def note(self, name: str, stored: int, until_s: int) -> None:
        """Take down what the store said."""
        counter = self._counter(name, until_s)
        if counter is not None:
            counter.stored = stored

    def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> Tally:
        """Count here, as `Cluster.count` does; the store is owed it."""
        self._expire(name, now_s)
        counter = self._counter(name, until_s)
        had = (counter.stored or 0) + counter.owed if counter is not None else 0
        tally = Tally.of(had, amount, limit)
        if counter is not None:
            self._owe(name, counter, tally.total - had)
        elif tally.counted and amount:
            self.forgotten += 1
        return tally

    def settle(self, name: str, amount: int, stored: int) -> None:
        """The store has been told of `amount`, and says that there are `stored` now."""
        counter = self._counters.get(name)
        if counter is not None:
            self._owe(name, counter, -amount)
            counter.stored = stored

    def next_owed(self, now_s: int) -> tuple[str, int, int] | None:
        """(name, amount, until_s) of one counter that the store is to be told of; None: it knows all."""
        while self._owed:
            name = next(iter(self._owed))
            counter = self._counters[name]
            if counter.until_s > now_s:
                return name, counter.owed, counter.until_s
            self._owe(name, counter, -counter.owed)  # nobody asks for what has expired
        return None

    @property
    def n_owed(self) -> int:
        """How many counters the store is to be told of."""
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
