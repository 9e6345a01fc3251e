"""Several workers: one that dies or hangs, one that cannot start, and a supervisor that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.wiring.test_serve import config_file
from tests.wiring.workers import LIMITS, MAX_SESSIONS, Server, serving, status_of, take_turn, talking
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.reconnecting_user import ReconnectingUser
from voicepipe.testing.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


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
