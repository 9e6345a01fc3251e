"""Hold the revocations that one process has, by name, until they expire."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator

from voicepipe.auth.claims import Claims
from voicepipe.cluster.revocation import Revocation, RevokedToken

_Name = tuple[str, str, str]

_AT_ONCE = 256  # yielded to a watch before other tasks run


class RevocationSet:
    """Revocations in force. Belongs to one event loop."""

    def __init__(self, max_revocations: int | None = None) -> None:
        """`max_revocations`: limit in memory; None: no limit. Full: the oldest is dropped; the store still has it."""
        self._max_revocations = max_revocations
        # By name, the latest last, each with its own number.
        self._known: dict[_Name, tuple[int, Revocation]] = {}
        self._ends: list[tuple[int, _Name]] = []  # a heap: when a name may be dropped; pruned with `_known`
        self._latest = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, revocation: Revocation, now_s: int) -> None:
        """Add a revocation, and wake the watches."""
        self._expire(now_s)
        name = _name(revocation)
        self._known.pop(name, None)
        self._latest += 1
        self._known[name] = (self._latest, revocation)
        heapq.heappush(self._ends, (revocation.until_s, name))
        if self._max_revocations is not None and len(self._known) > self._max_revocations:
            del self._known[next(iter(self._known))]
        self._changed.set()
        self._changed = asyncio.Event()

    def covers(self, claims: Claims) -> bool:
        """Return whether any revocation covers a token."""
        names = (("token", claims.project, claims.token_id), ("subject", claims.project, claims.subject))
        found = (self._known.get(name) for name in names)
        return any(entry is not None and entry[1].covers(claims) for entry in found)

    def knows(self, revocation: Revocation) -> bool:
        """Return whether exactly this revocation is known."""
        entry = self._known.get(_name(revocation))
        return entry is not None and entry[1] == revocation

    async def watch(self) -> AsyncGenerator[Revocation, None]:
        """Yield all revocations in force, then each new one, until closed or cancelled."""
        seen = 0
        while True:
            changed = self._changed  # read before looking: a revocation added while we yield sets this same event
            for count, (number, revocation) in enumerate(self._after(seen), 1):
                seen = number
                yield revocation
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            await changed.wait()

    def _after(self, seen: int) -> list[tuple[int, Revocation]]:
        newer = []
        for entry in reversed(self._known.values()):
            if entry[0] <= seen:
                break
            newer.append(entry)
        return newer[::-1]

    def _expire(self, now_s: int) -> None:
        if len(self._ends) > 2 * len(self._known) + _AT_ONCE:  # of names that were revoked again, or dropped
            self._ends = [(entry[1].until_s, name) for name, entry in self._known.items()]
            heapq.heapify(self._ends)
        while self._ends and self._ends[0][0] <= now_s:
            _, name = heapq.heappop(self._ends)
            entry = self._known.get(name)
            if entry is not None and entry[1].until_s <= now_s:
                del self._known[name]


def _name(revocation: Revocation) -> _Name:
    if isinstance(revocation, RevokedToken):
        return "token", revocation.project, revocation.token_id
    return "subject", revocation.project, revocation.subject
