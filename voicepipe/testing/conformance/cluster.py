"""Conformance checks of `voicepipe.cluster.port.Cluster`, each a function that takes a way to open an empty cluster.

@pytest.mark.parametrize("check", CONFORMANCE_CHECKS, ids=lambda check: check.__name__)
async def test_my_cluster(check: ConformanceCheck) -> None:
    await check(open_mine)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

from voicepipe.auth.claims import Claims
from voicepipe.cluster.port import MAX_CONFIG_BYTES, Cluster, CountResult, counter
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.errors import ProtocolError
from voicepipe.testing.waiting import WAIT_S

OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]
"""Opens an empty cluster."""

ConformanceCheck = Callable[[OpenCluster], Awaitable[None]]

NOW_S: Final = 1_700_000_000
LATER_S: Final = NOW_S + 600


def claims_of(
    project: str = "shop", *, token_id: str = "t1", subject: str = "anna", issued_at_s: int = NOW_S
) -> Claims:
    """Claims that differ in the fields of revocations and counters."""
    return Claims(
        issuer="i",
        audience="a",
        subject=subject,
        issued_at_s=issued_at_s,
        not_before_s=issued_at_s,
        expires_at_s=issued_at_s + 600,
        token_id=token_id,
        project=project,
    )


async def nothing_is_revoked_at_first(open_cluster: OpenCluster) -> None:
    """An empty cluster has no revocation."""
    async with open_cluster() as cluster:
        assert not await cluster.is_revoked(claims_of())


async def a_revoked_token_is_known(open_cluster: OpenCluster) -> None:
    """A token is revoked by its ID, and no other token of the same project."""
    async with open_cluster() as cluster:
        await cluster.revoke(RevokedToken.at(NOW_S, "shop", "t1"), now_s=NOW_S)
        assert await cluster.is_revoked(claims_of(token_id="t1"))
        assert not await cluster.is_revoked(claims_of(token_id="t2"))


async def a_revoked_subject_loses_what_was_issued_until_then(open_cluster: OpenCluster) -> None:
    """Tokens issued after the revocation are valid."""
    async with open_cluster() as cluster:
        await cluster.revoke(RevokedSubject.at(NOW_S, "shop", "anna"), now_s=NOW_S)
        assert await cluster.is_revoked(claims_of(issued_at_s=NOW_S))
        assert not await cluster.is_revoked(claims_of(issued_at_s=NOW_S + 1))
        assert not await cluster.is_revoked(claims_of(subject="bert"))


async def a_subject_revoked_again_loses_more(open_cluster: OpenCluster) -> None:
    """The later of two revocations of a subject counts."""
    async with open_cluster() as cluster:
        for now_s in (NOW_S, NOW_S + 5):
            await cluster.revoke(RevokedSubject.at(now_s, "shop", "anna"), now_s=now_s)
        assert await cluster.is_revoked(claims_of(issued_at_s=NOW_S + 5))


async def a_project_revokes_only_its_own(open_cluster: OpenCluster) -> None:
    """The same token ID or subject in another project is not affected."""
    async with open_cluster() as cluster:
        await cluster.revoke(RevokedToken.at(NOW_S, "rival", "t1"), now_s=NOW_S)
        await cluster.revoke(RevokedSubject.at(NOW_S, "rival", "anna"), now_s=NOW_S)
        assert not await cluster.is_revoked(claims_of("shop"))


async def a_revocation_is_deleted_when_its_tokens_have_expired(open_cluster: OpenCluster) -> None:
    """Memory is bounded by the number of revocations in force."""
    async with open_cluster() as cluster:
        await cluster.revoke(RevokedToken("shop", "t1", until_s=LATER_S), now_s=NOW_S)
        await cluster.revoke(RevokedToken("shop", "t2", until_s=LATER_S + 600), now_s=LATER_S)
        assert not await cluster.is_revoked(claims_of(token_id="t1"))
        assert await cluster.is_revoked(claims_of(token_id="t2"))


async def a_watch_gives_what_is_in_force_and_then_what_comes(open_cluster: OpenCluster) -> None:
    """A watch gets every revocation, so that a session can be ended; none is missed between two watches."""
    old, new = RevokedToken.at(NOW_S, "shop", "t1"), RevokedSubject.at(NOW_S, "shop", "anna")
    async with open_cluster() as cluster:
        await cluster.revoke(old, now_s=NOW_S)
        async with asyncio.timeout(WAIT_S), aclosing(cluster.revocations()) as watch:
            assert await anext(watch) == old
            await cluster.revoke(new, now_s=NOW_S)
            assert await anext(watch) == new


async def a_waiting_watch_is_woken(open_cluster: OpenCluster) -> None:
    """Each of several watches gets a revocation that came while it waited."""
    revocation = RevokedToken.at(NOW_S, "shop", "t1")
    async with open_cluster() as cluster:

        async def first() -> Revocation:
            async with aclosing(cluster.revocations()) as watch:
                return await anext(watch)

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            watches = [group.create_task(first(), name=f"watch-{n}") for n in range(2)]
            await asyncio.sleep(0)  # both begin to wait
            await cluster.revoke(revocation, now_s=NOW_S)
        assert [watch.result() for watch in watches] == [revocation, revocation]


async def a_config_is_stored_until_its_token_expires(open_cluster: OpenCluster) -> None:
    """A config is gone once its token has expired."""
    async with open_cluster() as cluster:
        await cluster.store_config("c1", b'{"instructions":"hi"}', project="shop", until_s=LATER_S, now_s=NOW_S)
        assert await cluster.config("c1", project="shop", now_s=LATER_S - 1) == b'{"instructions":"hi"}'
        assert await cluster.config("c1", project="shop", now_s=LATER_S) is None
        assert await cluster.config("c2", project="shop", now_s=NOW_S) is None


async def a_config_of_another_project_is_not_there(open_cluster: OpenCluster) -> None:
    """A config of another project is not found, even by its ID."""
    async with open_cluster() as cluster:
        await cluster.store_config("c1", b"{}", project="shop", until_s=LATER_S, now_s=NOW_S)
        assert await cluster.config("c1", project="rival", now_s=NOW_S) is None


async def an_oversized_config_is_refused(open_cluster: OpenCluster) -> None:
    """The holder of a key cannot fill the store with one request."""
    async with open_cluster() as cluster:
        largest = b"x" * MAX_CONFIG_BYTES
        await cluster.store_config("c1", largest, project="shop", until_s=LATER_S, now_s=NOW_S)
        assert await cluster.config("c1", project="shop", now_s=NOW_S) == largest
        too_long = cluster.store_config("c2", largest + b"x", project="shop", until_s=LATER_S, now_s=NOW_S)
        [refused] = await asyncio.gather(too_long, return_exceptions=True)
        assert isinstance(refused, ProtocolError)


async def a_counter_stops_at_its_limit(open_cluster: OpenCluster) -> None:
    """A refused count changes nothing."""
    name = counter(claims_of(), "sessions")
    async with open_cluster() as cluster:
        seen = [await cluster.count(name, 1, limit=2, until_s=LATER_S, now_s=NOW_S) for _ in range(4)]
    assert seen == [
        CountResult(1, counted=True),
        CountResult(2, counted=True),
        CountResult(2, counted=False),
        CountResult(2, counted=False),
    ]


async def of_many_at_once_as_many_count_as_the_limit_lets(open_cluster: OpenCluster) -> None:
    """A single-use token opens one session, however many requests come at the same instant."""
    async with open_cluster() as cluster:
        tries = (cluster.count("single", 1, limit=1, until_s=LATER_S, now_s=NOW_S) for _ in range(20))
        assert sum(result.counted for result in await asyncio.gather(*tries)) == 1


async def what_is_given_back_can_be_counted_again(open_cluster: OpenCluster) -> None:
    """Giving back more than there is leaves nothing below zero."""
    async with open_cluster() as cluster:
        await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
        assert await cluster.count("n", -5, limit=1, until_s=LATER_S, now_s=NOW_S) == CountResult(0, counted=True)
        assert await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S) == CountResult(1, counted=True)


async def a_counter_without_limit_only_counts(open_cluster: OpenCluster) -> None:
    """Amounts of any size are counted, as money is."""
    async with open_cluster() as cluster:
        await cluster.count("usd", 2_500_000_000, limit=None, until_s=LATER_S, now_s=NOW_S)
        result = await cluster.count("usd", 1, limit=None, until_s=LATER_S, now_s=NOW_S)
    assert result == CountResult(2_500_000_001, counted=True)


async def counters_of_other_names_are_others(open_cluster: OpenCluster) -> None:
    """A token's counter is not that of the same token ID in another project."""
    async with open_cluster() as cluster:
        for claims in (claims_of("shop"), claims_of("rival"), claims_of("shop", token_id="t2")):
            result = await cluster.count(counter(claims, "turns"), 1, limit=1, until_s=LATER_S, now_s=NOW_S)
            assert result.counted


