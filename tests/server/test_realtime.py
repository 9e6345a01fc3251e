"""The WebSocket endpoint: routes, agents, limits, the line itself."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from voicepipe.errors import StageRefused
from voicepipe.server.sessions.websocket import MAX_FRAME_BYTES
from voicepipe.session.socket import ClientSocket
from voicepipe.testing.waiting import WAIT_S


@pytest.mark.parametrize(
    "path",
    [
        "/v1/realtime",
        "/v1/realtime/",
        "/v1/realtime?model=gpt-realtime&temperature=0.8",
        "/openai/v1/realtime?model=x",
        "/openai/realtime?api-version=2025-04-01-preview&deployment=x",
        "/api/v1/realtime/session?key=made-by-the-client&protocol=realtime",
    ],
)
async def test_every_route_that_clients_know_opens_a_session(serve: Any, path: str) -> None:
    async with serve() as server, server.connect(path) as line:
        await line.send_str("hello")
        assert await line.receive_str(timeout=WAIT_S) == "hello"


@pytest.mark.parametrize(
    ("query", "agent", "model"),
    [
        ("", "default", "default"),
        ("?model=gpt-realtime", "default", "gpt-realtime"),
        ("?model=support", "support", "support"),
        ("?model=helper", "support", "helper"),
        ("?deployment=helper", "support", "helper"),
        ("?agent=support&model=gpt-realtime", "support", "gpt-realtime"),
        ("?agent=support", "support", "support"),
    ],
)
async def test_the_agent_is_named_by_agent_or_by_model(serve: Any, query: str, agent: str, model: str) -> None:
    async with serve() as server:
        async with server.connect(f"/v1/realtime{query}"):
            pass
        assert (server.grants[0].agent, server.grants[0].model) == (agent, model)


async def test_an_agent_that_is_not_there_is_refused(serve: Any) -> None:
    async with serve() as server:
        status, error = await server.refused("/v1/realtime?agent=nobody")
        assert (status, error["code"], error["param"]) == (404, "agent_not_found", "agent")


async def test_a_call_that_is_not_there_is_refused(serve: Any) -> None:
    """A sideband connection must not become a session of its own."""
    async with serve() as server:
        status, error = await server.refused("/v1/realtime?call_id=rtc_nobody")
        assert (status, error["code"], error["param"]) == (404, "call_not_found", "call_id")
        assert server.grants == []


async def test_an_unknown_model_is_refused_when_set_to_strict(serve: Any) -> None:
    async with serve(strict_models=True) as server:
        status, error = await server.refused("/v1/realtime?model=gpt-realtime")
        assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
        async with server.connect("/v1/realtime?model=helper"):
            pass


@pytest.mark.parametrize(
    ("headers", "query", "protocols", "dialect"),
    [
        ({}, "", (), "ga"),
        ({"OpenAI-Beta": "realtime=v1"}, "", (), "beta"),
        ({}, "", ("realtime", "openai-beta.realtime-v1"), "beta"),
        ({}, "?api-version=2024-10-01-preview", (), "beta"),
        ({}, "?api-version=preview", (), "ga"),
    ],
)
async def test_older_clients_are_known_by_their_handshake(
    serve: Any, headers: dict[str, str], query: str, protocols: tuple[str, ...], dialect: str
) -> None:
    async with serve() as server:
        async with server.connect(f"/v1/realtime{query}", headers=headers, protocols=protocols):
            pass
        assert server.grants[0].dialect == dialect


async def test_without_an_upgrade_the_endpoint_says_what_it_is(serve: Any) -> None:
    async with serve() as server, server.http.get(f"{server.base}/v1/realtime") as answer:
        assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")
        assert (await answer.json())["error"]["code"] == "upgrade_required"


async def test_a_full_server_says_so_before_the_upgrade_and_has_room_again(serve: Any, gate: Any) -> None:
    async with serve(max_sessions=1) as server:
        server.talks.append(gate)
        async with server.connect():
            status, error = await server.refused()
            assert (status, error["type"], error["code"]) == (503, "server_error", "server_overloaded")
            assert error["message"] == "Too many sessions on this server (limit 1)."
            gate.go.set()
        assert await server.context.live_sessions.left(5_000)
        async with server.connect():
            pass


async def test_a_provider_that_refuses_at_the_start_is_answered_before_the_upgrade(serve: Any) -> None:
    async with serve() as server:
        server.broken.append(StageRefused("llm", provider="groq/x", why="unknown model", retryable=False))
        status, error = await server.refused()
        assert (status, error["code"]) == (503, "server_overloaded")
        assert "llm by groq/x: unknown model" in error["message"]
        assert len(server.context.live_sessions) == 0


async def test_a_frame_over_16_mib_closes_with_1009(serve: Any) -> None:
    async def send_and_listen(url: str) -> None:
        async with websockets.connect(url, compression=None) as line:
            await line.send("x" * (MAX_FRAME_BYTES + 1))
            await asyncio.wait_for(line.recv(), WAIT_S)

    async with serve() as server:
        with pytest.raises(ConnectionClosed) as closed:
            await send_and_listen(f"{server.base.replace('http', 'ws')}/v1/realtime")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert await server.context.live_sessions.left(5_000)


async def test_a_frame_of_16_mib_is_read_and_so_are_fragments_and_binary(serve: Any) -> None:
    lengths: asyncio.Queue[int] = asyncio.Queue()

    async def measure(line: ClientSocket) -> None:
        while (message := await line.receive()) is not None:
            await lengths.put(len(message))

    async with serve() as server:
        server.talks.append(measure)
        async with websockets.connect(f"{server.base.replace('http', 'ws')}/v1/realtime", compression=None) as line:
            await line.send("x" * MAX_FRAME_BYTES)
            await line.send(["ab", "cd", "e"])
            await line.send(b"\x00\xff")
            assert [await asyncio.wait_for(lengths.get(), WAIT_S) for _ in range(3)] == [MAX_FRAME_BYTES, 5, 2]


@pytest.mark.parametrize("fragments", [False, True])
async def test_a_message_without_end_is_stopped_at_16_mib(serve: Any, fragments: bool) -> None:
    """A frame that claims to be huge is refused at its head; fragments are refused when they add up."""
    head = b"\x81\xff" + (1 << 40).to_bytes(8) + bytes(4)
    piece = b"\x01\xff" + (1 << 20).to_bytes(8) + bytes(4) + bytes(1 << 20)
    more = piece.replace(b"\x01", b"\x00", 1)
    async with serve() as server:
        host, port = server.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.writelines([piece, *[more] * 16] if fragments else [head])
        assert await asyncio.wait_for(reader.readexactly(4), WAIT_S) == b"\x88\x02" + (1009).to_bytes(2)
        writer.transport.abort()
        assert await server.context.live_sessions.left(5_000)


async def test_text_that_is_no_utf8_reaches_the_session_and_the_line_lives(serve: Any) -> None:
    """The session answers it like any other message that can't be read."""

    async def count(line: ClientSocket) -> None:
        while (message := await line.receive()) is not None:
            await line.send(str(list(message)).encode())

    async with serve() as server:
        server.talks.append(count)
        async with server.connect() as line:
            for sent in (b"\xff\xfe{", b"{}"):
                await line.send_frame(sent, aiohttp.WSMsgType.TEXT)
                assert await line.receive_str(timeout=WAIT_S) == str(list(sent))


