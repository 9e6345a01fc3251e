"""API keys that nodes share: each node has all of them, wherever they are made or revoked, whatever the store loses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.cluster.stores import open_redis
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cli.keys import run as keys_command
from voicepipe.cli.options import KeysOptions
from voicepipe.errors import ConfigError, StoreUnavailable
from voicepipe.testing.redis import RedisServer, redis_server
from voicepipe.wiring.shared_keys import KeySync


class Store:
    """Keys in memory; it counts how often they are read."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.revoked: dict[str, int] = {}
        self.n_changes = self.n_read = 0
        self.error: Exception | None = None
        self.was_read = asyncio.Event()

    async def share_keys(self, keys: Mapping[str, bytes], revoked: Mapping[str, int]) -> None:
        self.keys, self.revoked = {**keys, **self.keys}, {**revoked, **self.revoked}
        self.n_changes += 1

    async def keys_version(self) -> str:
        self.was_read.set()
        if self.error is not None:
            raise self.error
        return str(self.n_changes or "")

    async def shared_keys(self) -> tuple[dict[str, bytes], dict[str, int]]:
        self.n_read += 1
        return self.keys, self.revoked


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[ApiKeys, ApiKeys]:
    return ApiKeys(tmp_path / "one"), ApiKeys(tmp_path / "other")


async def test_a_key_works_and_ends_at_each_node(nodes: tuple[ApiKeys, ApiKeys]) -> None:
    store = Store()
    one, other = (KeySync(keys, store) for keys in nodes)
    new = nodes[0].create("shop", now_s=5)
    for each in (one, other):
        await each.sync()
    assert nodes[1].find(new.text) == new.key
    nodes[1].revoke(new.key.id, now_s=7)
    for each in (other, one):
        await each.sync()
    assert nodes[0].list()[0].revoked_at_s == 7


async def test_where_nothing_has_changed_nothing_is_read(nodes: tuple[ApiKeys, ApiKeys]) -> None:
    store = Store()
    sync = KeySync(nodes[0], store)
    nodes[0].create("shop", now_s=5)
    for _ in range(2):
        await sync.sync()
    n_read = store.n_read
    for _ in range(3):
        await sync.sync()
    assert store.n_read == n_read


async def test_a_store_that_has_lost_its_data_gets_the_keys_again(nodes: tuple[ApiKeys, ApiKeys]) -> None:
    store = Store()
    sync = KeySync(nodes[0], store)
    new = nodes[0].create("shop", now_s=5)
    nodes[0].revoke(new.key.id, now_s=7)
    for _ in range(2):
        await sync.sync()
    store.keys, store.revoked, store.n_changes = {}, {}, 0
    await sync.sync()
    assert (list(store.keys), store.revoked) == ([new.key.id], {new.key.id: 7})
    assert new.text.encode() not in b"".join(store.keys.values())


async def test_what_another_version_has_stored_is_left_out(nodes: tuple[ApiKeys, ApiKeys]) -> None:
    """So is what no version stores: bytes that are no UTF-8, and an instant that no file takes."""
    store = Store()
    other = nodes[1].create("shop", now_s=5)
    row = msgspec.json.encode(nodes[1].rows()[0])
    store.keys, store.n_changes = {"x": b"{}", "y": row, other.key.id: row}, 1
    store.keys["no text"] = row.replace(b"shop", b"sh\xffp").replace(other.key.id.encode(), b"no text")
    store.keys["late"] = row.replace(b":5", b":%d" % 10**26).replace(other.key.id.encode(), b"late")
    assert b"\xff" in store.keys["no text"]
    assert b"000000" in store.keys["late"]
    await KeySync(nodes[0], store).sync()
    assert [key.id for key in nodes[0].list()] == [other.key.id]


@pytest.mark.parametrize(("error", "n_logged"), [(StoreUnavailable(), 0), (ConfigError("locked"), 1)])
async def test_a_failure_is_tried_again(
    nodes: tuple[ApiKeys, ApiKeys], error: Exception, n_logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's own failure is logged elsewhere."""
    store = Store()
    store.error = error
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(KeySync(nodes[0], store).run())
        await store.was_read.wait()
        await asyncio.sleep(0)
        running.cancel()
    assert len(caplog.records) == n_logged


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


async def test_the_first_key_of_an_id_stays(redis: RedisServer) -> None:
    """A version names a state: it changes with each change, and only then."""
    async with open_redis(redis.url, "keys") as store:
        assert (await store.keys_version(), await store.shared_keys()) == ("", ({}, {}))
        await store.share_keys({"a": b"1", "b": b"\x002"}, {"a": 7})
        version = await store.keys_version()
        await store.share_keys({"a": b"other"}, {"a": 9})
        assert await store.keys_version() == version
        assert await store.shared_keys() == ({"a": b"1", "b": b"\x002"}, {"a": 7})
        await store.share_keys({}, {"b": 8})
        assert await store.keys_version() != version
        await store._calls.command("DEL", "voicepipe:{keys}:keys:version")
        await store.share_keys({"a": b"1"}, {})
        assert await store.keys_version()


def test_the_command_line_shares_at_once(
    redis: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store that is away the key is made all the same, and the operator reads that others lack it."""
    monkeypatch.setenv("VOICEPIPE_CLUSTER__STORE", redis.url)
    for name in ("one", "other"):
        keys_command(KeysOptions(action="create", project=name, command="keys", data_dir=str(tmp_path / name)))
    assert {key.project for key in ApiKeys(tmp_path / "other").list()} == {"other", "one"}
    monkeypatch.setenv("VOICEPIPE_CLUSTER__STORE", "redis://127.0.0.1:1/0")
    capsys.readouterr()
    keys_command(KeysOptions(action="create", project="third", command="keys", data_dir=str(tmp_path / "other")))
    printed = capsys.readouterr()
    assert printed.out.startswith("vp_third_")
    assert "other nodes do not have" in printed.err
