"""A call over WebRTC at a server of two processes: its backend's connections come to either."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.server.rtc_user import CALLS, WAIT_S, rtc_call
from tests.wiring.workers import serving

pytestmark = pytest.mark.slow

N_CONNECTIONS = 4
"""Each goes to the worker with the fewest: both get some."""


async def test_a_backend_follows_and_ends_a_call_through_either_worker(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        aiohttp.ClientSession(headers=server.headers) as http,
        AsyncExitStack() as opened,
    ):
        await server.until_workers(2)
        user = await opened.enter_async_context(rtc_call(http, server.url))
        session = (await user.event("session.created"))["session"]["id"]
        lines = []
        for _ in range(N_CONNECTIONS):
            backend = await opened.enter_async_context(aiohttp.ClientSession(headers=server.headers))
            line = await backend.ws_connect(f"{server.url}/v1/realtime?call_id={user.call_id}")
            assert (await line.receive_json(timeout=WAIT_S))["session"]["id"] == session
            lines.append(line)
        assert all(server.connections(worker) for worker in (0, 1))
        for line in lines:
            await line.send_json({"type": "input_audio_buffer.clear"})
            await user.event("input_audio_buffer.cleared")
        for line in lines:
            for _ in lines:
                while (await line.receive_json(timeout=WAIT_S))["type"] != "input_audio_buffer.cleared":
                    pass
        async with (
            aiohttp.ClientSession(headers=server.headers) as backend,
            backend.post(f"{server.url}{CALLS}/{user.call_id}/hangup") as answer,
        ):
            assert answer.status == 200
        for line in lines:
            while (message := await line.receive(timeout=WAIT_S)).type is aiohttp.WSMsgType.TEXT:
                pass
            assert message.data == 1000
