"""A fair queue between many sessions and few threads, in which no session waits behind another's backlog."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Takes items of sessions in turn: the first of each, then the second of each. Safe to use from any thread."""

    def __init__(self, *, limit: int, session_limit: int) -> None:
        """A queue of at most `limit` items, and `session_limit` of one session."""
        self._limit, self._session_limit = limit, session_limit
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0
        self._changed = threading.Condition()

    def put(self, session: str, item: T) -> bool:
        """Append an item, or return False when full: refuse. A client that is refused now can use another provider; an
        item behind a full queue would come too late."""
        with self._changed:
            line = self._waiting.get(session, ())
            if self._count >= self._limit or len(line) >= self._session_limit:
                return False
            self._waiting.setdefault(session, deque()).append(item)
            self._count += 1
            self._changed.notify()
            return True

    def take(self) -> T:
        """Wait for an item and remove it; its session goes to the end of the queue."""
        with self._changed:
            self._changed.wait_for(lambda: self._count)
            session, line = self._waiting.popitem(last=False)
            item = line.popleft()
            if line:
                self._waiting[session] = line
            self._count -= 1
            return item

    def discard(self, session: str, item: T) -> None:
        """Remove a cancelled item; an item that was taken is not affected."""
        with self._changed:
            line = self._waiting.get(session)
            if line is None or item not in line:
                return
            line.remove(item)
            self._count -= 1
            if not line:
                del self._waiting[session]
