"""Servers of several machines, each with a data folder of its own, that share a Redis or a Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.wiring.test_running import Call, chat_in_text, settings_for
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cli.options import RevokeOptions
from voicepipe.cli.revoke import run as revoke
from voicepipe.clock import unix_s
from voicepipe.config import load
from voicepipe.config.settings import ClusterSettings
from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.redis import KINDS, PASSWORD, RedisServer, redis_server
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.wiring import Running, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=KINDS)
def redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server that runs, of each kind."""
    with redis_server(request.param) as server:
        yield server


@dataclass
class Node:
    """A server, and its client."""

    http: aiohttp.ClientSession
    server: Running

    async def request(self, method: str, path: str, body: object = None, *, key: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.http.request(method, self.server.base_url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json() if "json" in answer.content_type else await answer.text()

    async def mint(self, *, session: object = None, **limits: object) -> tuple[str, str]:
        """Return a client secret, and its id."""
        body = {"session": session or {}, "voicepipe": {"limits": limits}}
        status, minted = await self.request("POST", "/v1/realtime/client_secrets", body)
        assert status == 200, minted
        return minted["value"], minted["voicepipe"]["token_id"]

    @asynccontextmanager
    async def call(self, key: str = "") -> AsyncIterator[Call]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.http.ws_connect(f"{self.server.base_url}/v1/realtime", headers=headers) as line:
            yield Call(line)

    async def check(self, key: str) -> tuple[int, str]:
        """Return the status and the code with which the server answers a client secret; 426: it may begin."""
        status, body = await self.request("GET", "/v1/realtime", key=key)
        return status, body["error"]["code"]

    async def failing_stores(self) -> list[str]:
        status, body = await self.request("GET", "/readyz")
        assert status == 200, body
        return [each["store"] for each in body.get("storage", ())]


@asynccontextmanager
async def nodes(folder: Path, redis: RedisServer, n_nodes: int = 2, **more: object) -> AsyncIterator[list[Node]]:
    """Run servers that share a store, and the key that signs client secrets."""
    pem = folder / "tokens.pem"
    key = ed25519.Ed25519PrivateKey.generate()
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    shared = {"cluster.store": redis.url, "cluster.name": folder.name, "server.token_keys": [str(pem)], **more}
    async with AsyncExitStack() as stack:
        vendor, http = await stack.enter_async_context(FakeVendor()), aiohttp.ClientSession()
        await stack.enter_async_context(http)
        found = []
        for number in range(n_nodes):
            settings = settings_for(folder / str(number), vendor, **shared, **{"cluster.node": f"node{number}"})
            found.append(Node(http, await stack.enter_async_context(running(settings))))
        yield found


async def test_a_single_use_secret_is_used_once_on_all_nodes(tmp_path: Path, redis: RedisServer) -> None:
    async with nodes(tmp_path, redis) as (one, other):
        secret, _ = await one.mint(max_sessions=1)
        assert (await other.check(secret))[0] == 426
        async with one.call(secret) as call:
            await chat_in_text(call, "Hello?")
        assert await other.check(secret) == (401, "token_used_up")


async def test_what_one_node_revokes_ends_at_another(tmp_path: Path, redis: RedisServer) -> None:
    """A running session there ends within about a second, and no other begins."""
    async with nodes(tmp_path, redis) as (one, other):
        secret, token_id = await one.mint()
        async with other.call(secret) as call:
            await call.until("session.created")
            status, body = await one.request("POST", "/v1/realtime/client_secrets/revoke", {"token_id": token_id})
            assert (status, body) == (200, {"revoked": True})
            async with asyncio.timeout(WAIT_S):
                while (await call._line.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
        assert await other.check(secret) == (401, "token_revoked")


async def test_a_large_session_config_is_found_by_every_node(tmp_path: Path, redis: RedisServer) -> None:
    """It does not fit into the secret."""
    async with nodes(tmp_path, redis) as (one, other):
        secret, _ = await one.mint(session={"instructions": "Speak of ships. " * 1_000})
        async with other.call(secret) as call:
            created = await call.until("session.created")
    assert created["session"]["instructions"].startswith("Speak of ships.")


async def test_each_node_has_its_own_places_and_a_project_has_one_quota(tmp_path: Path, redis: RedisServer) -> None:
    """`server.max_sessions` holds for a machine; a quota holds for all of them."""
    quota = {"server.max_sessions": 1, "quotas.project_sessions": 2}
    async with nodes(tmp_path, redis, 3, **quota) as (first, second, third), first.call() as call:
        await call.until("session.created")
        status, body = await first.request("GET", "/v1/realtime")
        async with second.call() as there:
            await there.until("session.created")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with third.call():
                    pass
    assert (status, body["error"]["code"], refused.value.status) == (503, "server_overloaded", 429)


async def test_a_command_line_revokes_for_all_nodes(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that runs no server, with the address of the store."""
    async with nodes(tmp_path, redis) as (one, other):
        secret, token_id = await one.mint()
        monkeypatch.setenv("VOICEPIPE_CLUSTER__STORE", redis.url)
        monkeypatch.setenv("VOICEPIPE_CLUSTER__NAME", tmp_path.name)
        options = RevokeOptions(command="revoke", id=token_id, data_dir=str(tmp_path / "elsewhere"))
        await asyncio.to_thread(revoke, options)
        assert await other.check(secret) == (401, "token_revoked")


async def test_every_node_lists_all_nodes_with_their_load(tmp_path: Path, redis: RedisServer) -> None:
    """It is information: a node that can't reach the store lists itself, and says that there may be others."""
    async with nodes(tmp_path, redis) as (one, other), other.call() as call:
        await call.until("session.created")

        async def loads(node: Node) -> list[tuple[str, int, bool]]:
            _, body = await node.request("GET", "/v1/nodes")
            return [(each["node"], each["sessions"], each["draining"]) for each in body["data"]]

        for node in (one, other):

            async def both(node: Node = node) -> bool | None:
                return await loads(node) == [("node0", 0, False), ("node1", 1, False)] or None

            await eventually(both)
        redis.freeze()
        try:
            status, body = await other.request("GET", "/v1/nodes")
            assert (status, body["complete"], [each["node"] for each in body["data"]]) == (200, False, ["node1"])
            await chat_in_text(call, "Hello?")
        finally:
            redis.thaw()


async def test_a_store_that_lost_its_data_is_noticed(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Each process says so once, and runs on."""
    async with nodes(tmp_path, redis, 1) as (node,), node.call() as call:

        async def listed() -> bool | None:
            _, body = await node.request("GET", "/v1/nodes")
            return (body["complete"] and len(body["data"]) == 1) or None

        await eventually(listed)
        redis.kill()
        redis.lose_data()
        await asyncio.to_thread(redis.start)

        async def noticed() -> bool | None:
            return "store_lost_data" in caplog.text or None

        await eventually(noticed)
        await eventually(listed)
        await chat_in_text(call, "Hello?")
    assert caplog.text.count("store_lost_data") == 1


@pytest.mark.parametrize("fault", ["frozen", "killed"])
async def test_calls_go_on_while_the_store_is_away(tmp_path: Path, redis: RedisServer, fault: str) -> None:
    """A running call, a new one, a new secret and a used one; all is counted when the store is back, and once."""
    async with nodes(tmp_path, redis) as (one, other):
        used, _ = await one.mint(max_sessions=1)
        fresh, _ = await one.mint(turns=2)
        async with one.call(used) as running_call:
            await chat_in_text(running_call, "Hello?")
            redis.freeze() if fault == "frozen" else redis.kill()
            try:
                await chat_in_text(running_call, "Still there?")
                async with one.call() as call:
                    await chat_in_text(call, "Hello?")
                async with one.call(fresh) as call:
                    await chat_in_text(call, "Hello?")
                minted, _ = await one.mint(max_sessions=1)
                async with one.call(minted) as call:
                    await chat_in_text(call, "Hello?")
                assert [await one.check(secret) for secret in (used, minted)] == [(401, "token_used_up")] * 2
                assert await one.failing_stores() == ["shared"]
            finally:
                redis.thaw() if fault == "frozen" else await asyncio.to_thread(redis.start)
            await chat_in_text(running_call, "Are you still there?")

        async def well() -> bool | None:
            return not (await one.failing_stores() or await other.failing_stores()) or None

        await eventually(well)

        async def known() -> bool | None:
            return [await other.check(s) for s in (used, minted)] == [(401, "token_used_up")] * 2 or None

        await eventually(known)
        async with other.call(fresh) as call:
            await chat_in_text(call, "Hello?")

        async def spent() -> bool | None:
            return (await one.check(fresh))[1] == "limit_reached" or None

        await eventually(spent)


async def test_secrets_may_be_refused_while_the_store_is_away(tmp_path: Path, redis: RedisServer) -> None:
    """If the operator prefers that: with a time to come back, and calls without a secret go on."""
    async with nodes(tmp_path, redis, 1, **{"server.store_unavailable": "refuse"}) as (node,):
        secret, _ = await node.mint()
        redis.kill()
        try:
            assert await node.check(secret) == (503, "storage_unavailable")
            async with node.call() as call:
                await chat_in_text(call, "Hello?")
        finally:
            await asyncio.to_thread(redis.start)
        await eventually(lambda: _admitted(node, secret))


async def _admitted(node: Node, secret: str) -> bool | None:
    return (await node.check(secret))[0] == 426 or None


async def test_a_server_does_not_start_without_its_store(tmp_path: Path, redis: RedisServer) -> None:
    """Its state would be of one machine alone; the error has the address and no password."""
    redis.kill()
    try:
        with pytest.raises(
            ConfigError, match=f"cluster.store: the server can't be used: 127.0.0.1:{redis.port}"
        ) as met:
            async with nodes(tmp_path, redis, 1):
                pass
    finally:
        await asyncio.to_thread(redis.start)
    assert PASSWORD not in str(met.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("cluster.store", f"http://:{PASSWORD}@x", "begins with redis://"), ("cluster.name", "a b", "without spaces")],
)
def test_wrong_settings_are_named(tmp_path: Path, key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as met:
        load(overrides={key: value}, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert PASSWORD not in str(met.value)


ONE, TWO, THREE = (f"redis://:{PASSWORD}@{number}/0" for number in (1, 2, 3))


def cluster_of(folder: Path, store: str, *snapshot_stores: str) -> ClusterSettings:
    environ = {"VOICEPIPE_CLUSTER__STORE": store, "VOICEPIPE_CLUSTER__SNAPSHOT_STORES": ", ".join(snapshot_stores)}
    return load(environ={"HOME": str(folder), **environ}, folder=folder).cluster


@pytest.mark.parametrize(
    ("store", "snapshot_stores", "words"),
    [
        (ONE, (ONE, TWO), r"an odd number of addresses.*got 2 \(2 different"),
        (ONE, (ONE, TWO, TWO), r"got 3 \(2 different"),
        ("", (ONE, TWO, THREE), "without it"),
        (ONE, (ONE, TWO, f"http://:{PASSWORD}@3"), "addresses that begin with redis://"),
    ],
)
def test_wrong_lists_of_servers_for_snapshots_are_named(
    tmp_path: Path, store: str, snapshot_stores: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as met:
        cluster_of(tmp_path, store, *snapshot_stores)
    assert PASSWORD not in str(met.value)


def test_servers_for_snapshots_are_a_secret_list(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, ONE, ONE, TWO, THREE)
    assert cluster.snapshot_stores == (ONE, TWO, THREE)
    assert PASSWORD not in repr(cluster)


async def test_an_api_key_of_one_node_works_counts_and_ends_at_all(tmp_path: Path, redis: RedisServer) -> None:
    """Made and revoked in one node's file while the servers run; its quota holds for all nodes together."""
    async with nodes(tmp_path, redis, **{"quotas.key_sessions": 1}) as (one, other):
        keys, there = (ApiKeys(tmp_path / number / "data") for number in "01")
        new = await asyncio.to_thread(keys.create, "shop", now_s=unix_s())

        async def arrived() -> bool | None:
            return bool(await asyncio.to_thread(there.list)) or None

        async def is_revoked() -> bool | None:
            return await other.check(new.text) == (401, "api_key_revoked") or None

        await eventually(arrived)
        assert (await other.check("vp_shop_" + "x" * 51))[0] == 401
        async with one.call(new.text) as call:
            await call.until("session.created")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with other.call(new.text):
                    pass
            assert refused.value.status == 429
        await asyncio.to_thread(keys.revoke, new.key.id, now_s=unix_s())
        await eventually(is_revoked)
