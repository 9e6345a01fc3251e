"""The cluster of one process: for tests, and for a server that runs alone and forgets at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import Tally, check_config
from voicepipe.cluster.revocation import Revocation, RevokedToken


@dataclass(frozen=True, slots=True)
class _Kept:
    project: str
    session: bytes
    until_s: int


@dataclass(frozen=True, slots=True)
class _Count:
    total: int
    until_s: int


@dataclass(frozen=True, slots=True)
class _Slot:
    owner: str
    until_s: int


class MemoryCluster:
    """Everything in dicts, pruned of what expired at each write. For use by one event loop."""

    def __init__(self) -> None:
        self._revoked: dict[tuple[type[Revocation], str, str], tuple[int, Revocation]] = {}
        self._n_revoked = 0
        self._news = asyncio.Event()
        self._configs: dict[str, _Kept] = {}
        self._counts: dict[str, _Count] = {}
        self._slots: dict[tuple[str, str], _Slot] = {}

    async def revoke(self, revocation: Revocation, *, now_s: int) -> None:
        self._revoked = {key: entry for key, entry in self._revoked.items() if entry[1].until_s > now_s}
        self._n_revoked += 1
        name = revocation.token_id if isinstance(revocation, RevokedToken) else revocation.subject
        self._revoked[type(revocation), revocation.project, name] = (self._n_revoked, revocation)
        self._news.set()
        self._news = asyncio.Event()

    async def is_revoked(self, claims: Claims) -> bool:
        return any(revocation.covers(claims) for _, revocation in self._revoked.values())

    async def revocations(self) -> AsyncGenerator[Revocation, None]:
        seen = 0
        while True:
            news = self._news  # taken before looking: what comes while we yield sets this very one
            for number, revocation in sorted(self._revoked.values(), key=lambda entry: entry[0]):
                if number > seen:
                    seen = number
                    yield revocation
            await news.wait()

    async def keep_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        check_config(session)
        self._configs = {key: kept for key, kept in self._configs.items() if kept.until_s > now_s}
        self._configs[config_id] = _Kept(project, session, until_s)

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        kept = self._configs.get(config_id)
        return kept.session if kept and kept.project == project and kept.until_s > now_s else None

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> Tally:
        self._counts = {key: count for key, count in self._counts.items() if count.until_s > now_s}
        had = self._counts.get(name, _Count(0, until_s))
        tally = Tally.of(had.total, amount, limit)
        self._counts[name] = _Count(tally.total, max(had.until_s, until_s))
        return tally

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        self._slots = {key: slot for key, slot in self._slots.items() if slot.until_s > now_s}
        for pool, limit in pools.items():
            if sum(p == pool and h != holder for p, h in self._slots) >= limit:
                return pool
        self._slots |= {(pool, holder): _Slot(owner, until_s) for pool in pools}
        return None

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if slot.until_s > now_s}
        mine = {key: slot for key, slot in self._slots.items() if slot.owner == owner}
        self._slots |= {key: replace(slot, until_s=until_s) for key, slot in mine.items()}

    async def give_back_slots(self, holder: str) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if key[1] != holder}

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return sum(p == pool and slot.until_s > now_s for (p, _), slot in self._slots.items())
