"""The snapshots of sessions that the workers of one server share: in the supervisor's memory, never on a disk."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.cluster.port import LeftSnapshot
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import (
    AcquireSnapshot,
    DeleteLeftSnapshot,
    DeleteSnapshot,
    HasSnapshot,
    LeaseLeftSnapshot,
    StoreSnapshot,
)


class WorkerSnapshots(Struct, frozen=True):
    """Implements `SessionSnapshots` and `LeftSnapshots`: another worker goes on with the sessions of one that has died,
    or ends their records.

    Each method raises `StoreUnavailable` when the supervisor does not answer.
    """

    link: WorkerLink

    async def has_snapshot(self, session_id: str) -> bool:
        return (await self.link.request_snapshot(HasSnapshot(0, session_id))).is_done

    async def store_snapshot(
        self, session_id: str, snapshot: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        request = StoreSnapshot(0, session_id, snapshot, digest, owner, life_s, previous_digest)
        return (await self.link.request_snapshot(request)).is_done

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        return (await self.link.request_snapshot(AcquireSnapshot(0, session_id, digest, owner, next_digest))).snapshot

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        await self.link.request_snapshot(DeleteSnapshot(0, session_id, owner))

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        result = await self.link.request_snapshot(LeaseLeftSnapshot(0, after_s, life_s, lease))
        return None if result.snapshot is None else LeftSnapshot(result.session, result.snapshot)

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        await self.link.request_snapshot(DeleteLeftSnapshot(0, session_id, lease))
