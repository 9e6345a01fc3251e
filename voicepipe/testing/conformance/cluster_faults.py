"""Conformance checks of a cluster while its store fails (`voicepipe.cluster.resilient`), for each store and fault.

@pytest.mark.parametrize("check", CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_my_store(check: FaultCheck) -> None:
    await check(open_my_store)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from voicepipe.clock import unix_ms, unix_s
from voicepipe.cluster.port import Cluster, Unavailable, counter
from voicepipe.cluster.resilient import Resilient, ResilientOptions, open_resilient
from voicepipe.cluster.revocation import RevokedSubject, RevokedToken
from voicepipe.errors import StoreUnavailable
from voicepipe.storage import StorageHealth, StoreChange, StoreFailed, StoreLost, StoreRecovered
from voicepipe.testing.conformance.cluster import claims_of
from voicepipe.testing.waiting import WAIT_S, eventually

LIFE_S: Final = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyStore:
    """A store and its fault."""

    open_store: Callable[[], AbstractAsyncContextManager[Cluster]]
    """Opens the same store each time."""

    failing: Callable[[], AbstractContextManager[None]]
    """Makes the open store fail while the block runs."""

    can_read: bool
    """Whether it can still be read meanwhile."""


OpenFaultyStore = Callable[[], AbstractAsyncContextManager[FaultyStore]]
"""Makes an empty store with a fault that has not begun."""

FaultCheck = Callable[[OpenFaultyStore], Awaitable[None]]


@dataclass
class Bench:
    """A resilient cluster before the faulty store, and the reported states of the store."""

    faulty: FaultyStore
    cluster: Resilient
    health: StorageHealth
    changes: list[StoreChange] = field(default_factory=list)

    async def back(self) -> None:
        """Return when all pending changes are in the store, and the store is used again."""

        async def probe() -> bool | None:
            return (not self.health.failing_stores() and not self.cluster.n_unwritten) or None

        await eventually(probe)

    async def total(self, name: str) -> int:
        """Return the store's own content, read through a new connection."""
        async with self.faulty.open_store() as other:
            return (await other.count(name, 0, limit=None, until_s=unix_s() + LIFE_S, now_s=unix_s())).total


@asynccontextmanager
async def bench(open_faulty: OpenFaultyStore, unavailable: Unavailable = "admit") -> AsyncIterator[Bench]:
    """Open a cluster that retries its store every few ms."""
    changes: list[StoreChange] = []
    health = StorageHealth(unix_ms, changes.append)
    options = ResilientOptions(unavailable=unavailable, answer_ms=1_000, first_pause_ms=5, last_pause_ms=20)
    async with open_faulty() as faulty, faulty.open_store() as store, open_resilient(store, health, options) as cluster:
        yield Bench(faulty, cluster, health, changes)


async def _use(cluster: Cluster, name: str, limit: int | None, amount: int = 1) -> bool:
    now_s = unix_s()
    return (await cluster.count(name, amount, limit=limit, until_s=now_s + LIFE_S, now_s=now_s)).counted


async def _slot(cluster: Cluster, holder: str, limit: int) -> str | None:
    now_s = unix_s()
    return await cluster.take_slots(holder, {"m": limit}, owner="p", until_s=now_s + 30, now_s=now_s)


async def a_call_by_an_unknown_client_secret_goes_through(open_faulty: OpenFaultyStore) -> None:
    """With `admit`, no step raises from the token check to the slot."""
    claims, now_s = claims_of(issued_at_s=unix_s()), unix_s()
    async with bench(open_faulty) as faults:
        with faults.faulty.failing():
            assert not await faults.cluster.is_revoked(claims)
            assert await _use(faults.cluster, counter(claims, "turns"), None, 0)
            assert await _slot(faults.cluster, "s1", 5) is None
            assert await _use(faults.cluster, counter(claims, "sessions"), 1)
            await faults.cluster.renew_slots("p", until_s=now_s + 30, now_s=now_s)
            await faults.cluster.release_slots("s1", owner="p")
            assert faults.health.failing_stores()
        await faults.back()
        assert await faults.total(counter(claims, "sessions")) == 1


