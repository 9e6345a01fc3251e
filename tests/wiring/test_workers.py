"""Several processes that serve one port: what their clients and their operator must not notice."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from tests.wiring.test_serve import config_file
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, tokens
from voicepipe.testing.fakes.mcp_server import FakeMcpServer, FakeMcpTool
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.reconnecting_user import ReconnectingUser
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

MAX_SESSIONS = 4


LIMITS = f"""
        max_sessions = {MAX_SESSIONS}
        max_chats = 2
        drain_ms = 2000
        item_audio_s = 10
        [quotas]
        user_sessions = 2
"""


@dataclass
class Server:
    """A server of two workers."""

    process: asyncio.subprocess.Process
    vendor: FakeVendor
    key: str = ""
    url: str = ""
    said: list[str] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def take_log(self, line: str) -> None:
        """Take a line of stderr: nothing but log events belongs there."""
        assert line.startswith("{"), line
        self.logged.append(json.loads(line))

    def pid(self, worker: int) -> int:
        """The process of a worker, as last started."""
        started = (each for each in reversed(self.logged) if each["event"] == "worker_started")
        return next(int(each["pid"]) for each in started if each["worker"] == worker)

    async def logs(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait for a log event with these fields."""

        async def find() -> dict[str, Any] | None:
            return next((each for each in self.logged if {"event": event, **fields}.items() <= each.items()), None)

        return await eventually(find)

    async def read(self, path: str, **more: Any) -> Any:
        """Get an answer on a connection of its own."""
        async with (
            aiohttp.ClientSession(headers=self.headers) as http,
            http.get(f"{self.url}{path}", **more) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await (answer.json() if answer.content_type == "application/json" else answer.text())

    async def metric(self, name: str) -> float:
        """The value of a metric."""
        text = await self.read("/metrics")
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"voicepipe_{name} "))

    async def mint(self, **voicepipe: object) -> dict[str, Any]:
        """Mint a client secret."""
        async with (
            aiohttp.ClientSession(headers=self.headers) as http,
            http.post(f"{self.url}/v1/realtime/client_secrets", json={"voicepipe": voicepipe}) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return dict(await answer.json())

    async def until_sessions(self, count: int) -> None:
        """Wait until so many sessions have their slots."""

        async def probe() -> bool | None:
            return await self.metric("sessions") == count or None

        await eventually(probe)

    async def until_workers(self, n: int) -> None:
        """Wait until so many workers take connections: before that the others get all."""

        async def probe() -> bool | None:
            return await self.metric("workers") == n or None

        await eventually(probe)

    def connections(self, worker: int) -> int:
        """The number of connections to the port that a worker has."""
        port = int(self.url.rpartition(":")[2])
        found = psutil.Process(self.pid(worker)).net_connections("tcp")
        return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in found)


@asynccontextmanager
async def serving(folder: Path, more: str = "", *files: str) -> AsyncIterator[Server]:
    async with FakeVendor() as vendor:
        (folder / "data").mkdir(mode=0o700)
        key = ApiKeys(folder / "data").create("acme", now_s=1, scopes=("realtime", "tokens", "chat", "operate_all"))
        path = config_file(folder, vendor, limits=LIMITS + more)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voicepipe", "serve", *files, "--workers", "2", "--config", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("VOICEPIPE_")},
        )
        server = Server(process, vendor, key.text)
        try:
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(_read_lines(process.stdout, server.said.append), name="stdout")]
                readers += [group.create_task(_read_lines(process.stderr, server.take_log), name="stderr")]
                server.url = await eventually(lambda: _address(server))
                yield server
                for reader in readers:
                    reader.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
                async with asyncio.timeout(WAIT_S):
                    await process.wait()


async def _read_lines(stream: asyncio.StreamReader | None, take: Any) -> None:
    assert stream is not None
    while line := await stream.readline():
        take(line.decode().rstrip())


async def _address(server: Server) -> str | None:
    assert server.process.returncode is None, server.logged
    is_ready = any(line.startswith("Ctrl-C") for line in server.said)
    n_ready = sum(each["event"] == "worker_started" for each in server.logged)
    return server.said[0].rpartition(" ")[2] if is_ready and n_ready == 2 else None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("workers")) as server:

        async def both() -> bool | None:
            return (await server.metric("workers") == 2 and len(await server.read("/v1/providers")) > 0) or None

        await eventually(both)
        yield server


