"""Several processes that serve one port: what their clients and their operator must not notice."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil  # type: ignore[import-untyped]
import pytest

from tests.wiring.workers import MAX_SESSIONS, Server, serving, status_of, take_turn, talking
from voicepipe.server.body_limits import ADDRESS_BODIES
from voicepipe.server.gateway.slot_counts import STREAM_CAPS
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, Status, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_sessions_are_shared_out_counted_listed_and_limited_together(server: Server) -> None:
    """Each connection may be answered by either worker: all give the same figures."""
    await server.until_workers(2)
    await server.until_sessions(0)
    async with AsyncExitStack() as stack:
        for _ in range(MAX_SESSIONS):
            await stack.enter_async_context(talking(server))
        assert min(server.connections(0), server.connections(1)) >= 1
        for _ in range(3):
            listed = (await server.read("/v1/sessions?live=true"))["data"]
            assert len({each["id"] for each in listed}) == MAX_SESSIONS
            assert await server.metric("sessions") == MAX_SESSIONS
        assert await status_of(server, server.key) == 503
        assert await status_of(server, server.key) == 503
    await server.until_sessions(0)


async def test_each_worker_returns_the_audio_of_an_item(server: Server) -> None:
    """Of the session of either one, whichever gets the request."""
    await server.until_sessions(0)
    async with AsyncExitStack() as stack:
        users = [await stack.enter_async_context(talking(server)) for _ in range(2)]
        await server.until_sessions(2)
        for n, user in enumerate(users, 1):
            await user.send(
                "session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            )
            await user.send("input_audio_buffer.append", audio=base64.b64encode(bytes(n * 9_600)).decode())
            await user.send("input_audio_buffer.commit")
            item_id = (await user.until("input_audio_buffer.committed"))["item_id"]
            path = f"/v1/sessions/{user.session_id}/items/{item_id}/audio"
            async with aiohttp.ClientSession(headers=server.headers) as http:
                for _ in range(4):
                    async with http.get(server.url + path, headers={"Connection": "close"}) as answer:
                        assert (answer.status, len(await answer.read())) == (200, 44 + n * 9_600)
    await server.until_sessions(0)


async def test_each_worker_calls_the_tools_of_mcp_servers(tmp_path: Path) -> None:
    """Over a connection of its own."""
    async with FakeMcpServer() as mcp, AsyncExitStack() as stack:
        mcp.tools["where"] = FakeMcpTool(lambda _: "here")
        section = f'[mcp.clinic]\nurl = "{mcp.url}"\n[agents.clinic]\nmcp = ["clinic"]\n'
        server = await stack.enter_async_context(serving(tmp_path, section))
        await server.until_workers(2)
        # A worker takes sessions while its connection is still missing, and offers no tools to them.
        await eventually(lambda: both_connected(server))
        for slot in range(MAX_SESSIONS):
            user = await stack.enter_async_context(talking(server, agent="clinic"))
            call = CallCue("where", ("{}",), f"c_{slot}")
            server.vendor.llm.cue(LlmCue(calls=(call,)), LlmCue(tokens=tokens("There.")))
            content = [{"type": "input_text", "text": "Where?"}]
            await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            await user.send("response.create")
            await user.until("response.mcp_call.completed")
            done = await user.until("response.done")
            assert done["response"]["output"][0]["content"][0]["text"] == "There."
        assert min(server.connections(0), server.connections(1)) >= 1
    assert len(mcp.called) == MAX_SESSIONS
    assert sum(method == "initialize" for method, _, _ in mcp.requests) == 2


async def both_connected(server: Server) -> bool | None:
    return sum(each["event"] == "mcp_connected" for each in server.logged) == 2 or None


async def test_a_secret_for_one_session_starts_one(server: Server) -> None:
    await server.until_sessions(0)
    secret = (await server.mint(limits={"max_sessions": 1}))["value"]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(status_of(server, secret), name=f"user {n}") for n in range(4)]
    assert sorted(task.result() for task in tasks) == [101, 401, 401, 401]


async def test_turns_of_a_secret_are_counted_in_both_workers(server: Server) -> None:
    await server.until_sessions(0)
    secret = (await server.mint(limits={"turns": 2}))["value"]
    async with talking(server, key=secret) as first, talking(server, key=secret) as second:
        assert await take_turn(first) == await take_turn(second)
        with pytest.raises(ConnectionError):
            await second.until("never")
        assert second.close_code == 1008
    assert [await status_of(server, secret) for _ in range(2)] == [403, 403]


async def test_a_quota_of_a_user_holds_in_both_workers(server: Server) -> None:
    await server.until_sessions(0)
    secret = (await server.mint(subject="ann"))["value"]
    async with talking(server, key=secret), talking(server, key=secret):
        assert [await status_of(server, secret) for _ in range(2)] == [429, 429]


async def test_a_revocation_ends_the_sessions_of_both_workers(server: Server) -> None:
    await server.until_sessions(0)
    secret = (await server.mint(subject="bob"))["value"]
    async with talking(server, key=secret) as first, talking(server, key=secret) as second:
        async with (
            aiohttp.ClientSession(headers=server.headers) as http,
            http.post(f"{server.url}/v1/realtime/client_secrets/revoke", json={"subject": "bob"}) as answer,
        ):
            assert (await answer.json()) == {"revoked": True}
        for user in (first, second):
            with pytest.raises(ConnectionError):
                await user.until("never")
            assert user.close_code == 4001
    assert await status_of(server, secret) == 401


async def test_concurrent_chats_are_limited_together(server: Server) -> None:
    """With both slots taken on one worker, the other refuses too; a freed slot can be taken there."""
    holds = [Hold(), Hold()]
    server.vendor.llm.cue(*(LlmCue(hold=hold) for hold in holds))

    async def chat() -> int:
        body = {"model": "fake/llm", "messages": [{"role": "user", "content": "Hello."}]}
        async with (
            aiohttp.ClientSession(headers=server.headers) as http,
            http.post(f"{server.url}/v1/chat/completions", json=body) as answer,
        ):
            await answer.read()
            return answer.status

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(chat(), name="chat") for _ in holds]
        for hold in holds:
            async with asyncio.timeout(WAIT_S):
                await hold.reached.wait()
        assert [await chat() for _ in range(3)] == [503, 503, 503]
        for hold in holds:
            hold.release.set()
    assert [task.result() for task in running] == [200, 200]
    assert [await chat() for _ in range(2)] == [200, 200]


async def test_an_address_that_guesses_keys_must_wait_at_both_workers(server: Server) -> None:
    wrong = f"{server.key[:-4]}AAAA"
    assert [await status_of(server, wrong) for _ in range(14)] == [401] * 10 + [429] * 4
    assert await server.metric("workers") == 2  # a right key always passes


async def test_the_connections_of_an_address_are_limited_together(server: Server) -> None:
    """As many as one process would have, in whichever worker they are."""
    await server.until_workers(2)
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    async with AsyncExitStack() as stack:
        writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(60)]
        for writer in writers:
            stack.callback(writer.transport.abort)

        async def are_limited() -> bool | None:
            return server.connections(0) + server.connections(1) == 40 or None

        await eventually(are_limited)
        assert min(server.connections(0), server.connections(1)) >= 10
        n_closed = await server.metric('connections_closed_total{why="address"}')
        assert n_closed in (20, 21)  # this request's connection may have waited too


async def test_the_bodies_of_an_address_are_limited_together(server: Server) -> None:
    """The slowest is answered 503, whichever worker has it; a request that is complete is answered."""
    await server.until_workers(2)
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    lines = "\r\n".join(
        ["POST /v1/chat/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {server.key}", "Content-Length: 99"]
    )
    async with AsyncExitStack() as stack:
        streams = [await asyncio.open_connection(host, int(port)) for _ in range(ADDRESS_BODIES + 3)]
        for _, writer in streams:
            stack.callback(writer.transport.abort)
            writer.write(f"{lines}\r\n\r\n{{".encode())
        answers = [asyncio.create_task(reader.readline()) for reader, _ in streams]

        async def are_limited() -> bool | None:
            return sum(answer.done() for answer in answers) == 3 or None

        await eventually(are_limited)
        assert {answer.result()[:12] for answer in answers if answer.done()} == {b"HTTP/1.1 503"}
        assert (await server.read("/v1/models"))["data"]
        for answer in answers:
            answer.cancel()


async def test_live_streams_are_limited_together(server: Server) -> None:
    await server.until_workers(2)
    async with AsyncExitStack() as stack:
        statuses = []
        for _ in range(STREAM_CAPS.all + 2):
            http = await stack.enter_async_context(aiohttp.ClientSession(headers=server.headers))
            answer = await stack.enter_async_context(http.get(f"{server.url}/v1/turns/stream"))
            statuses.append(answer.status)
        assert statuses == [200] * STREAM_CAPS.all + [503] * 2


async def test_the_live_stream_has_the_turns_of_both_workers_in_one_order(server: Server) -> None:
    """A stream that is opened again, on whichever worker, goes on after its last event."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(streaming(server)) for _ in range(2)]
        users = [await stack.enter_async_context(talking(server)) for _ in range(2)]
        for user in users:
            await take_turn(user)
        seen = [[await stream.turn() for _ in users] for stream in streams]
        assert seen[0] == seen[1]
        assert len({session for _, session in seen[0]}) == 2
        for _ in range(2):
            again = await stack.enter_async_context(streaming(server, after=seen[0][0][0]))
            assert await again.turn() == seen[0][1]
        for stream in streams:
            assert await stream.open_sessions(2) == 2


