"""The balancer examples in front of two server processes that share a Redis: a node that dies, stops or is full."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.deploy.balancers import BALANCERS, Balancer
from tests.wiring.test_serve import config_file, lines_until
from tests.wiring.test_takeover import Node, Nodes
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.cluster.redis import open_redis
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.reconnecting_user import ReconnectingUser
from voicepipe.testing.redis import RedisServer, redis_server
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow

MAX_SESSIONS = 3


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that runs."""
    with redis_server() as server:
        yield server


@dataclass
class Cluster:
    """Two nodes behind a balancer, and clients that know only that."""

    nodes: Nodes
    balancer: Balancer
    http: aiohttp.ClientSession
    _stack: AsyncExitStack

    async def call(self, url: str = "", *, resume: bool = False) -> ReconnectingUser:
        """Open a session, through the balancer unless `url` names a node."""
        line = await self.http.ws_connect(f"{url or self.balancer.url}/v1/realtime", max_msg_size=0)
        self._stack.push_async_callback(line.close)
        user = ReconnectingUser(self.http, self.balancer.url, line)
        await user.until("session.created")
        update = {"type": "realtime", "output_modalities": ["text"], "providerData": {"voicepipe": {"resume": resume}}}
        await user.send("session.update", session=update)
        await user.until("session.updated")
        return user

    async def refusal(self) -> tuple[int, str]:
        """Return the status and the code that a new call gets."""
        async with self.http.get(f"{self.balancer.url}/v1/realtime") as answer:
            assert answer.headers["Retry-After"]
            return answer.status, (await answer.json())["error"]["code"]

    async def sessions_at(self, node: Node) -> set[str]:
        """Return the sessions that a node has."""
        async with self.http.get(node.sessions_url) as answer:
            return {each["id"] for each in (await answer.json())["data"]}

    async def node_of(self, user: ReconnectingUser) -> tuple[Node, Node]:
        """Return the node that has the session, and the other one."""
        first, second = self.nodes.one, self.nodes.other
        return (first, second) if user.session_id in await self.sessions_at(first) else (second, first)

    async def until_ready(self, url: str, *, is_ready: bool) -> None:
        """Wait until `/readyz` answers 200, or until it answers 503 or nothing."""

        async def answered() -> bool | None:
            try:
                async with self.http.get(f"{url}/readyz") as answer:
                    found = answer.status == 200
            except aiohttp.ClientConnectorError:
                found = False
            return True if found is is_ready else None

        await eventually(answered)

    def questions(self) -> list[str]:
        """Return what the LLM last read of the user."""
        messages = self.nodes.vendor.llm.received[-1].question["messages"]
        return [each["content"] for each in messages if each["role"] == "user"]


async def started(stack: AsyncExitStack, config: Path, store: str, name: str) -> Node:
    """Start a server process, as an operator would."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VOICEPIPE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voicepipe", "serve", "--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
        env=env | {"VOICEPIPE_CLUSTER__STORE": store},
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.communicate()

    stack.push_async_callback(end)
    return Node(process, (await lines_until(process, "Ctrl-C"))[0].rpartition(" ")[2], name)


@asynccontextmanager
async def running_cluster(balancer: str, folder: Path, redis: RedisServer) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(FakeVendor())
        key = ApiKeys(folder / "keys").create("acme", now_s=unix_s()).text
        nodes = []
        for name in ("one", "other"):
            (folder / name / "data").mkdir(parents=True, mode=0o700)
            shutil.copy(folder / "keys" / "auth.sqlite3", folder / name / "data")  # as the guide says
            server = f"""
                trusted_proxies = ["127.0.0.1"]
                drain_ms = 60000
                max_sessions = {MAX_SESSIONS}
                [cluster]
                name = "{folder.name}"
                node = "{name}"
            """
            nodes.append(await started(stack, config_file(folder / name, vendor, limits=server), redis.url, name))
        where = [node.url.removeprefix("http://") for node in nodes]
        proxy = await stack.enter_async_context(BALANCERS[balancer](folder, where))
        trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=proxy.certificate))
        headers = {"Authorization": f"Bearer {key}"}
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=trusting, headers=headers))
        store = await stack.enter_async_context(open_redis(redis.url, folder.name, answer_ms=10_000))
        one, other = nodes
        cluster = Cluster(Nodes(one, other, vendor, store), proxy, http, stack)
        await cluster.until_ready(proxy.url, is_ready=True)
        yield cluster


@pytest.fixture(params=BALANCERS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> AsyncIterator[Cluster]:
    async with running_cluster(request.param, tmp_path, redis) as running:
        yield running


async def test_calls_are_spread_and_a_full_node_is_passed_over(cluster: Cluster) -> None:
    """By the number of connections; when every node answers 503, the client gets that."""
    one, other = cluster.nodes.one, cluster.nodes.other
    for _ in range(2):
        await cluster.call()
    assert [len(await cluster.sessions_at(node)) for node in (one, other)] == [1, 1]
    for _ in range(MAX_SESSIONS - 1):
        await cluster.call(one.url)  # of these the balancer does not know
    for _ in range(MAX_SESSIONS - 1):
        await cluster.call()
    assert len(await cluster.sessions_at(other)) == MAX_SESSIONS
    assert await cluster.refusal() == (503, "server_overloaded")


async def test_a_call_goes_on_when_its_node_dies(cluster: Cluster) -> None:
    """Its client reconnects through the balancer, at once, and gets the other node."""
    user = await cluster.call(resume=True)
    await user.prompt("Question 1?")
    await cluster.nodes.until_answered(user.session_id, 1)
    node, other = await cluster.node_of(user)
    await node.kill()
    resumed = await user.resume_at(cluster.balancer.url)
    assert (resumed["type"], resumed["moved"]) == ("voicepipe.resumed", True)
    await user.prompt("Question 2?")
    assert cluster.questions() == ["Question 1?", "Question 2?"]
    await cluster.call()  # no new call meets the dead node
    await other.kill()
    assert await cluster.refusal() == (503, "server_overloaded")


async def test_a_node_that_stops_gets_no_new_calls_and_keeps_its_own(cluster: Cluster) -> None:
    """As in a rolling upgrade: SIGTERM, and the calls that run are answered meanwhile."""
    user = await cluster.call()
    node, other = await cluster.node_of(user)
    node.process.terminate()
    await cluster.until_ready(node.url, is_ready=False)
    for _ in range(MAX_SESSIONS):
        await cluster.call()
    assert len(await cluster.sessions_at(other)) == MAX_SESSIONS
    await user.prompt("Are you still there?")
    assert cluster.questions() == ["Are you still there?"]
    assert node.process.returncode is None
