"""Implement the cluster port in the memory of one process: for tests, and for a server that stores nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import CountResult, check_config
from voicepipe.cluster.revocation import Revocation
from voicepipe.cluster.revocation_set import RevocationSet
from voicepipe.values import replace


class _StoredConfig(Struct, frozen=True):
    project: str
    session: bytes
    until_s: int


class _Count(Struct, frozen=True):
    total: int
    until_s: int


class _Slot(Struct, frozen=True):
    owner: str
    until_s: int


class MemoryCluster:
    """Stores everything in dicts and drops expired entries at each write. For use by one event loop."""

    def __init__(self) -> None:
        self._revoked = RevocationSet()
        self._configs: dict[str, _StoredConfig] = {}
        self._counts: dict[str, _Count] = {}
        self._slots: dict[tuple[str, str], _Slot] = {}

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        self._revoked.add(revocation, now_s)
        return True

    async def is_revoked(self, claims: Claims) -> bool:
        return self._revoked.covers(claims)

    def revocations(self) -> AsyncGenerator[Revocation, None]:
        return self._revoked.watch()

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        check_config(session)
        self._configs = {key: stored for key, stored in self._configs.items() if stored.until_s > now_s}
        self._configs[config_id] = _StoredConfig(project, session, until_s)

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        stored = self._configs.get(config_id)
        return stored.session if stored and stored.project == project and stored.until_s > now_s else None

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        self._counts = {key: count for key, count in self._counts.items() if count.until_s > now_s}
        had = self._counts.get(name, _Count(0, until_s))
        result = CountResult.of(had.total, amount, limit)
        self._counts[name] = _Count(result.total, max(had.until_s, until_s))
        return result

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        self._slots = {key: slot for key, slot in self._slots.items() if slot.until_s > now_s}
        for pool, limit in pools.items():
            if sum(p == pool and h != holder for p, h in self._slots) >= limit:
                return pool
        self._slots = {key: slot for key, slot in self._slots.items() if key[1] != holder or slot.owner == owner}
        self._slots |= {(pool, holder): _Slot(owner, until_s) for pool in pools}
        return None

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if slot.until_s > now_s}
        owned = {key: slot for key, slot in self._slots.items() if slot.owner == owner}
        self._slots |= {key: replace(slot, until_s=until_s) for key, slot in owned.items()}

    async def release_slots(self, holder: str, *, owner: str) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if key[1] != holder or slot.owner != owner}

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        return sum(p == pool and slot.until_s > now_s for (p, _), slot in self._slots.items())
