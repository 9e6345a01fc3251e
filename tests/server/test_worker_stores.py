"""The stores in the supervisor's memory that workers share: snapshots of sessions, and hints of routers."""

from __future__ import annotations

import pytest

from tests.cluster.snapshot_rules import check_next_secret, check_one_owner
from tests.server.broker_members import Members
from voicepipe.cluster.port import LeftSnapshot
from voicepipe.errors import StoreUnavailable
from voicepipe.server.workers import link as link_module
from voicepipe.server.workers.hints import WorkerHints
from voicepipe.server.workers.snapshots import WorkerSnapshots

# --- snapshots of sessions ------------------------------------------------------------------------


async def test_snapshots_of_sessions_follow_the_rules(broker_members: Members) -> None:
    texts = WorkerSnapshots(broker_members.join().link)
    await check_one_owner(texts)
    await check_next_secret(texts)


async def test_a_text_outlives_its_worker(broker_members: Members) -> None:
    one, other = broker_members.join(), broker_members.join()
    assert await WorkerSnapshots(one.link).store_snapshot("s", b"1", digest="d", owner="one", life_s=60)
    broker_members.broker.detach(one.seen)
    texts = WorkerSnapshots(other.link)
    assert await texts.has_snapshot("s")
    assert await texts.acquire_snapshot("s", digest="d", owner="other", next_digest="e") == b"1"


async def test_a_worker_ends_what_another_one_left(broker_members: Members) -> None:
    one, other = broker_members.join(), broker_members.join()
    assert await WorkerSnapshots(one.link).store_snapshot("s", b"1", digest="d", owner="one", life_s=60)
    broker_members.broker.detach(one.seen)
    texts = WorkerSnapshots(other.link)
    assert await texts.lease_left_snapshot(after_s=60, life_s=120, lease="l") is None
    assert await texts.lease_left_snapshot(after_s=0, life_s=120, lease="l") == LeftSnapshot("s", b"1")
    await texts.delete_left_snapshot("s", lease="m")
    assert await texts.has_snapshot("s")
    await texts.delete_left_snapshot("s", lease="l")
    assert not await texts.has_snapshot("s")


async def test_a_text_is_not_awaited_where_the_supervisor_is_gone_or_silent(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = broker_members.join(), broker_members.join()
    monkeypatch.setattr(link_module, "ANSWER_S", 0.0)
    with pytest.raises(StoreUnavailable):
        await WorkerSnapshots(one.link).has_snapshot("s")
    other.link.close()
    with pytest.raises(StoreUnavailable):
        await WorkerSnapshots(other.link).store_snapshot("s", b"1", digest="d", owner="o", life_s=60)
    assert one.link._snapshots == other.link._snapshots == {}


# --- hints of routers -----------------------------------------------------------------------------


async def test_hints_of_a_worker_reach_the_others(broker_members: Members) -> None:
    """The last one of each worker and kind; those of a worker that has ended count until they are old."""
    one, other = (WorkerHints(broker_members.join().link) for _ in range(2))
    for body in (b"1", b"2"):
        await one.store_hint("breakers", "one", body, life_s=600)
    await one.store_hint("latency", "one", b"3", life_s=600)
    await other.store_hint("breakers", "other", b"4", life_s=600)
    await until_seen(one, other)
    broker_members.broker.detach(broker_members.members[0].seen)
    found = await other.hints("breakers")
    assert [(each.process, each.body) for each in found] == [("one", b"2"), ("other", b"4")]
    assert [each.body for each in await other.hints("latency")] == [b"3"]
    assert await other.hints("more") == []


async def until_seen(*workers: WorkerHints) -> None:
    """Wait until the supervisor has handled what these workers have sent."""
    for worker in workers:
        await worker.hints("")


async def test_hints_are_not_awaited_where_the_supervisor_is_gone_or_silent(
    broker_members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = broker_members.join(), broker_members.join()
    monkeypatch.setattr(link_module, "ANSWER_S", 0.0)
    with pytest.raises(StoreUnavailable):
        await WorkerHints(one.link).hints("breakers")
    other.link.close()
    with pytest.raises(StoreUnavailable):
        await WorkerHints(other.link).store_hint("breakers", "other", b"1", life_s=60)
    assert one.link._hints == other.link._hints == {}
