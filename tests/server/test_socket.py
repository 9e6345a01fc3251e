"""A client's WebSocket that breaks: what was sent before the break is read, and the end is an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import WSMessage, WSMsgType, web
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.base_protocol import BaseProtocol

from voicepipe.server.sessions import websocket
from voicepipe.server.sessions.websocket import AiohttpSocket, upgrade
from voicepipe.testing.waiting import WAIT_S, eventually

CLIENTS_CODE = 4_100

PING = WSMessage(WSMsgType.PING, b"there?", None)


class Line:
    """A line that has broken: no pong leaves any more."""

    def __init__(self, *comes: WSMessage) -> None:
        self._comes = list(comes)

    async def receive(self) -> WSMessage:
        return self._comes.pop(0)

    async def pong(self, message: bytes) -> None:
        raise ConnectionResetError("Cannot write to closing transport")


def socket(*comes: WSMessage) -> AiohttpSocket:
    return AiohttpSocket(cast("web.WebSocketResponse[bool]", Line(*comes)), None)


async def test_a_pong_that_can_not_leave_is_the_end_of_the_line() -> None:
    """And no error of the session's: one that can be resumed is waited for."""
    line = socket(*[PING] * 300, WSMessage(WSMsgType.CLOSED, None, None))
    assert await line.receive() is None
    assert not line.hung_up
    assert await line.receive() is None


async def test_what_came_before_the_break_is_read_and_so_is_a_goodbye() -> None:
    """Whatever pings lie between."""
    text, goodbye = WSMessage(WSMsgType.TEXT, b"{}", None), WSMessage(WSMsgType.CLOSE, 1000, "")
    line = socket(PING, text, PING, goodbye)
    assert await line.receive() == b"{}"
    assert await line.receive() is None
    assert line.hung_up


async def test_nothing_is_sent_behind_the_close_frame_of_a_client() -> None:
    """The session answers it later, when its records are stored; until then the client counts as gone."""
    goodbye = WSMessage(WSMsgType.CLOSE, 1000, "")
    line = socket(goodbye)
    assert await line.receive() is None
    assert line.gone
    await line.send(b"{}")  # the broken line has no way to send it
    assert not upgrade(ping_ms=20_000, subprotocol=None)._autoclose


async def test_it_is_known_whether_a_message_waits() -> None:
    """Only text and binary ones count: behind a ping nothing may follow."""
    line = upgrade(ping_ms=20_000, subprotocol=None)
    client, loop = AiohttpSocket(line, None), asyncio.get_running_loop()
    assert not client.has_message
    line._reader = queue = WebSocketDataQueue(BaseProtocol(loop), 2**16, loop=loop)
    assert not client.has_message
    for kind, waits in ((WSMsgType.PING, False), (WSMsgType.TEXT, True), (WSMsgType.BINARY, True)):
        queue.feed_data(WSMessage(kind, b"{}", None), 2)
        assert client.has_message is waits
        await queue.read()
        assert not client.has_message


async def test_others_have_their_turn_between_pongs_that_fail() -> None:
    turns: list[Any] = []
    line = socket(*[PING] * 50, WSMessage(WSMsgType.CLOSED, None, None))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(line.receive())
        while not reading.done():
            turns.append(None)
            await asyncio.sleep(0)
    assert len(turns) >= 50


async def test_frames_postpone_the_ping_a_few_times_between_two_pings(monkeypatch: Any) -> None:
    """Not each of 50 a second; but the first one after a ping counts as its pong."""
    now_s = 100.0
    monkeypatch.setattr(websocket, "loop_clock", lambda: lambda: now_s)
    line, loop = upgrade(ping_ms=20_000, subprotocol=None), asyncio.get_running_loop()
    line._loop = loop  # as `prepare` does
    n_postponed = 0
    for _ in range(500):
        now_s += 0.02
        line._on_data_received()
        if line._need_heartbeat_reset:
            n_postponed += 1
            line._flush_heartbeat_reset()
    assert n_postponed == 5
    line._pong_response_cb = pong = loop.call_later(10, lambda: None)
    line._on_data_received()
    line._flush_heartbeat_reset()
    assert pong.cancelled()
    line._cancel_heartbeat()


Receiving = Callable[[AiohttpSocket], Awaitable[None]]


async def receiving(socket: AiohttpSocket) -> None:
    """Read to the end, as a session does."""
    while await socket.receive() is not None:
        pass


async def not_receiving(socket: AiohttpSocket) -> None:
    """Read nothing: a connection that is refused."""


async def not_receiving_yet(socket: AiohttpSocket) -> None:
    """Read once the close frame has left: the session was busy with a message."""

    async def has_left() -> bool | None:
        return socket._websocket.closed or None

    await eventually(has_left)
    await receiving(socket)


@pytest.mark.parametrize("read", [receiving, not_receiving, not_receiving_yet])
async def test_the_connection_stays_open_until_the_client_has_answered_the_close_frame(
    read: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client still sends meets an open connection: otherwise it may get a reset in place of the close frame, and
    would take a call that has ended for a broken one. A session cancels its tasks as soon as nothing comes any more.
    """
    monkeypatch.setattr(websocket, "CLOSE_WAIT_S", WAIT_S)
    codes: list[int | None] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        line = upgrade(ping_ms=20_000, subprotocol=None)
        await line.prepare(request)
        socket = AiohttpSocket(line, request.transport)
        await line.receive()
        closing = asyncio.create_task(socket.close(1_000, "The call is over."))
        await read(socket)
        if read is not not_receiving:
            closing.cancel()
        await asyncio.wait([closing])
        await socket.close(1_000, "")
        codes.append(line.close_code)
        return line

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with (
            asyncio.timeout(2 * WAIT_S),
            aiohttp.ClientSession() as http,
            http.ws_connect(f"http://127.0.0.1:{port}/", autoclose=False) as client,
        ):
            await client.send_str("begin")
            goodbye = await client.receive()
            assert (goodbye.type, goodbye.data) == (WSMsgType.CLOSE, 1_000)
            for _ in range(5):
                await client.send_bytes(bytes(1_000))
            await client.close(code=CLIENTS_CODE)
    finally:
        await runner.cleanup()
    assert codes == [CLIENTS_CODE]
