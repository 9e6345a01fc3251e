"""The test client reports what the server sent."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from voicepipe.testing.user import User
from voicepipe.testing.waiting import eventually


async def test_close_code_is_the_servers_also_when_it_did_not_wait() -> None:
    """A client that reads late finds the close frame and a closed connection: it cannot answer any more."""

    async def close_at_once(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        assert request.transport is not None
        assert socket._writer is not None
        await socket._writer.close(4001)
        request.transport.close()
        return socket

    app = web.Application()
    app.router.add_get("/v1/realtime", close_at_once)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession() as http:
        line = await http.ws_connect(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/realtime")
        user = User(line)
        await line.send_str("{}")

        async def lost() -> bool | None:
            return line._reader.exception() is not None or line._reader.is_eof() or None

        await eventually(lost)
        with pytest.raises(ConnectionError):
            await user.next()
        assert user.close_code == 4001
    await runner.cleanup()