@asynccontextmanager
async def talking(
    server: Server, *, key: str = "", resumable: bool = False, agent: str = "default"
) -> AsyncIterator[ReconnectingUser]:
    """An open session."""
    headers = {"Authorization": f"Bearer {key or server.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        line = await http.ws_connect(f"{server.url}/v1/realtime?agent={agent}", max_msg_size=0)
        user = ReconnectingUser(http, server.url, line)
        await user.until("session.created")
        session: dict[str, Any] = {"type": "realtime", "output_modalities": ["text"]}
        if resumable:
            session |= {"providerData": {"voicepipe": {"resume": True}}}
        await user.send("session.update", session=session)
        await user.until("session.updated")
        yield user
        for each in user.lines:
            await each.close()


async def take_turn(user: ReconnectingUser) -> str:
    """Have the agent answer; return its text."""
    content = [{"type": "input_text", "text": "What time is it?"}]
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await user.send("response.create")
    created = await user.until("response.created")
    while (done := await user.until("response.done"))["response"]["id"] != created["response"]["id"]:
        pass  # the worker that goes on with a session ends the response of the one that died
    assert done["response"]["status"] == "completed"
    return str(done["response"]["output"][0]["content"][0]["text"])


async def status_of(server: Server, key: str) -> int:
    """The status with which a session is refused; 101: it is not."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
        try:
            line = await http.ws_connect(f"{server.url}/v1/realtime")
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status
        await line.close()
        return 101


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


async def test_a_session_is_resumed_through_the_other_worker_and_outlives_it(server: Server) -> None:
    """The connection is the other worker's, the session stays where it was: the death of the other worker is a broken
    connection, and no more. A worker of the same number is back soon."""
    await server.until_sessions(0)
    async with talking(server, resumable=True) as user:
        text = await take_turn(user)
        worker = 0 if await holds_session(server, 0, user) else 1
        other = 1 - worker
        before = server.connections(other)
        await user.break_connection()
        for _ in range(4):  # until the connection is the other worker's
            await user.resume()
            if server.connections(other) > before:
                break
            await user.break_connection()
        assert server.connections(other) > before
        assert await take_turn(user) == text
        pid = server.pid(other)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionError):
            await user.until("never")
        await server.logs("worker_ended", pid=pid, status=-signal.SIGKILL)
        await user.resume()
        assert await take_turn(user) == text
        assert len((await server.read("/v1/sessions?live=true"))["data"]) == 1

        async def both() -> bool | None:
            return await server.metric("workers") == 2 or None

        await eventually(both)
        refused = await user.request_resume("wrong", None)
        assert refused["error"]["code"] == "resume_refused"


async def holds_session(server: Server, worker: int, user: ReconnectingUser) -> bool:
    """Whether the user's only connection is this worker's. False while that worker is started again."""
    connection = user.line._response.connection
    assert connection is not None
    assert connection.transport is not None
    port = connection.transport.get_extra_info("sockname")[1]
    try:
        found = psutil.Process(server.pid(worker)).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(each.raddr and each.raddr.port == port for each in found)


async def test_only_the_users_of_a_dead_worker_notice_and_their_places_are_free(server: Server) -> None:
    await server.until_workers(2)
    await server.until_sessions(0)
    opened = await server.metric("sessions_opened_total")
    async with AsyncExitStack() as stack:
        users = [await stack.enter_async_context(talking(server)) for _ in range(MAX_SESSIONS)]
        of_first = [user for user in users if await holds_session(server, 0, user)]
        others = [user for user in users if user not in of_first]
        assert await server.metric("sessions_opened_total") == opened + MAX_SESSIONS
        assert of_first
        assert others
        pid = server.pid(0)
        os.kill(pid, signal.SIGKILL)
        for user in of_first:
            with pytest.raises(ConnectionError):
                await user.until("never")
        await server.logs("worker_ended", pid=pid)
        for user in of_first:
            assert (await user.request_resume("any", None))["error"]["code"] == "session_lost"
        for user in others:
            await take_turn(user)
        for _ in of_first:  # not only after the lease of 30 s
            await stack.enter_async_context(talking(server))
        assert await status_of(server, server.key) == 503
        assert await server.metric("sessions_opened_total") >= opened + MAX_SESSIONS  # no sum falls: no false reset
    await server.until_sessions(0)


async def test_the_session_of_a_dead_worker_goes_on_in_another(server: Server) -> None:
    """With all that was said, as one session of the limits, and with no service beside the server."""
    await server.until_workers(2)
    await server.until_sessions(0)
    async with talking(server, resumable=True) as user:
        text = await take_turn(user)
        worker = 0 if await holds_session(server, 0, user) else 1
        session_id, pid = user.session_id, server.pid(worker)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionError):
            await user.until("never")
        await server.logs("worker_ended", pid=pid)
        refused = await user.request_resume("wrong", None)
        assert refused["error"]["code"] in ("session_lost", "resume_refused")
        item_id = next(each["item"]["id"] for each in user.events if each["type"] == "response.output_item.done")
        named = {"received_item_id": item_id, "received_text": text, "received_done": True}
        assert (await user.resume_at(server.url, **named))["moved"] is True
        assert user.session_id == session_id
        await take_turn(user)
        (listed,) = (await server.read("/v1/sessions?live=true"))["data"]
        assert listed["id"] == session_id
    roles = [each["role"] for each in server.vendor.llm.received[-1].question["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    await server.until_sessions(0)

    async def both_stored() -> bool | None:
        turns[:] = (await server.read(f"/v1/turns?session={session_id}"))["data"]
        return [each["outcome"] for each in turns] == ["completed"] * 2 or None

    turns: list[dict[str, Any]] = []
    try:
        await eventually(both_stored)
    except TimeoutError:
        pytest.fail(f"the records are {[(each['id'], each['outcome'], each['reason']) for each in turns]}")


async def users_of_both(server: Server, stack: AsyncExitStack) -> tuple[list[ReconnectingUser], list[ReconnectingUser]]:
    """Open sessions until each worker has one; return those of worker 0, and the others.

    The supervisor counts a connection that its worker has closed for a moment longer: two in a row may have one worker.
    """
    await server.until_workers(2)
    await server.until_sessions(0)
    of_first: list[ReconnectingUser] = []
    others: list[ReconnectingUser] = []
    for _ in range(MAX_SESSIONS):
        user = await stack.enter_async_context(talking(server))
        (of_first if await holds_session(server, 0, user) else others).append(user)
        if of_first and others:
            break
    assert of_first
    assert others
    return of_first, others


async def test_a_worker_that_hangs_is_replaced_and_only_its_users_notice(server: Server) -> None:
    """New users get the other one meanwhile."""
    async with AsyncExitStack() as stack:
        of_first, others = await users_of_both(server, stack)
        pid = server.pid(0)
        os.kill(pid, signal.SIGSTOP)
        for user in others:
            await take_turn(user)
        for user in of_first:
            with pytest.raises(ConnectionError):
                await user.until("never")
        await server.logs("worker_hung", pid=pid)
        await server.logs("worker_ended", pid=pid)
        await take_turn(await stack.enter_async_context(talking(server)))
    await server.until_sessions(0)


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


async def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        pids = [server.pid(0), server.pid(1)]
        server.process.kill()
        await server.process.wait()

        async def gone() -> bool | None:
            return not any(psutil.pid_exists(pid) for pid in pids) or None

        await eventually(gone)


@pytest.mark.parametrize(
    ("database", "llm", "reason"),
    [
        (b"no database" * 1_000, "fake/llm", "cluster.sqlite3: file is not a database"),
        (b"", "gguf//none/of.gguf", "/none/of.gguf"),  # found out while it serves already
    ],
)
async def test_a_worker_that_cannot_start_ends_the_server_with_its_reason(
    database: bytes, llm: str, reason: str, tmp_path: Path
) -> None:
    async with FakeVendor() as vendor:
        path = config_file(tmp_path, vendor, limits=LIMITS)
        path.write_text(path.read_text().replace("fake/llm", llm))
        (tmp_path / "data").mkdir(mode=0o700)
        if database:
            (tmp_path / "data" / "cluster.sqlite3").write_bytes(database)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voicepipe", "serve", "--workers", "2", "--config", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(2 * WAIT_S):  # two interpreters start one after the other
            _, errors = await process.communicate()
    assert process.returncode == 2
    assert reason in errors.decode()
