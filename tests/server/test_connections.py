"""Connections of strangers: bounded by time, by address, and by what the process can hold."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from voicepipe.auth.proxies import TrustedProxies
from voicepipe.server import app, http_protocol
from voicepipe.server import listeners as listeners_module
from voicepipe.server.acceptor import Acceptor
from voicepipe.server.connection_limits import ConnectionLimits
from voicepipe.server.connections import AcceptedConnection, Connections
from voicepipe.server.descriptors import max_client_connections
from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.server.listeners import bind
from voicepipe.server.log_limit import LogLimit
from voicepipe.tasks import background_tasks
from voicepipe.testing.waiting import WAIT_S

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def dialled(server: Any, first: bytes = b"", **more: Any) -> AsyncIterator[Line]:
    """A connection that has sent `first`."""
    at = urlsplit(server.base)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, **more)
    try:
        writer.write(first)
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(line: Line) -> bytes:
    """What came until the server closed the connection."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await line[0].read()
        except ConnectionError:
            return b""


async def answered(line: Line) -> bool:
    """Whether a request on it is answered."""
    line[1].write(REQUEST)
    async with asyncio.timeout(WAIT_S):
        try:
            return (await line[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


async def n_closed(server: Any, why: str) -> int:
    async with server.http.get(f"{server.base}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (line,) = [each for each in lines if each.startswith(f'voicepipe_connections_closed_total{{why="{why}"}}')]
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.parametrize("first", [b"", b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_that_does_not_come_ends_its_connection(serve: Any, first: bytes) -> None:
    async with serve(header_ms=200, metrics_allow=("127.0.0.1",)) as server, dialled(server, first) as line:
        assert await ended(line) == b""
        assert await n_closed(server, "headers") == 1


async def test_headers_that_never_end_have_no_more_time_for_each_line(serve: Any) -> None:
    async def trickle(line: Line) -> None:
        while True:
            line[1].write(b"X-More: 1\r\n")
            await asyncio.sleep(0.02)

    async with (
        serve(header_ms=400) as server,
        dialled(server, b"GET / HTTP/1.1\r\n") as line,
        asyncio.TaskGroup() as group,
    ):
        trickling = group.create_task(trickle(line))
        assert await ended(line) == b""
        trickling.cancel()


async def test_a_later_request_has_the_same_time(serve: Any) -> None:
    async with serve(header_ms=400, idle_ms=3_600_000) as server, dialled(server) as line:
        assert await answered(line)
        line[1].write(b"GET /healthz HTTP/1.1\r\n")
        assert b"HTTP/1.1" not in await ended(line)


async def test_an_idle_connection_is_closed(serve: Any) -> None:
    async with serve(idle_ms=200) as server, dialled(server) as line:
        assert await answered(line)
        assert b"HTTP/1.1" not in await ended(line)


async def test_a_running_request_is_not_idle(serve: Any) -> None:
    """A call goes on while connections that came after it are closed for their silence."""
    async with serve(header_ms=150, idle_ms=150) as server, server.connect() as call:
        for _ in range(3):
            async with dialled(server) as line:
                assert await ended(line) == b""
        await call.send_str("still here?")
        assert await call.receive_str(timeout=WAIT_S) == "still here?"


async def test_an_address_has_so_many_connections_without_a_request_and_no_more(serve: Any) -> None:
    """The oldest connections are closed, so a client with a request is served; other addresses are not affected."""
    async with serve(address_connections=3) as server, AsyncExitStack() as stack:
        other = await stack.enter_async_context(dialled(server, local_addr=("127.0.0.2", 0)))
        lines = [await stack.enter_async_context(dialled(server)) for _ in range(10)]
        for line in lines[:7]:
            assert await ended(line) == b""
        assert [await answered(line) for line in (*lines[7:], other)] == [True] * 4
        assert (await server.get("/v1/models"))[0] == 200


async def test_one_that_was_closed_is_ended_when_its_transport_is_there() -> None:
    """It may be closed between the accept and the loop's making of its transport."""
    connections, ended = Connections(ConnectionLimits(), TrustedProxies(())), list[str]()
    connection = AcceptedConnection(connections, "192.0.2.1", lambda: ended.append("socket"))
    assert connections.close_oldest()
    connection.opened(lambda: ended.append("transport"))
    assert ended == ["socket", "transport"]
    connection.wait()  # a request that had come meanwhile is over
    assert len(connections) == 0


async def test_a_trusted_proxy_has_as_many_as_it_likes(serve: Any) -> None:
    async with serve(address_connections=2, trusted_proxies=("127.0.0.1",)) as server, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(server)) for _ in range(8)]
        assert [await answered(line) for line in lines] == [True] * 8


async def test_a_handshake_that_does_not_come_ends_its_connection(serve: Any) -> None:
    async with serve(tls_dev=True, header_ms=300, address_connections=2) as server, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(server)) for _ in range(4)]
        for line in lines:
            assert await ended(line) == b""
        any_ = ssl.create_default_context()
        any_.check_hostname, any_.verify_mode = False, ssl.CERT_NONE
        assert (await server.get("/v1/models", ssl=any_))[0] == 200


async def test_a_client_that_takes_no_answer_loses_its_connection(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule holds for every answer: here a page that is larger than the system's socket buffers."""
    monkeypatch.setattr(http_protocol, "UNREAD_S", 0.3)
    async with serve(metrics_allow=("127.0.0.1",)) as server:
        (server.context.pages / "large.js").write_bytes(b" " * (24 << 20))
        at, request = urlsplit(server.base), b"GET /web/large.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        with socket.create_connection((at.hostname, at.port)) as deaf:
            deaf.sendall(request)
            async with asyncio.timeout(WAIT_S):
                while not await n_closed(server, "unread"):  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)
            deaf.settimeout(WAIT_S)
            n_bytes = 0
            with suppress(ConnectionError):
                while piece := await asyncio.to_thread(deaf.recv, 1 << 20):
                    n_bytes += len(piece)
        assert n_bytes < 24 << 20
        async with server.http.get(f"{server.base}/web/large.js") as answer:
            assert len(await answer.read()) == 24 << 20


GARBAGE = {
    "noise": b"\x00\xff\x13\x37" * 20 + b"\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n",
    "not http": b"HELO mail.example\r\n\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization Bearer secret\r\n\r\n",
    "huge header": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 5_000 + b"\r\n",
    "bad target": b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad length": b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_what_is_no_http_is_one_short_line_in_the_log(
    serve: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it comes. No traceback, and nothing of what was sent."""
    caplog.set_level("INFO", "voicepipe")
    async with serve() as server:
        for _ in range(5):
            async with dialled(server, GARBAGE[name]) as line:
                assert (await ended(line)).startswith((b"HTTP/1.0 4", b"HTTP/1.1 4"))
        assert [record.message for record in caplog.records] == ["bad_http"]
        (fields,) = [record.__dict__["fields"] for record in caplog.records]
        assert set(fields) == {"address", "why", "unlogged"}
        assert len(fields["why"]) < 40
        assert "secret" not in caplog.text
        assert (await server.get("/v1/models"))[0] == 200


def test_the_log_says_how_many_lines_were_left_out() -> None:
    rare = LogLimit(every_ms=1_000)
    assert [rare.take(now_ms) for now_ms in (0, 1, 999, 1_000, 1_001)] == [0, None, None, 2, None]


async def test_what_is_no_handshake_is_one_short_line_in_the_log(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "voicepipe")
    async with serve(tls_dev=True) as server:
        for _ in range(3):
            async with dialled(server, REQUEST) as line:
                assert b"200" not in await ended(line)
        assert [record.message for record in caplog.records] == ["bad_http"]


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\nno gzip!",
        b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nno gzip!\r\n0\r\n\r\n",
    ],
)
async def test_a_body_that_is_no_http_is_refused(serve: Any, rest: bytes, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    async with serve() as server, dialled(server, head + rest) as line:
        assert b" 400 Bad Request\r\n" in await ended(line)
        assert "Traceback" not in caplog.text


async def test_when_descriptors_run_out_the_oldest_connection_without_a_request_goes(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had few: silence makes room for requests."""
    lowest = os.dup(0)  # the system gives the lowest number that is free
    os.close(lowest)
    monkeypatch.setattr(app, "max_client_connections", lambda limit: lowest + 40)
    async with serve(address_connections=1_000, header_ms=600_000) as server, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(server)) for _ in range(30)]
        assert await ended(lines[0]) == b""
        assert await answered(lines[-1])
        async with dialled(server) as late:
            assert await answered(late)