async def a_counter_lives_as_long_as_its_longest_count(open_cluster: OpenCluster) -> None:
    """A shorter lifetime given later does not shorten it."""
    async with open_cluster() as cluster:
        await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
        await cluster.count("n", 1, limit=1, until_s=NOW_S + 1, now_s=NOW_S)
        before = await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=LATER_S - 1)
        after = await cluster.count("n", 1, limit=1, until_s=LATER_S + 1, now_s=LATER_S)
    assert (before.counted, after.counted) == (False, True)


async def a_full_pool_takes_no_slot_anywhere(open_cluster: OpenCluster) -> None:
    """A slot is taken in all pools or in none, and the error names the full one."""
    pools = {"machine": 5, "project/shop": 1}
    async with open_cluster() as cluster:
        assert await cluster.take_slots("s1", pools, owner="p", until_s=LATER_S, now_s=NOW_S) is None
        assert await cluster.take_slots("s2", pools, owner="p", until_s=LATER_S, now_s=NOW_S) == "project/shop"
        assert await cluster.slots_taken("machine", now_s=NOW_S) == 1


async def of_many_at_once_as_many_get_slots_as_there_are(open_cluster: OpenCluster) -> None:
    """The limit holds under concurrent requests."""
    async with open_cluster() as cluster:
        tries = (
            cluster.take_slots(f"s{n}", {"machine": 3}, owner="p", until_s=LATER_S, now_s=NOW_S) for n in range(20)
        )
        assert (await asyncio.gather(*tries)).count(None) == 3
        assert await cluster.slots_taken("machine", now_s=NOW_S) == 3


