"""Share state between nodes over a store that may be away, behind circuit breakers. Snapshots have a breaker of their
own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from voicepipe.clock import monotonic_ms
from voicepipe.cluster.port import Hint, LeftSnapshot, NodeStore, Snapshots
from voicepipe.cluster.store_calls import PROBE_PAUSE_MS, StoreCalls
from voicepipe.errors import StoreUnavailable

T = TypeVar("T")

LOOK_UP_MS: Final = 1_500
"""Time limit for finding the session of a resume. A store that answers again by then does not lose the client."""

PROBE: Final = "store/probe"
"""A session that no store has."""


class GuardedStore(Struct, frozen=True):
    """The port of what nodes share. While the store is away each method fails at once, except for the look-ups of a
    resume: these wait for the store."""

    store: NodeStore
    calls: StoreCalls
    look_up_ms: int = LOOK_UP_MS

    @property
    def snapshots(self) -> Snapshots:
        """Return this store: requests for snapshots pass its circuit breakers."""
        return self

    # --- snapshots of sessions ----------------------------------------------------------------------

    async def has_snapshot(self, session_id: str) -> bool:
        return await self._looked_up(lambda: self.store.snapshots.has_snapshot(session_id))

    async def store_snapshot(
        self, session_id: str, snapshot: bytes, *, digest: str, owner: str, life_s: int, previous_digest: str = ""
    ) -> bool:
        request = self.store.snapshots.store_snapshot(
            session_id, snapshot, digest=digest, owner=owner, life_s=life_s, previous_digest=previous_digest
        )
        return await self.calls.request(self.calls.snapshots, request)

    async def acquire_snapshot(self, session_id: str, *, digest: str, owner: str, next_digest: str) -> bytes | None:
        secrets = {"digest": digest, "owner": owner, "next_digest": next_digest}
        return await self._looked_up(lambda: self.store.snapshots.acquire_snapshot(session_id, **secrets))

    async def delete_snapshot(self, session_id: str, *, owner: str) -> None:
        await self.calls.request(self.calls.snapshots, self.store.snapshots.delete_snapshot(session_id, owner=owner))

    async def lease_left_snapshot(self, *, after_s: int, life_s: int, lease: str) -> LeftSnapshot | None:
        request = self.store.snapshots.lease_left_snapshot(after_s=after_s, life_s=life_s, lease=lease)
        return await self.calls.request(self.calls.snapshots, request)

    async def delete_left_snapshot(self, session_id: str, *, lease: str) -> None:
        request = self.store.snapshots.delete_left_snapshot(session_id, lease=lease)
        await self.calls.request(self.calls.snapshots, request)

    # --- announcements, events, hints -----------------------------------------------------------

    async def announce(self, process: str, facts: bytes, *, life_s: int) -> str:
        return await self._requested(self.store.announce(process, facts, life_s=life_s))

    async def announced(self) -> list[bytes]:
        return await self._requested(self.store.announced())

    async def send_events(self, events: Sequence[bytes]) -> None:
        await self._requested(self.store.send_events(events))

    async def events_after(self, last_id: str, *, limit: int, requested_s: int) -> tuple[str, list[bytes]]:
        return await self._requested(self.store.events_after(last_id, limit=limit, requested_s=requested_s))

    async def are_events_requested(self) -> bool:
        return await self._requested(self.store.are_events_requested())

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        await self._requested(self.store.store_hint(kind, process, body, life_s=life_s))

    async def hints(self, kind: str) -> list[Hint]:
        return await self._requested(self.store.hints(kind))

    # --- API keys -------------------------------------------------------------------------------

    async def share_keys(self, keys: Mapping[str, bytes], revoked: Mapping[str, int]) -> None:
        await self._requested(self.store.share_keys(keys, revoked))

    async def keys_version(self) -> str:
        return await self._requested(self.store.keys_version())

    async def shared_keys(self) -> tuple[dict[str, bytes], dict[str, int]]:
        return await self._requested(self.store.shared_keys())

    # --------------------------------------------------------------------------------------------

    async def _requested(self, request: Coroutine[Any, Any, T]) -> T:
        return await self.calls.request(self.calls.shared, request)

    async def _looked_up(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the store's answer; while the store is away, wait for it for `look_up_ms`.

        Raises:
            StoreUnavailable: it did not come back in that time.
        """
        until_ms = monotonic_ms() + self.look_up_ms
        while True:
            await self.calls.wait_until_back(self.calls.snapshots, self._probe, until_ms)
            try:
                return await self.calls.first_answer(self.calls.snapshots, request, until_ms)
            except StoreUnavailable:
                if monotonic_ms() >= until_ms:
                    raise
                # It may answer the probe at once and refuse this each time, as a store that takes no writes does.
                await asyncio.sleep(PROBE_PAUSE_MS / 1_000)

    async def _probe(self) -> object:
        return await self.store.snapshots.has_snapshot(PROBE)
