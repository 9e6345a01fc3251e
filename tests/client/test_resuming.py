"""The client whose connection breaks: what it tells the server that goes on, and what it takes for the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import numpy as np
import pybase64
import pytest
import websockets
from websockets.http11 import Request, Response

from voicepipe.client import RATE_HZ, CallEnded, CallRefused, connect
from voicepipe.client import events as e
from voicepipe.client.connection import pause_after
from voicepipe.protocol import binary
from voicepipe.testing.waiting import WAIT_S, eventually

Line = websockets.ServerConnection
MS = b"\1\0" * (RATE_HZ // 1_000)
WORDS, STARTS_MS = ["One", "two", "three"], [0, 20, 40]
PLACE = {"response_id": "r", "output_index": 0, "content_index": 0}


class Breaking:
    """A server that greets, sends audio, and breaks; another connection resumes."""

    def __init__(self, n_refusals: int = 0) -> None:
        self.resumed: list[dict[str, Any]] = []
        self.break_now, self.answer_now = asyncio.Event(), asyncio.Event()
        self.answer_now.set()
        self.n_refusals, self.n_tried = n_refusals, 0
        self.status = HTTPStatus.BAD_GATEWAY
        self._number = 0

    def refuse(self, line: Line, request: Request) -> Response | None:
        """Refuse the first attempts to resume, as a balancer without a live node does."""
        if "resume=" in request.path:
            self.n_tried += 1
            if self.n_tried <= self.n_refusals:
                return line.respond(self.status, "no live upstreams")
        return None

    async def talk(self, line: Line) -> None:
        """Serve one connection."""
        assert line.request is not None
        if "resume=" in line.request.path:
            self.resumed.append(json.loads(await line.recv()))
            rest = {"session_id": "sess_1", "secret": "s2", "input_received_ms": 0, "window_ms": 9_000, "moved": True}
            await self.answer_now.wait()
            await self.say(line, "voicepipe.resumed", **rest)
            await self.say(line, "later")
            await line.wait_closed()
            return
        await self.say(line, "session.created", session={"id": "sess_1", "model": "m"})
        await line.recv()
        granted = {"resume": True, "resume_secret": "s1", "resume_window_ms": 9_000, "binary_audio": True}
        session = {"id": "sess_1", "model": "m", "providerData": {"voicepipe": granted}}
        await self.say(line, "session.updated", session=session)
        await self.speak(line)
        await self.break_now.wait()
        await self.leave(line)

    async def leave(self, line: Line) -> None:
        """Break the connection."""
        line.transport.abort()

    async def speak(self, line: Line) -> None:
        """Send 250 ms of an item, and 30 ms of the next one."""
        delta = pybase64.b64encode_as_string(100 * MS)
        await self.say(line, "response.output_audio.delta", **PLACE, item_id="i1", delta=delta)
        await self.say(line, "response.output_audio.delta", **PLACE, item_id="i1", delta=delta)
        await self.say(line, "voicepipe.output_audio.started", **PLACE, item_id="i2", stream=1)
        await self.say(
            line, "voicepipe.output_audio.words", response_id="r", item_id="i2", words=WORDS, starts_ms=STARTS_MS
        )
        for _ in range(3):
            self._number += 1
            await line.send(bytes(binary.agent_frame(1, self._number, 10 * MS)))

    async def say(self, line: Line, kind: str, **fields: object) -> None:
        """Send an event."""
        self._number += 1
        await line.send(json.dumps({"type": kind, "event_id": f"event_x_{self._number:x}", **fields}))


@asynccontextmanager
async def served(server: Breaking) -> AsyncIterator[str]:
    async with websockets.serve(server.talk, "127.0.0.1", 0, process_request=server.refuse) as listener:
        (socket,) = listener.sockets
        yield f"ws://127.0.0.1:{socket.getsockname()[1]}"


async def _is(found: bool) -> bool | None:
    return found or None


async def test_the_last_sound_that_came_is_named() -> None:
    """The audio of the latest item alone, whether it came in events or in frames."""
    server = Breaking()
    async with served(server) as url, connect(url) as call:
        n_ms = 0
        async for event in call:
            n_ms += len(event.pcm) // len(MS) if isinstance(event, e.ReplyAudio) else 0
            if n_ms == 230:
                break
        server.break_now.set()
        await call.send(np.zeros(480, dtype=np.int16))
        reader = asyncio.create_task(call.next_event())
        await eventually(lambda: _is(bool(server.resumed)))
        reader.cancel()
    (request,) = server.resumed
    fields = [request[f"received_{name}"] for name in ("item_id", "ms", "text")]
    assert fields == ["i2", 30, "One two"], "and the words that begin in it"


async def test_a_sound_that_was_not_read_before_the_resumption_was_not_received() -> None:
    """It lies in the client's queue when a send finds the connection broken: the server sends it again."""
    server = Breaking()
    server.answer_now.clear()
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        await call._connection._websocket.wait_closed()
        sending = asyncio.create_task(call.send(np.zeros(480, dtype=np.int16)))
        reading = asyncio.create_task(call.next_event())
        await eventually(lambda: _is(bool(server.resumed)))
        server.answer_now.set()
        await sending
        event = await asyncio.wait_for(reading, WAIT_S)
    assert "received_item_id" not in server.resumed[0]
    assert event == e.OtherEvent("later")


