"""Assign the model's caches to sessions' conversations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """Gives each session its own slot while there are enough; beyond that, the least recently used one.

    A session that returns to its slot has its conversation in the cache. Safe to use from any thread.
    """

    def __init__(self, n_slots: int) -> None:
        self._owners: dict[int, str] = dict.fromkeys(range(n_slots), "")  # in order of use, least recently used first
        self._busy: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def held(self, session: str) -> Iterator[int]:
        """Return a slot for the session, its own if that is free. There must be more slots than threads."""
        with self._lock:
            slot = self._choose(session)
            self._busy.add(slot)
            del self._owners[slot]
            self._owners[slot] = session
        try:
            yield slot
        finally:
            with self._lock:
                self._busy.discard(slot)

    def unowned(self) -> int:
        """Number of slots that belong to no session."""
        with self._lock:
            return sum(owner == "" for owner in self._owners.values())

    def _choose(self, session: str) -> int:
        free = [slot for slot in self._owners if slot not in self._busy]
        own = [slot for slot in free if session and self._owners[slot] == session]
        unowned = [slot for slot in free if not self._owners[slot]]
        return (own or unowned or free)[0]
