"""How long the snapshots of sessions stay in memory, and how many."""

from __future__ import annotations

from voicepipe.cluster.local_snapshots import LocalSnapshots


def store(
    snapshots: LocalSnapshots, session: str, snapshot: bytes = b"1", *, owner: str = "o", now_ms: int = 0
) -> bool:
    return snapshots.store(session, snapshot, digest="d", owner=owner, life_s=60, previous_digest="", now_ms=now_ms)


def test_a_text_expires_and_each_write_gives_it_a_new_life() -> None:
    """An expired one has no owner any more, and takes no memory from the next write on."""
    snapshots = LocalSnapshots()
    for session in ("one", "other"):
        assert store(snapshots, session)
    assert store(snapshots, "one", now_ms=59_999)
    assert not snapshots.has("other", now_ms=60_000)
    assert snapshots.acquire("other", digest="d", owner="p", next_digest="e", now_ms=60_000) is None
    assert snapshots.has("one", now_ms=119_998)
    assert store(snapshots, "new", now_ms=60_000)
    assert list(snapshots._snapshots) == ["one", "new"]
    assert store(snapshots, "one", owner="p", now_ms=119_999)


def test_the_text_that_was_written_longest_ago_is_dropped_when_memory_is_full() -> None:
    snapshots = LocalSnapshots(max_bytes=10)
    for session in ("one", "other", "one"):
        assert store(snapshots, session, b"1234")
    assert store(snapshots, "new", b"1234")
    assert not snapshots.has("other", now_ms=0)
    assert snapshots.has("one", now_ms=0)
    assert store(snapshots, "new", b"12345678901"), "too long for all memory"
    assert snapshots._snapshots == {}
    assert snapshots._n_bytes == 0


def lease(snapshots: LocalSnapshots, *, now_ms: int, name: str = "l") -> str | None:
    left = snapshots.lease_left(after_s=10, life_s=60, lease=name, now_ms=now_ms)
    return None if left is None else left.session_id


def test_one_process_at_a_time_gets_a_snapshot_that_no_process_writes() -> None:
    """Each once, the one written longest ago first. None is deleted that was written, taken or leased since."""
    snapshots = LocalSnapshots()
    assert store(snapshots, "one", now_ms=0)
    assert store(snapshots, "other", now_ms=1)
    assert lease(snapshots, now_ms=9_999) is None
    assert [lease(snapshots, now_ms=10_001) for _ in range(3)] == ["one", "other", None]
    snapshots.delete_left("one", lease="of another process")
    assert snapshots.has("one", now_ms=70_000), "a lease gives it a new life"
    snapshots.delete_left("one", lease="l")
    assert not snapshots.has("one", now_ms=70_000)
    assert lease(snapshots, now_ms=20_001, name="m") == "other", "the process with the lease has died"
    snapshots.delete_left("other", lease="l")
    assert store(snapshots, "other", now_ms=20_002)
    snapshots.delete_left("other", lease="m")
    assert snapshots.has("other", now_ms=20_002)


def test_an_acquired_snapshot_is_not_left() -> None:
    snapshots = LocalSnapshots()
    assert store(snapshots, "one", now_ms=0)
    assert lease(snapshots, now_ms=10_000) == "one"
    assert snapshots.acquire("one", digest="d", owner="p", next_digest="e", now_ms=15_000) == b"1"
    snapshots.delete_left("one", lease="l")
    assert lease(snapshots, now_ms=24_999) is None
    assert lease(snapshots, now_ms=25_000) == "one"


def test_an_expired_snapshot_is_not_left() -> None:
    snapshots = LocalSnapshots()
    assert store(snapshots, "one", now_ms=0)
    assert lease(snapshots, now_ms=60_000) is None