async def a_token_that_was_used_up_stays_so(open_faulty: OpenFaultyStore) -> None:
    """A token used before the fault is retried during it."""
    async with bench(open_faulty) as faults:
        assert await _use(faults.cluster, "single", 1)
        with faults.faulty.failing():
            assert not await _use(faults.cluster, "single", 1)
        await faults.back()
        assert await faults.total("single") == 1


async def a_token_is_used_up_during_a_failure_too(open_faulty: OpenFaultyStore) -> None:
    """As many concurrent requests succeed as the token has sessions; the store gets each one once."""
    async with bench(open_faulty) as faults:
        with faults.faulty.failing():
            tries = (_use(faults.cluster, "double", 2) for _ in range(20))
            assert sum(await asyncio.gather(*tries)) == 2
        await faults.back()
        assert await faults.total("double") == 2
        assert not await _use(faults.cluster, "double", 2)


async def spending_is_counted_once(open_faulty: OpenFaultyStore) -> None:
    """Spending before, at the start, in the middle and at the end of a fault counts once; so do returned amounts."""
    async with bench(open_faulty) as faults:
        await _use(faults.cluster, "spend", None, 100)
        with faults.faulty.failing():
            await asyncio.gather(*(_use(faults.cluster, "spend", None, 10) for _ in range(10)))
            await _use(faults.cluster, "spend", None, -30)
            result = await faults.cluster.count("spend", 0, limit=None, until_s=unix_s() + LIFE_S, now_s=unix_s())
            assert result.total == 170
        await asyncio.gather(*(_use(faults.cluster, "spend", None, 1) for _ in range(10)))
        await faults.back()
        assert await faults.total("spend") == 180


async def what_is_revoked_during_a_failure_is_revoked_at_once(open_faulty: OpenFaultyStore) -> None:
    """A revocation during a fault takes effect here at once, also for a waiting watch; elsewhere after the fault."""
    now_s = unix_s()
    claims, other = claims_of(issued_at_s=now_s), claims_of(token_id="t2", subject="bert", issued_at_s=now_s)
    async with bench(open_faulty) as faults, aclosing(faults.cluster.revocations()) as watch:
        with faults.faulty.failing():
            assert await faults.cluster.revoke(RevokedToken.at(now_s, "shop", "t1"), now_s=now_s) is False
            await faults.cluster.revoke(RevokedSubject.at(now_s, "shop", "bert"), now_s=now_s)
            assert await faults.cluster.is_revoked(claims)
            assert await faults.cluster.is_revoked(other)
            async with asyncio.timeout(WAIT_S):
                assert (await anext(watch)).covers(claims)
                assert (await anext(watch)).covers(other)
        await faults.back()
        async with faults.faulty.open_store() as elsewhere:
            assert await elsewhere.is_revoked(claims)
            assert await elsewhere.is_revoked(other)


async def what_others_had_revoked_stays_so(open_faulty: OpenFaultyStore) -> None:
    """Revocations received before the fault are known during it."""
    now_s = unix_s()
    claims = claims_of(issued_at_s=now_s)
    async with bench(open_faulty) as faults, aclosing(faults.cluster.revocations()) as watch:
        async with faults.faulty.open_store() as elsewhere:
            await elsewhere.revoke(RevokedToken.at(now_s, "shop", "t1"), now_s=now_s)
        async with asyncio.timeout(WAIT_S):
            assert (await anext(watch)).covers(claims)
        with faults.faulty.failing():
            assert await faults.cluster.is_revoked(claims)


async def a_locally_stored_config_is_found(open_faulty: OpenFaultyStore) -> None:
    """Data stored before or during the fault; and the store has both when it is back."""
    now_s = unix_s()
    async with bench(open_faulty) as faults:
        more = {"project": "shop", "now_s": now_s}
        await faults.cluster.store_config("c1", b'{"a":1}', project="shop", until_s=now_s + LIFE_S, now_s=now_s)
        with faults.faulty.failing():
            await faults.cluster.store_config("c2", b'{"a":2}', project="shop", until_s=now_s + LIFE_S, now_s=now_s)
            found = [await faults.cluster.config(name, project="shop", now_s=now_s) for name in ("c1", "c2")]
            assert found == [b'{"a":1}', b'{"a":2}']
            assert await faults.cluster.config("c2", project="rival", now_s=now_s) in (None, b"{}")
        await faults.back()
        async with faults.faulty.open_store() as elsewhere:
            assert await elsewhere.config("c1", project="shop", now_s=now_s) == b'{"a":1}'
            assert await elsewhere.config("c2", project=str(more["project"]), now_s=now_s) == b'{"a":2}'


