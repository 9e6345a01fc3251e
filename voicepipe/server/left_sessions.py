"""End the records of sessions whose process has died and whose client has not come back."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

import msgspec

from voicepipe.cluster.port import LeftSnapshot, LeftSnapshots
from voicepipe.errors import Overload
from voicepipe.server.context import ServerContext
from voicepipe.server.takeover import RECORDS_S, StoredSession
from voicepipe.session.snapshot import LIFE_S, AgentChanged
from voicepipe.session.snapshot_writer import RENEW_S
from voicepipe.session.unstored_records import ended_records
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import StoreError

LEFT_S: Final = round(2 * RENEW_S)
"""A process has died if its session's snapshot was not written for this time: a live one writes it every `RENEW_S`. The
client has stopped trying to resume long before."""

PAUSE_S: Final = 10.0
"""Time between two searches for such snapshots."""


class LeftSessions(msgspec.Struct, frozen=True):
    """The sessions that died with their process. One process at a time has each; what it does can be repeated."""

    context: ServerContext
    snapshots: LeftSnapshots

    async def run(self) -> None:
        """End their records, until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                while await self.end_one():
                    pass
            except (Overload, StoreError, TimeoutError):
                continue  # the failing store is logged once; another process, or this one, does it later

    async def end_one(self) -> bool:
        """End the records of one session, and delete its snapshot; False: there is none.

        Raises:
            Overload, StoreError, TimeoutError: the store of snapshots or that of records does not answer. The
                snapshot stays.
        """
        lease = secrets.token_hex(8)
        left = await self.snapshots.lease_left_snapshot(after_s=LEFT_S, life_s=LIFE_S, lease=lease)
        if left is None:
            return False
        try:
            await self._end(left)
        except (ValueError, msgspec.MsgspecError) as why:  # a newer voicepipe wrote it, and its nodes read it
            log_event("session_not_taken_over", level=logging.WARNING, why=type(why).__name__)
            return True
        await self.snapshots.delete_left_snapshot(left.session_id, lease=lease)
        return True

    async def _end(self, left: LeftSnapshot) -> None:
        stored = msgspec.json.decode(left.stored, type=StoredSession)
        grant, snapshot = stored.session_grant, stored.snapshot
        agents = [change.agent for change in snapshot.changes if isinstance(change, AgentChanged)]
        store = self.context.records_of(grant, (grant.agent, *agents)[-1], snapshot.began_unix_ms)
        found = ended_records(snapshot)
        for record in found.closed:
            store(record)
        for record in found.open:
            known = await self.context.turns.get(record.id, stored.project)
            if known is None or known.record.outcome is None:
                store(record)
        async with asyncio.timeout(RECORDS_S):
            await self.context.records_written(left.session_id)
        log_event("left_session_ended", session=left.session_id, n_turns=len(found.open))
