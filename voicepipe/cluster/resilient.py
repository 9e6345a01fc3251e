"""Answer from this process's copy while the store is away, and write to the store later.

It wraps any store: the file of one machine, or a store over the network. Uses, spend and revocations of this process
stay in force while the store is away. `unavailable` decides where only the store has the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.clock import unix_s
from voicepipe.cluster.guarded import GuardedStore
from voicepipe.cluster.local_configs import LocalConfig, LocalConfigs
from voicepipe.cluster.local_counts import LocalCounts
from voicepipe.cluster.local_slots import HeldSlots, LocalSlots
from voicepipe.cluster.port import NO_CONFIG, Cluster, CountResult, NodeStore, Unavailable, check_config
from voicepipe.cluster.revocation import Revocation
from voicepipe.cluster.revocation_set import RevocationSet
from voicepipe.cluster.store_calls import StoreCalls
from voicepipe.errors import ConfigError, Overload, StoreUnavailable
from voicepipe.storage import StorageHealth
from voicepipe.values import replace

MAX_REVOCATIONS: Final = 100_000
"""Limit of revocations in this process's copy, about 30 MB."""

MAX_UNWRITTEN: Final = 10_000
"""Limit of revocations not yet written to the store; the next one is refused."""

PROBE: Final = "store/probe"
"""A counter that is written to test whether the store is writable again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResilientOptions:
    """The timeout of the store, and its retries."""

    unavailable: Unavailable = "admit"
    answer_ms: int = 1_000
    """A request that takes longer is answered from the copy, and so are all others until the store answers again."""

    first_pause_ms: int = 250
    last_pause_ms: int = 5_000
    """Longest pause between two retries of a store that is away; the pause is doubled each time up to this."""

    close_ms: int = 2_000
    """How long closing may take to write what the store does not have yet."""

    def __post_init__(self) -> None:
        if min(self.answer_ms, self.first_pause_ms, self.last_pause_ms, self.close_ms) <= 0:
            raise ConfigError(f"store: expected times above 0 ms, got {self}")


@asynccontextmanager
async def open_resilient(
    store: Cluster, health: StorageHealth, options: ResilientOptions | None = None
) -> AsyncIterator[Resilient]:
    """Wrap `store` for the duration of the block; leaving writes what the store does not have yet."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        options = options or ResilientOptions()
        cluster = Resilient(store, health, options, StoreCalls(group, health, options.answer_ms))
        tasks = [group.create_task(work, name="store-standby") for work in (cluster.watch(), cluster.recover())]
        try:
            yield cluster
        except Exception as error:  # raised as it is, not wrapped by the group
            failure = error
        finally:
            for task in tasks:
                task.cancel()
            await cluster.close()
    if failure is not None:
        raise failure