async def test_when_all_descriptors_are_used_by_requests_the_next_connection_is_closed(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        monkeypatch.setattr(app, "max_client_connections", lambda limit: 0)  # each connection is one too many
        server = await stack.enter_async_context(serve())
        async with dialled(server, REQUEST) as line:
            assert await ended(line) == b""
        assert [record.message for record in caplog.records] == ["connections_full"]


class Exhausted(socket.socket):
    """A listening socket whose process has no descriptor left, until `n_left` tries are over."""

    n_left = 5
    n_tries = 0

    def accept(self) -> Any:
        self.n_tries += 1
        self.n_left -= 1
        if self.n_left >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_where_accepting_fails_the_server_rests_and_makes_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not spin: it tries once after each rest, and frees connections that have no request."""
    monkeypatch.setattr(listeners_module, "PAUSE_S", 0.01)
    (plain,) = bind("127.0.0.1", 0)
    listener = Exhausted(fileno=plain.detach())
    listener.setblocking(False)
    connections = Connections(ConnectionLimits(), TrustedProxies(()))
    closed: list[int] = []
    for n in range(20):
        AcceptedConnection(connections, "192.0.2.1", partial(closed.append, n))
    taken: asyncio.Future[AcceptedConnection] = asyncio.get_running_loop().create_future()

    def make_protocol(connection: AcceptedConnection) -> HttpProtocol:
        taken.set_result(connection)
        raise ConnectionError

    async with background_tasks() as tasks:
        listeners = Acceptor(
            [listener], connections, tasks, make_protocol, tls=None, max_descriptors=1_000_000, log_limit=LogLimit()
        )
        _, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(WAIT_S):
            await taken
        writer.close()
        listeners.stop()
    assert closed == list(range(20))
    assert listener.n_tries in (6, 7)  # five that failed, the one that did not, and a look whether there is another
    assert [record.message for record in caplog.records] == ["connections_full"]


@pytest.mark.slow
def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; from voicepipe.server.descriptors import raise_descriptor_limit;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900));"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert completed.stdout.split() == ["900", "900", "900"]


async def test_the_server_raises_it_when_it_starts(serve: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(hard if hard != resource.RLIM_INFINITY else 4_096, 4_096) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        async with serve():
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > lower
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("limit", "most"), [(128, 96), (1_024, 768), (65_536, 61_440)])
def test_some_descriptors_are_no_clients(limit: int, most: int) -> None:
    assert max_client_connections(limit) == most
