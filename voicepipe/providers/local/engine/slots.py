"""Which cache of the model a session's conversation lives in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """Gives each session a slot of its own while there are enough; past that, the one unused for longest.

    A session that comes back to its slot has its conversation read already. Safe to use from any thread.
    """

    def __init__(self, n_slots: int) -> None:
        self._owners: dict[int, str] = dict.fromkeys(range(n_slots), "")  # in order of use, longest unused first
        self._busy: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def held(self, session: str) -> Iterator[int]:
        """A slot for the session, its own if that is free. There must be more slots than threads."""
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
        """How many slots belong to no session."""
        with self._lock:
            return sum(owner == "" for owner in self._owners.values())

    def _choose(self, session: str) -> int:
        free = [slot for slot in self._owners if slot not in self._busy]
        own = [slot for slot in free if session and self._owners[slot] == session]
        unowned = [slot for slot in free if not self._owners[slot]]
        return (own or unowned or free)[0]