@dataclass(slots=True, eq=False)
class Resilient:
    """The port, in front of a store that may fail. Belongs to one event loop; see `open_resilient`.

    Only `revoke` and `store_config` may still raise `StoreUnavailable`, when their buffer is full. With
    `unavailable="refuse"` so does every method that needs what only the store has.
    """

    _store: Cluster
    _health: StorageHealth
    _options: ResilientOptions
    _calls: StoreCalls
    _revoked: RevocationSet = field(default_factory=lambda: RevocationSet(MAX_REVOCATIONS))
    _unwritten_revocations: dict[Revocation, None] = field(default_factory=dict)  # bounded by MAX_UNWRITTEN
    _counts: LocalCounts = field(default_factory=LocalCounts)
    _configs: LocalConfigs = field(default_factory=LocalConfigs)
    _slots: LocalSlots = field(default_factory=LocalSlots)

    @property
    def node_store(self) -> NodeStore | None:
        """Return what nodes share beside this port; None: the store is of one machine."""
        return GuardedStore(self._store, self._calls) if isinstance(self._store, NodeStore) else None

    # --- unwritten state ----------------------------------------------------------------------

    @property
    def n_unwritten(self) -> int:
        """Return how many entries must still be written to the store."""
        return (
            self._counts.n_unwritten
            + self._configs.n_unwritten
            + len(self._unwritten_revocations)
            + self._slots.n_unwritten
        )

    @property
    def n_lost(self) -> int:
        """Return the counts lost to a full buffer while the store was away, since the process began."""
        return self._counts.n_lost

    # --- the port -----------------------------------------------------------------------------

    async def revoke(self, revocation: Revocation, *, now_s: int) -> bool:
        """As in the port; False while only this process has it."""
        if len(self._unwritten_revocations) >= MAX_UNWRITTEN and revocation not in self._unwritten_revocations:
            raise StoreUnavailable()
        self._unwritten_revocations[revocation] = None
        self._revoked.add(revocation, now_s)
        written = partial(self._drop_unwritten_revocation, revocation)
        try:
            await self._calls.request(self._calls.writes, self._store.revoke(revocation, now_s=now_s), written)
        except StoreUnavailable:
            self._start_recovery()
            return False
        written()
        return True

    async def is_revoked(self, claims: Claims) -> bool:
        """As in the port; while the store is away, from this process's copy."""
        if self._revoked.covers(claims):
            return True
        try:
            return await self._calls.request(self._calls.reads, self._store.is_revoked(claims))
        except StoreUnavailable:
            self._check_admitted()
            return False

    def revocations(self) -> AsyncGenerator[Revocation, None]:
        """As in the port; this process's own revocations come at once, also while the store is away."""
        return self._revoked.watch()

    async def store_config(self, config_id: str, session: bytes, *, project: str, until_s: int, now_s: int) -> None:
        """As in the port; while the store is away, this process keeps the config."""
        check_config(session)
        config = LocalConfig(config_id, session, project, until_s)
        if not self._configs.add_unwritten(config):
            raise StoreUnavailable("unknown", "no room for another session config")
        try:
            await self._calls.request(
                self._calls.writes, self._write_config(config, now_s), partial(self._on_config_written, config)
            )
        except StoreUnavailable:
            self._start_recovery()
        else:
            self._on_config_written(config)

    async def config(self, config_id: str, *, project: str, now_s: int) -> bytes | None:
        """As in the port; while the store is away, a config that only the store has is empty, or refused."""
        known = self._configs.find(config_id, project, now_s)
        if known is not None:
            return known.session
        try:
            return await self._calls.request(
                self._calls.reads, self._store.config(config_id, project=project, now_s=now_s)
            )
        except StoreUnavailable:
            self._check_admitted()
            return NO_CONFIG

    async def count(self, name: str, amount: int, *, limit: int | None, until_s: int, now_s: int) -> CountResult:
        """As in the port; while the store is away, from its last value and the counts here since.

        A cancelled count has still been counted.
        """
        return await self._calls.finish(self._count(name, amount, limit, until_s, now_s))

    async def _count(self, name: str, amount: int, limit: int | None, until_s: int, now_s: int) -> CountResult:
        request = self._store.count(name, amount, limit=limit, until_s=until_s, now_s=now_s)
        breaker = self._calls.writes if amount else self._calls.reads
        try:
            result = await self._calls.request(breaker, request, partial(self._on_late_count, name, amount))
        except StoreUnavailable:
            result = await self._count_here(name, amount, limit, until_s, now_s)
            self._start_recovery()
            return result
        self._counts.set_stored(name, result.total, until_s)
        return replace(result, total=result.total + self._counts.unwritten(name))

    async def take_slots(
        self, holder: str, pools: Mapping[str, int], *, owner: str, until_s: int, now_s: int
    ) -> str | None:
        """As in the port; while the store is away, only this process's slots count."""
        request = self._store.take_slots(holder, pools, owner=owner, until_s=until_s, now_s=now_s)
        try:
            full = await self._calls.request(self._calls.writes, request, lambda _: self._on_late_slots(holder, owner))
        except StoreUnavailable:
            full = self._slots.full_pool(holder, pools, now_s)
            self._start_recovery()
        except asyncio.CancelledError:  # the store may still have taken them
            self._slots.release(holder, owner)
            self._start_recovery()
            raise
        if full is None:
            self._slots.take(holder, HeldSlots(tuple(pools), owner, until_s, until_s - now_s))
        return full

    def _on_late_slots(self, holder: str, owner: str) -> None:
        """Release slots that the store took after the timeout, if their session was refused meanwhile."""
        if not self._slots.holds(holder):
            self._slots.release(holder, owner)
            self._start_recovery()

    async def renew_slots(self, owner: str, *, until_s: int, now_s: int) -> None:
        """As in the port; slots are reported to a store that is away when it is back."""
        self._slots.renew(owner, until_s, now_s)
        try:
            await self._calls.request(self._calls.writes, self._store.renew_slots(owner, until_s=until_s, now_s=now_s))
        except StoreUnavailable:
            self._start_recovery()

    async def release_slots(self, holder: str, *, owner: str) -> None:
        """As in the port."""
        self._slots.release(holder, owner)
        request = self._store.release_slots(holder, owner=owner)
        try:
            await self._calls.request(self._calls.writes, request, partial(self._drop_slots, holder))
        except StoreUnavailable:
            self._start_recovery()
        else:
            self._slots.drop(holder)

    async def slots_taken(self, pool: str, *, now_s: int) -> int:
        """As in the port; while the store is away, those of this process."""
        try:
            return await self._calls.request(self._calls.reads, self._store.slots_taken(pool, now_s=now_s))
        except StoreUnavailable:
            return self._slots.taken(pool, now_s)

    def _start_recovery(self) -> None:
        """Wake the task that writes to the store."""
        self._calls.recovery_needed.set()

    def _check_admitted(self) -> None:
        if self._options.unavailable == "refuse":
            raise StoreUnavailable()

    # --- counting here ------------------------------------------------------------------------

    async def _count_here(self, name: str, amount: int, limit: int | None, until_s: int, now_s: int) -> CountResult:
        if amount:  # with a full disk, reads still work
            try:
                request = self._store.count(name, 0, limit=None, until_s=until_s, now_s=now_s)
                self._counts.set_stored(name, (await self._calls.request(self._calls.reads, request)).total, until_s)
            except StoreUnavailable:
                pass
        if not self._counts.knows(name) and (not amount or limit is not None):
            self._check_admitted()
        return self._counts.count(name, amount, limit=limit, until_s=until_s, now_s=now_s)

    def _on_late_count(self, name: str, amount: int, result: CountResult) -> None:
        """Subtract a count that the store made after the timeout, and that was counted or refused here meanwhile."""
        if result.counted:
            self._counts.mark_written(name, amount, result.total)

    # --- in the background --------------------------------------------------------------------

    async def watch(self) -> None:
        """Add the revocations of other processes to the copy, until cancelled."""
        while True:
            try:
                async for revocation in self._store.revocations():
                    now_s = unix_s()
                    if revocation.until_s > now_s and not self._revoked.knows(revocation):
                        self._revoked.add(revocation, now_s)
            except Overload as gone:
                self._calls.failed(self._calls.reads, gone)
            await asyncio.sleep(self._options.first_pause_ms / 1_000)

    async def recover(self) -> None:
        """Probe a store that is away, and write the missing state when it is back; until cancelled."""
        pause_ms = self._options.first_pause_ms
        while True:
            await self._calls.recovery_needed.wait()
            await self._calls.pause(pause_ms)
            if await self._write_all():
                pause_ms = self._options.first_pause_ms
            else:
                pause_ms = min(2 * pause_ms, self._options.last_pause_ms)

    async def close(self) -> None:
        """Write what the store does not have yet, within `close_ms`; the rest is lost and logged."""
        pause = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_ms / 1_000):
                while self.n_unwritten and not await self._write_all():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(pause.wait(), self._options.first_pause_ms / 1_000)
        left = self._counts.n_unwritten + self._configs.n_unwritten + len(self._unwritten_revocations)
        if left:
            self._health.lost("shared", left, "counts, revocations and session configs that no other process has")
        self._calls.cancel()

    async def _write_all(self) -> bool:
        """Return whether the store now has everything, and is readable and writable. No request waits for this."""
        await self._calls.wait_for_late()
        self._calls.recovery_needed.clear()
        try:
            await self._write_unwritten()
        except Overload as gone:
            self._calls.failed(self._calls.writes, gone)
            return False
        self._calls.worked()
        return True

    async def _write_unwritten(self) -> None:
        now_s, store = unix_s(), self._store
        await self._calls.finish(store.slots_taken(PROBE, now_s=now_s))
        self._calls.reads.is_open = False
        await self._calls.finish(store.count(PROBE, 1, limit=None, until_s=now_s + 60, now_s=now_s))
        for holder, held in self._slots.held():
            await self._write_slots(holder, held)
        for holder, owner in self._slots.released():
            request = store.release_slots(holder, owner=owner)
            await self._calls.finish(request, partial(self._drop_slots, holder))
        # Counts come last, and without a pause after the last one: from then on the store is used again.
        while self._counts.n_unwritten or self._configs.n_unwritten or self._unwritten_revocations:
            await self._write_one(unix_s())

    async def _write_slots(self, holder: str, held: HeldSlots) -> None:
        """Report slots of running sessions: they are taken even if other sessions have filled the pool meanwhile."""
        now_s, unlimited = unix_s(), dict.fromkeys(held.pools, 1_000_000_000)
        until_s = now_s + held.lease_s
        if self._slots.holds(holder):
            await self._calls.finish(
                self._store.take_slots(holder, unlimited, owner=held.owner, until_s=until_s, now_s=now_s)
            )
            self._on_late_slots(holder, held.owner)  # if its session has ended meanwhile

    async def _write_one(self, now_s: int) -> None:
        for revocation in tuple(self._unwritten_revocations)[:1]:
            written = partial(self._drop_unwritten_revocation, revocation)
            await self._calls.finish(self._store.revoke(revocation, now_s=now_s), written)
        config = self._configs.next_unwritten(now_s)
        if config is not None:
            await self._calls.finish(self._write_config(config, now_s), partial(self._on_config_written, config))
        unwritten = self._counts.next_unwritten(now_s)
        if unwritten is not None:
            name, amount, until_s = unwritten
            request = self._store.count(name, amount, limit=None, until_s=until_s, now_s=now_s)
            await self._calls.finish(request, lambda result: self._counts.mark_written(name, amount, result.total))

    def _drop_slots(self, holder: str, _: object = None) -> None:
        if not self._slots.holds(holder):
            self._slots.drop(holder)

    def _drop_unwritten_revocation(self, revocation: Revocation, _: object = None) -> None:
        self._unwritten_revocations.pop(revocation, None)

    async def _write_config(self, config: LocalConfig, now_s: int) -> None:
        await self._store.store_config(
            config.id, config.session, project=config.project, until_s=config.until_s, now_s=now_s
        )

    def _on_config_written(self, config: LocalConfig, _: object = None) -> None:
        self._configs.drop_unwritten(config.id)
        self._configs.add_stored(config)
