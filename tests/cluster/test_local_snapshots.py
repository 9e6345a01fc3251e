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
