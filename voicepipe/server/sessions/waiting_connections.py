"""The connections that have not named their session yet and have shown no credential, in bounded groups.

A full group loses its oldest connection, never the newest. A client that reconnects sends its first event at once, so
it has not waited longest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from voicepipe.auth.rate_limit import subscriber

MAX_PER_ADDRESS: Final = 64
"""Connections of one address (of one /64 of IPv6) that did not name their session in the URL."""

MAX_PER_SESSION: Final = 4
"""Connections that named the same session in the URL. Its client needs 1; other clients do not have its ID."""

MAX_CONNECTIONS: Final = 512
"""Connections of all addresses together: some 30 MB. Beyond it the address with the most loses its oldest."""

Drop = Callable[[], None]
Group = tuple[str, str]


def of_address(address: str) -> Group:
    """Return the group of an address' connections."""
    return "address", subscriber(address)


def of_session(session_id: str) -> Group:
    """Return the group of a session's connections."""
    return "session", session_id


class WaitingConnections:
    """The connections that wait, in groups. Belongs to one event loop."""

    def __init__(self) -> None:
        # Bounded: see MAX_CONNECTIONS; sessions have MAX_PER_SESSION each, up to the server's limit of sessions.
        self._groups: dict[Group, OrderedDict[object, Drop]] = {}
        self._n_by_address = 0

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @contextmanager
    def waiting(self, group: Group, drop: Drop) -> Iterator[None]:
        """Take a slot while the block runs; `drop` is called when another connection takes it."""
        by_address = group[0] == "address"
        if len(self._groups.get(group, ())) >= (MAX_PER_ADDRESS if by_address else MAX_PER_SESSION):
            self._drop_oldest(group)
        elif by_address and self._n_by_address >= MAX_CONNECTIONS:
            self._drop_oldest(max(self._addresses(), key=lambda each: len(self._groups[each])))
        slot = object()
        self._groups.setdefault(group, OrderedDict())[slot] = drop
        self._n_by_address += by_address
        try:
            yield
        finally:
            self._leave(group, slot)

    def _addresses(self) -> Iterator[Group]:
        return (group for group in self._groups if group[0] == "address")

    def _drop_oldest(self, group: Group) -> None:
        slot, drop = next(iter(self._groups[group].items()))
        self._leave(group, slot)
        drop()

    def _leave(self, group: Group, slot: object) -> None:
        """Free a slot; a slot that was taken away is free already."""
        slots = self._groups.get(group, OrderedDict())
        if slots.pop(slot, None) is None:
            return
        self._n_by_address -= group[0] == "address"
        if not slots:
            del self._groups[group]