async def test_compression_is_declined(serve: Any) -> None:
    async with serve() as server, server.connect(compress=15) as line:
        assert not line.compress


async def test_a_client_that_stops_reading_makes_the_session_wait(serve: Any) -> None:
    """The server buffers little for a slow client: a second or two of speech, not minutes."""
    sent_bytes: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def flood(line: ClientSocket) -> None:
        count, frame = 0, b"x" * 8_192
        while True:
            sending = asyncio.ensure_future(line.send(frame))
            await asyncio.sleep(0)  # a send that need not wait is done after one step
            if not sending.done():
                break
            count += len(frame)
        sent_bytes.set_result(count)
        assert await line.receive() is None
        with suppress(asyncio.CancelledError):
            sending.cancel()
            await sending

    async with serve() as server:
        server.talks.append(flood)
        with deaf_client(server.base) as client:
            await asyncio.get_running_loop().sock_sendall(client, HANDSHAKE)
            assert await asyncio.wait_for(sent_bytes, WAIT_S) < 512 * 1024
        assert await server.context.live_sessions.left(5_000)


HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@contextmanager
def deaf_client(base: str) -> Iterator[socket.socket]:
    """A socket that never reads, with little room in its kernel; closed with a reset, as a dying phone does."""
    host, port = base.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.connect((host, int(port)))
        client.setblocking(False)
        yield client


async def test_a_session_that_crashes_closes_with_1011(serve: Any) -> None:
    async def crash(line: ClientSocket) -> None:
        raise ZeroDivisionError

    async with serve() as server:
        server.talks.append(crash)
        async with server.connect() as line:
            message = await line.receive(timeout=WAIT_S)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1011)
        assert await server.context.live_sessions.left(5_000)


async def test_a_session_may_close_with_its_own_words(serve: Any) -> None:
    async def expire(line: ClientSocket) -> None:
        await line.close(1001, "é" * 200)
        assert await line.receive() is None
        await line.send(b"too late")

    async with serve() as server:
        server.talks.append(expire)
        async with server.connect() as line:
            message = await line.receive(timeout=WAIT_S)
            assert (message.data, message.extra) == (1001, "é" * 61)


async def test_stopping_gives_sessions_time_then_says_goodbye(serve: Any) -> None:
    async with serve(drain_ms=0) as server:
        line = await server.connect()
        await server.context.live_sessions.drain(0)
        message = await line.receive(timeout=WAIT_S)
        assert (message.data, message.extra) == (1001, "The server is stopping. Open another session.")
        status, error = await server.refused()
        assert (status, error["message"]) == (503, "The server is stopping.")
        assert (await server.get("/readyz"))[1] == {"status": "stopping", "missing": ["the server is stopping"]}


async def test_stopping_waits_for_a_session_that_ends_by_itself(serve: Any, gate: Any) -> None:
    async with serve() as server:
        server.talks.append(gate)
        line = await server.connect()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.context.live_sessions.drain(10_000))
            gate.go.set()
            message = await line.receive(timeout=WAIT_S)
        assert message.data == 1000


@pytest.mark.slow
async def test_stopping_drops_a_line_whose_session_does_not_end(serve: Any, gate: Any) -> None:
    """A session that does not receive the close message can't delay the shutdown."""
    async with serve(drain_ms=0) as server:
        server.talks.append(gate)
        line = await server.connect()
        await gate.began.wait()
        emptied = asyncio.ensure_future(server.context.live_sessions.drain(0))
        assert (await line.receive(timeout=WAIT_S)).data == 1001
        await asyncio.wait_for(emptied, WAIT_S)
        gate.go.set()
