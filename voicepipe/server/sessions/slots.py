"""Places that all processes of a machine share: the limits of sessions per machine and per project."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.errors import Overload
from voicepipe.telemetry.log import log_event

LEASE_S: Final = 30
"""Time after which the places of a dead process are free again."""

RENEW_S: Final = 10
"""Interval of a process's heartbeat: two failures in a row are tolerated."""

FULL_WAIT_MS: Final = 5_000
"""`Retry-After` when all places are taken: sessions last minutes."""

MACHINE: Final = "machine"


class Slots:
    """The shared places, as one process takes them. `keep` must run while the process holds any place."""

    def __init__(self, cluster: Cluster, *, max_sessions: int, max_project_sessions: int) -> None:
        """`max_project_sessions`: 0 means that a project may have all."""
        self._cluster = cluster
        self._max_sessions, self._max_project_sessions = max_sessions, max_project_sessions
        self._owner = f"process-{secrets.token_hex(8)}"
        # bounded: sessions that ended while the store was busy, which lasts seconds
        self._unreleased: set[str] = set()

    @asynccontextmanager
    async def slot(self, session_id: str, project: str) -> AsyncIterator[None]:
        """Take a place while the block runs.

        Raises:
            Overload: the machine or the project has no more, or the shared store cannot be reached.
        """
        pools = {MACHINE: self._max_sessions}
        if self._max_project_sessions:
            pools[f"project/{project}"] = self._max_project_sessions
        now_s = unix_s()
        full = await self._cluster.take_slots(
            session_id, pools, owner=self._owner, until_s=now_s + LEASE_S, now_s=now_s
        )
        if full is not None:
            where = "on this server" if full == MACHINE else f"in project {project!r}"
            raise Overload(f"Too many sessions {where} (limit {pools[full]}).", retry_after_ms=FULL_WAIT_MS)
        try:
            yield
        finally:
            await self._release(session_id)

    async def keep(self) -> None:
        """Renew this process's places until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            now_s = unix_s()
            try:
                await self._cluster.renew_slots(self._owner, until_s=now_s + LEASE_S, now_s=now_s)
                for session_id in tuple(self._unreleased):
                    await self._release(session_id)
            except Overload as busy:
                log_event("slot_renewal_failed", level=logging.WARNING, why=busy.why)

    async def _release(self, session_id: str) -> None:
        self._unreleased.add(session_id)
        try:
            await self._cluster.give_back_slots(session_id)
        except Overload as busy:
            log_event("slot_release_failed", level=logging.WARNING, session=session_id, why=busy.why)
        else:
            self._unreleased.discard(session_id)
