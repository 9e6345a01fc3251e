"""Take slots in the shared store: the limits of sessions of a machine, an API key, a project and a user."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, counter
from voicepipe.errors import Overload
from voicepipe.server.quota_usage import QuotaUsage
from voicepipe.telemetry.log import log_event

LEASE_S: Final = 30
"""Time after which the slots of a dead process are free again."""

RENEW_S: Final = 10
"""Interval of a process's heartbeat: two failures in a row are tolerated."""

RESERVED_S: Final = 10
"""Lifetime of a reserved slot: a page connects within a second of getting its client secret."""

FULL_WAIT_MS: Final = 5_000
"""`Retry-After` when all slots are taken: sessions last minutes."""

MACHINE: Final = "machine"

RESERVATIONS: Final = "reservations"
"""The owner of reserved slots. No process renews them: they expire."""


class Full(Overload):
    """All slots of this server are taken."""


class Slots:
    """The shared slots, as one process takes them. `run` must run while the process holds any slot."""

    def __init__(self, cluster: Cluster, *, max_sessions: int, node: str = "") -> None:
        """`node`: the machine's name, of several that share the store: each has `max_sessions` slots."""
        self._cluster, self._max_sessions = cluster, max_sessions
        self._machine = f"{MACHINE}/{node}" if node else MACHINE
        self.owner = f"process-{secrets.token_hex(8)}"
        """This process, as the shared store names it."""

        # bounded: sessions that ended while the store was busy, which lasts seconds
        self._unreleased: set[str] = set()

    @asynccontextmanager
    async def slot(self, holder: str, quotas: QuotaUsage) -> AsyncIterator[None]:
        """Take a slot while the block runs. A holder that has reserved one gets that one.

        Raises:
            Full: the machine has no more.
            Overload: the shared store cannot be reached.
            QuotaExceeded: the API key, the project or the user has no more.
        """
        await self._take(holder, quotas, self.owner, LEASE_S)
        try:
            yield
        finally:
            await self._release(holder)

    async def reserve(self, holder: str, quotas: QuotaUsage) -> None:
        """Take a slot that is free again after `RESERVED_S`, unless its session has begun.

        Raises:
            Full, Overload, QuotaExceeded: as in `slot`.
        """
        await self._take(holder, quotas, RESERVATIONS, RESERVED_S)

    async def use_reservation(self, claims: Claims | None) -> str | None:
        """Return the holder of a client secret's reserved slot, to the first session that requests it; None: there is
        none.

        Raises:
            Overload: the shared store cannot be reached.
        """
        now_s = unix_s()
        if claims is None or claims.reserved_until_s <= now_s:
            return None
        name, until_s = counter(claims, "reserved"), claims.reserved_until_s
        used = await self._cluster.count(name, 1, limit=1, until_s=until_s, now_s=now_s)
        return reservation(claims.project, claims.token_id) if used.counted else None

    async def run(self) -> None:
        """Renew this process's slots until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            now_s = unix_s()
            try:
                await self._cluster.renew_slots(self.owner, until_s=now_s + LEASE_S, now_s=now_s)
                for holder in tuple(self._unreleased):
                    await self._release(holder)
            except Overload as busy:
                log_event("slot_renewal_failed", level=logging.WARNING, why=busy.why)

    async def free_owner(self, owner: str) -> None:
        """Free the slots of another process, which has died, before their lease ends.

        Raises:
            Overload: the shared store cannot be reached.
        """
        now_s = unix_s()
        await self._cluster.renew_slots(owner, until_s=now_s, now_s=now_s)

    async def _take(self, holder: str, quotas: QuotaUsage, owner: str, lease_s: int) -> None:
        pools, now_s = {self._machine: self._max_sessions, **quotas.pools}, unix_s()
        full = await self._cluster.take_slots(holder, pools, owner=owner, until_s=now_s + lease_s, now_s=now_s)
        if full == self._machine:
            raise Full(f"Too many sessions on this server (limit {self._max_sessions}).", retry_after_ms=FULL_WAIT_MS)
        if full is not None:
            raise quotas.full(full)

    async def _release(self, holder: str) -> None:
        self._unreleased.add(holder)
        try:
            await self._cluster.release_slots(holder, owner=self.owner)
        except Overload as busy:
            log_event("slot_release_failed", level=logging.WARNING, session=holder, why=busy.why)
        else:
            self._unreleased.discard(holder)


def reservation(project: str, token_id: str) -> str:
    """Return the holder of the slot that is reserved for a client secret."""
    return f"reserved/{project}/{token_id}"