@dataclass
class Stream:
    answer: aiohttp.ClientResponse
    n_open = 0
    """The number of open sessions, by the latest event that has it."""

    async def next(self) -> tuple[str, str, dict[str, Any]]:
        """The next event: its id, type and data."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WAIT_S):
            while line := (await self.answer.content.readline()).decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
        kind, data = fields.get("event", ""), json.loads(fields.get("data", "{}"))
        self.n_open = data["open"] if kind == "sessions" else self.n_open
        return fields.get("id", ""), kind, data

    async def turn(self) -> tuple[str, str]:
        """The id and the session of the next completed turn."""
        while True:
            id_, kind, data = await self.next()
            if kind == "turn" and data["outcome"] == "completed":
                return id_, str(data["session"])

    async def open_sessions(self, count: int) -> int:
        """Wait for this number, which may have come before."""
        while self.n_open != count:
            await self.next()
        return count


@asynccontextmanager
async def streaming(server: Server, *, after: str = "") -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(headers=server.headers) as http,
        http.get(f"{server.url}/v1/turns/stream", params={"after": after} if after else {}) as answer,
    ):
        yield Stream(answer)


async def test_a_circuit_breaker_that_opens_in_one_worker_opens_in_the_other(tmp_path: Path) -> None:
    """For a model that may take another's place: the worker that has had no session begins with the other one."""
    spare = """
        [agents.spare]
        llm = ["fake/llm", "fake/other"]
    """
    async with serving(tmp_path, spare) as server:
        await server.until_workers(2)
        server.vendor.llm.usual = LlmCue(fault=Status(401))
        async with talking(server, agent="spare") as user:
            await user.send("response.create")
            await user.until("response.done")
            for provider in ("fake/llm", "fake/other"):
                await server.logs("breaker_hinted", stage="llm", provider=provider)


async def test_a_stop_drains_both_workers_and_leaves_no_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, AsyncExitStack() as stack:
        await server.until_workers(2)
        pids = [server.pid(0), server.pid(1)]
        users = [await stack.enter_async_context(talking(server)) for _ in range(2)]
        server.process.send_signal(signal.SIGHUP)
        await eventually(lambda: _said(server, "settings reloaded by 2 of 2 workers"))
        server.process.send_signal(signal.SIGTERM)
        await eventually(lambda: _said(server, "stopping ..."))
        for user in users:
            assert await take_turn(user)
            await user.line.close()
        async with asyncio.timeout(WAIT_S):
            assert await server.process.wait() == 0
        assert not any(psutil.pid_exists(pid) for pid in pids)


async def _said(server: Server, beginning: str) -> bool | None:
    return any(line.startswith(beginning) for line in server.said) or None
