"""Hold the slots of this process's own sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from voicepipe.values import replace

MAX_RELEASED: Final = 10_000
"""Maximum of ended sessions that must still be reported to a store that is away; the leases of others expire.
"""


class HeldSlots(Struct, frozen=True):
    """The slots that one session holds."""

    pools: tuple[str, ...]
    owner: str
    until_s: int
    lease_s: int
    """The duration of each renewal."""


class LocalSlots:
    """The slots; belongs to one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, HeldSlots] = {}  # bounded: as many as the process has sessions
        self._released: dict[str, str] = {}  # session -> owner; bounded by MAX_RELEASED

    def full_pool(self, holder: str, pools: Mapping[str, int], now_s: int) -> str | None:
        """Return the first pool that this process's other sessions fill by themselves; None: all have free slots."""
        self._expire(now_s)
        for pool, limit in pools.items():
            if sum(pool in each.pools for name, each in self._held.items() if name != holder) >= limit:
                return pool
        return None

    def take(self, holder: str, slots: HeldSlots) -> None:
        """Give the session one slot in each pool."""
        self._released.pop(holder, None)
        self._held[holder] = slots

    def renew(self, owner: str, until_s: int, now_s: int) -> None:
        """Extend a process's slots until then; expired slots are dropped."""
        self._expire(now_s)
        for holder, slots in self._held.items():
            if slots.owner == owner:
                self._held[holder] = replace(slots, until_s=until_s, lease_s=until_s - now_s)

    def release(self, holder: str, owner: str) -> None:
        """Free the slots of an ended session; the store must still be informed."""
        self._held.pop(holder, None)
        if len(self._released) < MAX_RELEASED:
            self._released[holder] = owner

    def drop(self, holder: str) -> None:
        """Drop the session's entry; the store is already informed."""
        self._held.pop(holder, None)
        self._released.pop(holder, None)

    def taken(self, pool: str, now_s: int) -> int:
        """Return how many slots of a pool this process holds."""
        self._expire(now_s)
        return sum(pool in each.pools for each in self._held.values())

    def holds(self, holder: str) -> bool:
        """Return whether the session holds any slot."""
        return holder in self._held

    def held(self) -> tuple[tuple[str, HeldSlots], ...]:
        """Return all held slots, by session."""
        return tuple(self._held.items())

    def released(self) -> tuple[tuple[str, str], ...]:
        """Return the ended sessions that must still be reported to the store, each with its owner."""
        return tuple(self._released.items())

    @property
    def n_unwritten(self) -> int:
        """Return how many ended sessions must still be reported."""
        return len(self._released)

    def _expire(self, now_s: int) -> None:
        for holder in [name for name, slots in self._held.items() if slots.until_s <= now_s]:
            del self._held[holder]