async def a_holder_that_has_its_slots_keeps_them(open_cluster: OpenCluster) -> None:
    """Taking twice takes one slot: a resumed session does not compete with itself."""
    async with open_cluster() as cluster:
        for _ in range(2):
            assert await cluster.take_slots("s1", {"m": 1}, owner="p", until_s=LATER_S, now_s=NOW_S) is None
        assert await cluster.slots_taken("m", now_s=NOW_S) == 1


async def released_slots_are_free(open_cluster: OpenCluster) -> None:
    """A slot is freed in every pool; giving it back twice frees no other session's slot."""
    pools = {"a": 2, "b": 2}
    async with open_cluster() as cluster:
        for holder in ("s1", "s2"):
            await cluster.take_slots(holder, pools, owner="p", until_s=LATER_S, now_s=NOW_S)
        for _ in range(2):
            await cluster.release_slots("s1", owner="p")
        assert [await cluster.slots_taken(pool, now_s=NOW_S) for pool in pools] == [1, 1]


async def slots_that_another_process_took_are_its_own(open_cluster: OpenCluster) -> None:
    """A session that goes on at another node: the first one frees nothing of the second, in pools of both and of one
    alone."""
    async with open_cluster() as cluster:
        for node in ("a", "b"):
            pools = {f"machine/{node}": 1, "project": 1}
            assert await cluster.take_slots("s1", pools, owner=node, until_s=LATER_S, now_s=NOW_S) is None
        pools_of_both = ("machine/a", "machine/b", "project")
        await cluster.release_slots("s1", owner="a")
        assert [await cluster.slots_taken(pool, now_s=NOW_S) for pool in pools_of_both] == [0, 1, 1]
        await cluster.renew_slots("a", until_s=NOW_S, now_s=NOW_S)
        assert [await cluster.slots_taken(pool, now_s=NOW_S) for pool in pools_of_both] == [0, 1, 1]
        await cluster.release_slots("s1", owner="b")
        assert [await cluster.slots_taken(pool, now_s=NOW_S) for pool in pools_of_both] == [0, 0, 0]


async def slots_of_a_dead_process_are_free_after_their_time(open_cluster: OpenCluster) -> None:
    """Slots of a process that stopped renewing are freed; a process that renews in time keeps its own."""
    async with open_cluster() as cluster:
        await cluster.take_slots("s1", {"m": 2}, owner="dead", until_s=LATER_S, now_s=NOW_S)
        await cluster.take_slots("s2", {"m": 2}, owner="alive", until_s=LATER_S, now_s=NOW_S)
        await cluster.renew_slots("alive", until_s=LATER_S + 600, now_s=NOW_S)
        assert await cluster.slots_taken("m", now_s=LATER_S) == 1
        assert await cluster.take_slots("s3", {"m": 2}, owner="new", until_s=LATER_S + 9, now_s=LATER_S) is None


async def a_slot_that_ran_out_is_not_renewed(open_cluster: OpenCluster) -> None:
    """Another process may have taken it, so a pool never holds more than its slots."""
    async with open_cluster() as cluster:
        await cluster.take_slots("s1", {"m": 1}, owner="late", until_s=LATER_S, now_s=NOW_S)
        await cluster.renew_slots("late", until_s=LATER_S + 600, now_s=LATER_S)
        assert await cluster.slots_taken("m", now_s=LATER_S) == 0


CONFORMANCE_CHECKS: Final[tuple[ConformanceCheck, ...]] = (
    nothing_is_revoked_at_first,
    a_revoked_token_is_known,
    a_revoked_subject_loses_what_was_issued_until_then,
    a_subject_revoked_again_loses_more,
    a_project_revokes_only_its_own,
    a_revocation_is_deleted_when_its_tokens_have_expired,
    a_watch_gives_what_is_in_force_and_then_what_comes,
    a_waiting_watch_is_woken,
    a_config_is_stored_until_its_token_expires,
    a_config_of_another_project_is_not_there,
    an_oversized_config_is_refused,
    a_counter_stops_at_its_limit,
    of_many_at_once_as_many_count_as_the_limit_lets,
    what_is_given_back_can_be_counted_again,
    a_counter_without_limit_only_counts,
    counters_of_other_names_are_others,
    a_counter_lives_as_long_as_its_longest_count,
    a_full_pool_takes_no_slot_anywhere,
    of_many_at_once_as_many_get_slots_as_there_are,
    a_holder_that_has_its_slots_keeps_them,
    released_slots_are_free,
    slots_that_another_process_took_are_its_own,
    slots_of_a_dead_process_are_free_after_their_time,
    a_slot_that_ran_out_is_not_renewed,
)
"""All of them."""
