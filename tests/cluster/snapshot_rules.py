"""The rules of `SessionSnapshots`, for each implementation."""

from __future__ import annotations

from voicepipe.cluster.port import SessionSnapshots


async def check_one_owner(snapshots: SessionSnapshots) -> None:
    """The last that acquires a snapshot with the right secret owns it: earlier owners can't write or delete it."""

    async def taken(digest: str, owner: str) -> bytes | None:
        return await snapshots.acquire_snapshot("s", digest=digest, owner=owner, next_digest=f"{owner}'s next")

    assert not await snapshots.has_snapshot("s")
    assert await taken("d", "new") is None
    assert await snapshots.store_snapshot("s", b"1", digest="d", owner="old", life_s=60)
    assert await snapshots.store_snapshot("s", b"2", digest="e", owner="old", life_s=60)
    assert not await snapshots.store_snapshot("s", b"3", digest="f", owner="new", life_s=60)
    assert await taken("d", "new") is None, "the latest secret counts"
    owner = "new"
    assert await taken("e", "lost") == b"2"
    assert await taken("e", owner) == b"2", "its answer may have been lost"
    assert not await snapshots.store_snapshot("s", b"3", digest="f", owner="lost", life_s=60)
    assert not await snapshots.store_snapshot("s", b"4", digest="g", owner="old", life_s=60)
    await snapshots.delete_snapshot("s", owner="old")
    assert await snapshots.has_snapshot("s")
    assert await snapshots.store_snapshot("s", b"5", digest="h", owner=owner, life_s=60, previous_digest="e")
    assert await taken("e", owner) == b"5", "the client may not know the next secret"
    assert await snapshots.store_snapshot("s", b"6", digest="h", owner=owner, life_s=60)
    assert await taken("e", "x") is None
    await snapshots.delete_snapshot("s", owner=owner)
    assert not await snapshots.has_snapshot("s")


async def check_next_secret(snapshots: SessionSnapshots) -> None:
    """A process that dies before it writes leaves its secret in the store: the next one is good from the take on, so
    that its client gets it before any write."""
    assert await snapshots.store_snapshot("t", b"1", digest="d", owner="old", life_s=60)
    assert await snapshots.acquire_snapshot("t", digest="d", owner="new", next_digest="e") == b"1"
    assert await snapshots.acquire_snapshot("t", digest="e", owner="third", next_digest="f") == b"1"
    assert await snapshots.acquire_snapshot("t", digest="d", owner="x", next_digest="y") is None, (
        "the client had the next"
    )