async def slots_are_counted_locally_and_reported_later(open_faulty: OpenFaultyStore) -> None:
    """A full pool is full during a fault too; a session that ends frees its slot; later the store has the rest."""
    async with bench(open_faulty) as faults:
        assert await _slot(faults.cluster, "before", 2) is None
        with faults.faulty.failing():
            assert await _slot(faults.cluster, "during", 2) is None
            assert await _slot(faults.cluster, "late", 2) == "m"
            await faults.cluster.release_slots("before", owner="p")
            assert await _slot(faults.cluster, "late", 2) is None
        await faults.back()
        async with faults.faulty.open_store() as elsewhere:
            assert await elsewhere.slots_taken("m", now_s=unix_s()) == 2
        assert await _slot(faults.cluster, "more", 2) == "m"


async def what_only_the_store_knows_may_be_refused(open_faulty: OpenFaultyStore) -> None:
    """With `refuse`, the error text names no file. Data known to this process is used, and API keys need no store."""
    now_s = unix_s()
    async with bench(open_faulty, "refuse") as faults:
        assert await _use(faults.cluster, "known", 2)
        with faults.faulty.failing():
            assert await _slot(faults.cluster, "s1", 5) is None
            assert await _use(faults.cluster, "known", 2)
            assert not await _use(faults.cluster, "known", 2)
            assert await _use(faults.cluster, "running", None, 3)
            request = (
                faults.cluster.is_revoked(claims_of(issued_at_s=now_s)),
                faults.cluster.config("c1", project="shop", now_s=now_s),
                faults.cluster.count("unknown", 1, limit=1, until_s=now_s + LIFE_S, now_s=now_s),
            )
            answers = await asyncio.gather(*request, return_exceptions=True)
            refused = [str(answer) for answer in answers if isinstance(answer, StoreUnavailable)]
            assert len(refused) == (0 if faults.faulty.can_read else 3), answers
            assert set(refused) <= {"The server can't look that up at the moment."}
        await faults.back()
        assert await faults.total("running") == 3


async def a_fault_and_its_end_are_reported_once(open_faulty: OpenFaultyStore) -> None:
    """A fault and its end are each reported once, for any number of sessions."""
    async with bench(open_faulty) as faults:
        with faults.faulty.failing():
            await asyncio.gather(*(_use(faults.cluster, f"n{number}", None) for number in range(30)))
            assert [failing.store for failing in faults.health.failing_stores()] == ["shared"]
        await faults.back()
        assert [type(change) for change in faults.changes] == [StoreFailed, StoreRecovered]


async def leaving_during_a_failure_logs_what_is_lost(open_faulty: OpenFaultyStore) -> None:
    """Closing during a fault reports the counts that the store never received."""
    changes: list[StoreChange] = []
    health = StorageHealth(unix_ms, changes.append)
    options = ResilientOptions(answer_ms=100, first_pause_ms=5, last_pause_ms=20, close_ms=50)
    async with open_faulty() as faulty, faulty.open_store() as store:
        with faulty.failing():
            async with open_resilient(store, health, options) as cluster:
                await _use(cluster, "n", None)
    assert [change.count for change in changes if isinstance(change, StoreLost)] == [1]


CONFORMANCE_CHECKS: Final[tuple[FaultCheck, ...]] = (
    a_call_by_an_unknown_client_secret_goes_through,
    a_token_that_was_used_up_stays_so,
    a_token_is_used_up_during_a_failure_too,
    spending_is_counted_once,
    what_is_revoked_during_a_failure_is_revoked_at_once,
    what_others_had_revoked_stays_so,
    a_locally_stored_config_is_found,
    slots_are_counted_locally_and_reported_later,
    what_only_the_store_knows_may_be_refused,
    a_fault_and_its_end_are_reported_once,
    leaving_during_a_failure_logs_what_is_lost,
)
