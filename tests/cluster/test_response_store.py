"""The store of responses: its bounds, its owners, and what it does when its file fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from voicepipe.cluster.response_store import FILE_NAME, ResponseStore, StoredResponse
from voicepipe.errors import ProtocolError, StoreUnavailable
from voicepipe.storage import StorageHealth

Open = Callable[..., ResponseStore]


def response(
    name: str, *, owner: str = "a", previous: str | None = None, n_bytes: int = 10, user: str = ""
) -> StoredResponse:
    return StoredResponse(name, owner, "acme", user, previous, b"{" + b" " * (n_bytes - 4) + b"}", b"[]")


@pytest.fixture
async def open_store(tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[ResponseStore] = []

    def opening(*, max_bytes: int = 100, keep_s: int = 60, health: StorageHealth | None = None) -> ResponseStore:
        health = health or StorageHealth(now_ms=lambda: 0)
        opened.append(ResponseStore(tmp_path / FILE_NAME, max_bytes=max_bytes, keep_s=keep_s, health=health))
        return opened[-1]

    yield opening
    for each in opened:
        await each.close()


async def found(store: ResponseStore, *names: str, owner: str = "a", now_s: int = 1) -> list[str]:
    return [name for name in names if await store.find(name, owner, now_s=now_s) is not None]


async def test_a_conversation_is_read_oldest_first_by_each_process(open_store: Open) -> None:
    store, other = open_store(), open_store()
    await store.store(response("r1"), now_s=1)
    await other.store(response("r2", previous="r1"), now_s=1)
    for each in (store, other):
        chain = await each.conversation("r2", "a", now_s=1, max_bytes=100)
        assert [response.id for response in chain] == ["r1", "r2"]
        assert await each.conversation("r2", "b", now_s=1, max_bytes=100) == []
    assert await store.find("r2", "a", now_s=1) == response("r2", previous="r1")


async def test_a_conversation_has_a_size_and_a_beginning(open_store: Open) -> None:
    store = open_store()
    await store.store(response("r1"), now_s=1)
    await store.store(response("r2", previous="r1"), now_s=1)
    await store.store(response("r3", previous="r2"), now_s=1)
    with pytest.raises(ProtocolError) as refused:
        await store.conversation("r3", "a", now_s=1, max_bytes=15)
    assert refused.value.code == "conversation_too_long"
    assert await store.delete("r1", "a")
    assert not await store.delete("r1", "a")
    assert await store.conversation("r3", "a", now_s=1, max_bytes=100) == []


async def test_what_is_not_used_expires_and_a_use_renews_the_conversation(open_store: Open) -> None:
    store = open_store(keep_s=10)
    await store.store(response("r1"), now_s=1)
    await store.store(response("r2", previous="r1"), now_s=2)
    await store.store(response("idle"), now_s=3)
    assert len(await store.conversation("r2", "a", now_s=9, max_bytes=100)) == 2
    assert await found(store, "r1", "r2", "idle", now_s=13) == ["r1", "r2"]
    await store.purge(now_s=13)
    with closing(sqlite3.connect(store._path)) as file:
        assert file.execute("SELECT id FROM responses ORDER BY id").fetchall() == [("r1",), ("r2",)]
        assert file.execute("SELECT * FROM sizes").fetchall() == [("a", 20)]


async def test_above_its_bound_the_largest_owner_loses_what_is_oldest(open_store: Open) -> None:
    store = open_store(max_bytes=40)
    await store.store(response("small", owner="b"), now_s=1)
    for n in range(5):
        await store.store(response(f"r{n}"), now_s=2)
    assert await found(store, *(f"r{n}" for n in range(5))) == ["r2", "r3", "r4"]
    assert await found(store, "small", owner="b") == ["small"]
    assert not await store.store(response("huge", n_bytes=41), now_s=2)
    assert await found(store, "r4") == ["r4"]


async def test_all_of_a_user_are_deleted(open_store: Open) -> None:
    store = open_store()
    assert await store.delete_user("acme", "anna") == 0
    await store.store(response("r1", user="anna"), now_s=1)
    await store.store(response("r2", user="ben"), now_s=1)
    assert await store.delete_user("other", "anna") == 0
    assert await store.delete_user("acme", "anna") == 1
    assert await found(store, "r1", "r2") == ["r2"]


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"keep_s": 0}])
async def test_a_store_without_room_makes_no_file(open_store: Open, bounds: dict[str, int]) -> None:
    store = open_store(**bounds)
    assert not store.is_on
    assert not await store.store(response("r1"), now_s=1)
    await store.purge(now_s=1)
    assert not await store.delete("r1", "a")
    assert await store.conversation("r1", "a", now_s=1, max_bytes=9) == []
    assert not store._path.exists()


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 9")


def garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 100)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [newer, garbage, a_folder])
async def test_a_file_that_fails_is_reported_and_recovers(open_store: Open, spoil: Callable[[Path], None]) -> None:
    health = StorageHealth(now_ms=lambda: 0)
    store = open_store(health=health)
    spoil(store._path)
    with pytest.raises(StoreUnavailable) as failed:
        await store.store(response("r1"), now_s=1)
    assert FILE_NAME in failed.value.detail
    assert [failing.store for failing in health.failing_stores()] == ["responses"]
    store._path.rmdir() if store._path.is_dir() else store._path.unlink()
    assert await store.store(response("r1"), now_s=1)
    assert health.failing_stores() == ()


async def test_the_file_is_for_its_owner_alone(open_store: Open) -> None:
    store = open_store()
    await store.store(response("r1"), now_s=1)
    assert store._path.stat().st_mode & 0o777 == 0o600
