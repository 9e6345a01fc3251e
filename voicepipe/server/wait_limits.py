"""The connections that wait and have shown no credential, in bounded groups: in one process, or in the supervisor of
several.

A full group loses its oldest connection, never the newest. A client sends its request, or the first event of its
session, at once. So it has not waited longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from voicepipe.auth.rate_limit import subscriber

Drop = Callable[[], object]
Group = tuple[str, str]


def of_address(address: str) -> Group:
    """Return the group of an address' connections."""
    return "address", subscriber(address)


def of_session(session_id: str) -> Group:
    """Return the group of a session's connections."""
    return "session", session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCaps:
    """Maximum numbers of connections that wait."""

    per_address: int
    """Connections of one address (of one /64 of IPv6)."""

    per_session: int = 0
    """Connections that named the same session in the URL."""

    all_addresses: int | None = None
    """Connections of all addresses together. Beyond it the address with the most loses its oldest. None: any number."""


RESUME_CAPS: Final = WaitCaps(per_address=64, per_session=4, all_addresses=512)
"""The limits of connections that resume a session. Its client needs 1 of the 4; other clients do not have its ID. 512
take some 30 MB."""


@dataclass(slots=True, eq=False)
class WaitingConnection:
    """A connection that waits."""

    group: Group
    drop: Drop
    """Called when another connection takes its slot."""

    number: int = 0
    """The wait's number at the supervisor."""


class Waits(Protocol):
    """The connections that wait, of all processes that serve the port."""

    def begin(self, group: Group, drop: Drop) -> WaitingConnection:
        """Count a connection that waits from now on; `drop` is called when another one takes its slot."""
        ...

    def end(self, wait: WaitingConnection) -> None:
        """Free the slot of a connection; one that was taken away is free already."""
        ...


@contextmanager
def waiting(waits: Waits, group: Group, drop: Drop) -> Iterator[None]:
    """Take a slot while the block runs; see `Waits.begin`."""
    wait = waits.begin(group, drop)
    try:
        yield
    finally:
        waits.end(wait)


class WaitLimits:
    """Implements `Waits` against limits. Belongs to one event loop."""

    def __init__(self, caps: WaitCaps) -> None:
        self.caps = caps
        # Bounded: see WaitCaps; sessions have `per_session` each, up to the server's limit of sessions.
        self._groups: dict[Group, dict[WaitingConnection, None]] = {}
        self._n_by_address = 0

    def __len__(self) -> int:
        """Number of connections that wait."""
        return sum(map(len, self._groups.values()))

    def begin(self, group: Group, drop: Drop) -> WaitingConnection:
        """Count a connection; the oldest of a full group is dropped before."""
        by_address = group[0] == "address"
        n_max, n_max_all = (self.caps.per_address if by_address else self.caps.per_session), self.caps.all_addresses
        if len(self._groups.get(group, ())) >= n_max:
            self._drop_oldest(group)
        elif by_address and n_max_all is not None and self._n_by_address >= n_max_all:
            self._drop_oldest(max(self._addresses(), key=lambda each: len(self._groups[each])))
        wait = WaitingConnection(group, drop)
        self._groups.setdefault(group, {})[wait] = None
        self._n_by_address += by_address
        return wait

    def end(self, wait: WaitingConnection) -> None:
        """Free the slot of a connection."""
        group = self._groups.get(wait.group)
        if group is None or wait not in group:
            return
        del group[wait]
        self._n_by_address -= wait.group[0] == "address"
        if not group:
            del self._groups[wait.group]

    def _addresses(self) -> Iterator[Group]:
        return (group for group in self._groups if group[0] == "address")

    def _drop_oldest(self, group: Group) -> None:
        oldest = next(iter(self._groups[group]))
        self.end(oldest)
        oldest.drop()
