"""A client that sends at full speed leaves the event loop to other tasks again and again."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from voicepipe import clock
from voicepipe.audio import g711
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.waiting import WAIT_S

MAX_WRITE_WAIT_S = 0.05
"""CPU time of one hold of the loop. A client's events get 5 ms of it; the rest is for a slow machine, for the client
itself and for the probe, which run on the same loop. What was held before is several times as much."""

MULAW = {"type": "audio/pcmu"}
"""The smallest frames: so most speech fits between two reads of the connection."""


class Others:
    """Another task on the event loop: it counts its turns, and the longest CPU time of one."""

    def __init__(self) -> None:
        self.n_turns = 0
        self.longest_s = 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch for as long as the block runs, without the collector of this process, which has more to look through
        than a server."""
        gc.disable()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._watch())
            yield
            task.cancel()
        gc.enable()

    async def _watch(self) -> None:
        used = clock.CpuTime()
        while True:
            used.lap_us()
            await asyncio.sleep(0)
            self.n_turns += 1
            self.longest_s = max(self.longest_s, used.lap_us() / 1e6)


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """A client's WebSocket frame, masked with zeros (RFC 6455, 5.2)."""
    n = len(payload)
    length = bytes([0x80 | n]) if n < 126 else bytes([0x80 | 126]) + n.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


@asynccontextmanager
async def connected(server: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A client that has got its first event."""
    url = f"{server.base_url}/v1/realtime"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0, autoping=False) as line:
        await line.receive()
        yield line


async def send_at_once(line: aiohttp.ClientWebSocketResponse, frames: bytes) -> None:
    """Write all of it, however slowly it is read."""
    connection = line._response.connection
    assert connection is not None
    assert connection.transport is not None
    connection.transport.write(frames)


async def answered(line: aiohttp.ClientWebSocketResponse, kind: str, n: int) -> None:
    """Read until that many events of a type have come."""
    async with asyncio.timeout(WAIT_S):
        while n:
            event = json.loads((await line.receive()).data)
            n -= event["type"] == kind


FLOODS = {
    "events that can't be read": (b"[]", "error"),
    "items": (
        json.dumps(
            {
                "type": "conversation.item.create",
                "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "word"}]},
            }
        ).encode(),
        "conversation.item.done",
    ),
    "settings": (
        json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "x" * 3_000}}).encode(),
        "session.updated",
    ),
}


NUMBERS = {"events that can't be read": 3_500, "items": 2_000, "settings": 700}
"""How many are sent at once; a conversation takes 2,048 items."""


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
async def test_many_events_at_once_leave_the_loop_to_others(server: Any, flood: str) -> None:
    """Each is answered, and none is lost or refused."""
    event, answer = FLOODS[flood]
    n = NUMBERS[flood]
    others = Others()
    async with connected(server) as line, others.watching():
        await send_at_once(line, frame(event) * n)
        await answered(line, answer, n)
    assert others.longest_s < MAX_WRITE_WAIT_S


async def test_speech_at_once_leaves_the_loop_to_others(server: Any, question: Samples) -> None:
    """Most of a minute of speech in frames of 100 ms is processed as fast as possible, in slices."""
    sound, n = g711.encode_mulaw(question), 800
    pieces = [sound[at : at + n] for at in range(0, len(sound), n)]
    spoken = [json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(p).decode()}) for p in pieces]
    frames = b"".join(frame(each.encode()) for each in (spoken * 500)[:500])
    update = {"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"format": MULAW}}}}
    others = Others()
    async with connected(server) as line, others.watching():
        clear = b'{"type": "input_audio_buffer.clear"}'
        await send_at_once(line, frame(json.dumps(update).encode()) + frames + frame(clear))
        await answered(line, "input_audio_buffer.cleared", 1)
    assert others.longest_s < MAX_WRITE_WAIT_S


async def test_pings_at_once_are_answered_one_in_a_turn(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered in order, and others have their turn after each."""
    others, answered_at = Others(), list[int]()
    real = web.WebSocketResponse.pong

    async def pong(self: web.WebSocketResponse[bool], message: bytes = b"") -> None:
        answered_at.append(others.n_turns)
        await real(self, message)

    monkeypatch.setattr(web.WebSocketResponse, "pong", pong)
    pings = [b"%d" % n for n in range(40)]
    async with connected(server) as line, others.watching():
        await send_at_once(line, b"".join(frame(ping, opcode=9) for ping in pings))
        pongs = [(await line.receive()).data for _ in pings]
    assert [bytes(pong) for pong in pongs] == pings
    assert len(set(answered_at)) == len(pings)