class Stopping(Breaking):
    """A server that asks its client to resume elsewhere; `code`: it closes the connection with that instead."""

    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code, self.was_left = code, asyncio.Event()

    async def leave(self, line: Line) -> None:
        if self.code:
            return await line.close(self.code, "stopping")
        await self.say(line, "voicepipe.going_away", within_ms=5_000)
        await line.wait_closed()
        self.was_left.set()
        return None


@pytest.mark.parametrize("code", [0, 1012])
async def test_a_client_leaves_a_server_that_stops(code: int) -> None:
    """When it is asked, and when it is closed with "service restart": the session goes on, and its events go on."""
    server = Stopping(code)
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        async with asyncio.timeout(WAIT_S):
            async for event in call:
                if event == e.OtherEvent("later"):
                    break
            if not code:
                await server.was_left.wait()
    assert (server.resumed[0]["session_id"], server.resumed[0]["received_item_id"]) == ("sess_1", "i2")


async def test_a_balancer_that_finds_no_node_is_tried_again() -> None:
    server = Breaking(n_refusals=2)
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        reader = asyncio.create_task(_until_ended(call))
        await eventually(lambda: _is(bool(server.resumed)))
        reader.cancel()
    assert server.n_tried == 3


async def test_a_server_that_refuses_for_good_ends_the_call() -> None:
    server = Breaking(n_refusals=1)
    server.status = HTTPStatus.FORBIDDEN
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        with pytest.raises(CallEnded) as ended:
            await _until_ended(call)
    assert server.n_tried == 1
    assert isinstance(ended.value.__cause__, CallRefused)
    assert ended.value.__cause__.status == 403


LOST = {"type": "error", "event_id": "event_x", "error": {"code": "session_lost", "message": "Its node has died."}}


class Forgetful(Breaking):
    """A server that answers a resumption with `answer`."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    async def talk(self, line: Line) -> None:
        assert line.request is not None
        if "resume=" in line.request.path:
            await line.recv()
            await line.send(json.dumps(self.answer))
            return
        await super().talk(line)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(LOST, "session_lost: Its node has died."), ({"type": "other"}, "its answer is no error event")],
)
async def test_the_end_of_a_call_says_why_it_was_not_resumed(answer: object, why: str) -> None:
    server = Forgetful(answer)
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        with pytest.raises(CallEnded) as ended:
            await _until_ended(call)
    assert str(ended.value.__cause__) == f"the server refused the resumption: {why}"


async def _until_ended(call: Any) -> None:
    while True:
        await call.next_event()


async def test_a_time_out_of_a_receive_does_not_end_the_resumption() -> None:
    """The secret is good once: an answer that nobody took would lose the session."""
    server = Breaking()
    server.answer_now.clear()
    async with served(server) as url, connect(url) as call:
        server.break_now.set()
        impatient = asyncio.create_task(_until_ended(call))
        await eventually(lambda: _is(bool(server.resumed)))
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        sending = asyncio.create_task(call.send(np.ones(480, dtype=np.int16)))
        server.answer_now.set()
        async with asyncio.timeout(WAIT_S):
            await sending
            while await call.next_event() != e.OtherEvent("later"):
                pass
    assert len(server.resumed) == 1


async def test_a_call_that_is_left_while_it_resumes_leaves_no_connection() -> None:
    server = Waiting()
    async with served(server) as url:
        async with connect(url) as call:
            server.break_now.set()
            reader = asyncio.create_task(_until_ended(call))
            await eventually(lambda: _is(bool(server.resumed)))
            reader.cancel()
        async with asyncio.timeout(WAIT_S):
            await server.left.wait()


class Waiting(Breaking):
    """A server that never answers a resumption."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    async def talk(self, line: Line) -> None:
        """Wait for the end of a connection that resumes."""
        assert line.request is not None
        if "resume=" not in line.request.path:
            return await super().talk(line)
        self.resumed.append(json.loads(await line.recv()))
        await line.wait_closed()
        self.left.set()
        return None


def test_pauses_grow_and_begin_again_where_a_node_waited_for_the_store() -> None:
    """A store that is back is found soon, however long it was away; a server that refuses at once is not flooded."""
    pause_s, pauses = 0.0, []
    for lasted_s in (0.0, 0.0, 0.0, 1.5, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0):
        pause_s = pause_after(pause_s, lasted_s)
        pauses.append(pause_s)
    assert pauses == [0.1, 0.2, 0.4, 0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
