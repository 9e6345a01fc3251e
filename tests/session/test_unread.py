"""What waits for a client that does not read: bounded in bytes, then in time; and what a session keeps of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp
import pytest

from voicepipe.session import connection as lines
from voicepipe.session import session as sessions
from voicepipe.session.connection import SessionConnection
from voicepipe.session.outbox import MAX_UNSENT_BYTES, UNSENT_BYTES, Outbox, OutgoingFrame
from voicepipe.testing.waiting import WAIT_S, eventually

LONG = "\x01" * 100_000
"""600 kB as JSON."""


class WatchedOutbox(Outbox):
    """Remembers how much waited in it."""

    made: ClassVar[list[WatchedOutbox]] = []
    most_bytes = 0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.made.append(self)

    def put(self, outgoing: OutgoingFrame) -> None:
        super().put(outgoing)
        self.most_bytes = max(self.most_bytes, self._unsent_bytes)


@pytest.fixture
def outboxes(monkeypatch: pytest.MonkeyPatch) -> list[WatchedOutbox]:
    """Those of the sessions that begin in this test."""
    WatchedOutbox.made = []
    monkeypatch.setattr(sessions, "Outbox", WatchedOutbox)
    return WatchedOutbox.made


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why clients were dropped, as the log says."""
    return [
        record.fields["why"]  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage() == "slow_client_dropped"
    ]


def small_socket(address: Any) -> socket.socket:
    """A client's socket whose kernel takes little: by itself it may take more than all that the test has sent to it."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    made.setblocking(False)
    return made


REQUESTS = [
    {"type": "conversation.item.retrieve", "item_id": "long"},
    {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"speed": 1.0}}}},
    {"type": "not_an_event", "event_id": "x" * 500},
]


@pytest.mark.parametrize("client_event", REQUESTS, ids=["retrieve", "update", "error"])
async def test_events_for_a_client_that_does_not_read_are_bounded(
    server: Any,
    outboxes: list[WatchedOutbox],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    client_event: dict[str, object],
) -> None:
    """Past a megabyte nothing of it is read, so no event is answered with more; then it is dropped, and the log says
    why. Another client's session goes on meanwhile."""
    monkeypatch.setattr(lines, "UNREAD_LIMIT_S", 1.0)
    caplog.set_level(logging.INFO)
    text = {"type": "input_text", "text": LONG}
    item = {"type": "message", "role": "user", "id": "long", "content": [text]}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=small_socket)) as http,
        http.ws_connect(f"{server.base_url}/v1/realtime", max_msg_size=0) as line,
    ):
        await line.send_str(json.dumps({"type": "session.update", "session": {"instructions": LONG}}))
        await line.send_str(json.dumps({"type": "conversation.item.create", "item": item}))
        while json.loads((await line.receive()).data)["type"] != "conversation.item.done":
            pass
        transport = line._response.connection.transport  # type: ignore[union-attr]
        transport.pause_reading()  # type: ignore[union-attr]
        with contextlib.suppress(ConnectionError):  # it may be dropped before it has sent all
            for _ in range(8_000):
                await line._writer.send_frame(json.dumps(client_event).encode(), aiohttp.WSMsgType.TEXT)

        async def drop() -> bool | None:
            return True if dropped(caplog) else None

        assert await eventually(drop)
    assert dropped(caplog) == ["the client read nothing for 1 s"]
    assert outboxes[0].most_bytes < UNSENT_BYTES + 2_000_000, "one event's answer more, at most"

    async def closed() -> bool | None:
        return True if any(record.getMessage() == "session_closed" for record in caplog.records) else None

    assert await eventually(closed)
    assert not any(record.getMessage() == "crashed" for record in caplog.records)


# --- the outbox -----------------------------------------------------------------------------------


@dataclass
class Slow:
    """A client's socket that takes as many frames as the test permits."""

    frames: list[bytes] = field(default_factory=list)
    may_take: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    hung_up: bool = False
    gone: bool = False
    has_message: bool = False

    async def receive(self) -> str | bytes | None:
        return None

    async def send(self, frame: bytes) -> None:
        await self.may_take.acquire()
        self.frames.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.hung_up = True

    def abort(self) -> None:
        self.gone = True


def a_line(socket: Slow, *, resumable: bool) -> SessionConnection:
    line = SessionConnection(socket, on_lost=lambda: None, on_back=lambda missed: None)
    line.allow_resume(resumable)
    return line


async def test_reading_goes_on_when_a_slow_client_has_taken_enough() -> None:
    """Past the bound the code that reads the client's events waits, until the queued output is below it."""
    socket, outbox = Slow(), Outbox(lambda outgoing: None, lambda: None)
    outbox.put(OutgoingFrame(bytes(UNSENT_BYTES // 2)))
    await asyncio.wait_for(outbox.writable.wait(), WAIT_S)
    outbox.put(OutgoingFrame(bytes(UNSENT_BYTES // 2)))
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(outbox.run(a_line(socket, resumable=False)))
        writable = group.create_task(outbox.writable.wait())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not writable.done()
        socket.may_take.release()
        await writable
        sending.cancel()
    assert len(socket.frames) == 1


async def test_tiny_frames_count_for_what_they_take() -> None:
    """A hundred thousand frames of nothing are megabytes of objects."""
    outbox = Outbox(lambda outgoing: None, lambda: None)
    for _ in range(UNSENT_BYTES // 256):
        outbox.put(OutgoingFrame(b""))
    waiting = asyncio.ensure_future(outbox.writable.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_sound_that_is_dropped_makes_room_for_events() -> None:
    """A user who interrupts does not wait until the dropped audio is gone."""
    outbox = Outbox(lambda outgoing: None, lambda: None)
    outbox.put(OutgoingFrame(bytes(UNSENT_BYTES), 1, 0, 100, 100, True))
    outbox.drop_sound(1)
    await asyncio.wait_for(outbox.writable.wait(), WAIT_S)


async def test_a_frame_behind_too_much_closes_the_connection_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two answers of the longest event fit; what comes behind the bound says so once, and the log says why."""
    caplog.set_level(logging.INFO)
    socket = Slow()
    line = a_line(socket, resumable=False)
    outbox = Outbox(lambda outgoing: None, lambda: line.drop("too much waited"))
    for _ in range(2):
        outbox.put(OutgoingFrame(bytes(16 << 20)))
    assert not socket.gone
    for _ in range(3):
        outbox.put(OutgoingFrame(b"one more"))
    assert socket.gone
    assert dropped(caplog) == ["too much waited"]
    assert MAX_UNSENT_BYTES < 2 * (16 << 20)
    assert await line.receive() is None


async def test_a_session_that_may_be_resumed_outlives_the_connection_of_a_slow_client(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed, and the client may come back for what it has not got."""
    monkeypatch.setattr(lines, "UNREAD_LIMIT_S", 0.01)
    caplog.set_level(logging.INFO)
    socket = Slow()
    line = a_line(socket, resumable=True)
    await line.send(1, OutgoingFrame(b"1"))
    assert socket.gone
    assert len(dropped(caplog)) == 1
    assert line.can_resume_after(0)


class Ready(Slow):
    """A client's socket that takes each frame at once, or after two waits."""

    n_waits = 0

    async def send(self, frame: bytes) -> None:
        for _ in range(self.n_waits):
            await self.may_take.acquire()
        self.frames.append(frame)


async def test_only_a_frame_that_waits_takes_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it waits as often as the socket does."""
    limits, timeout = list[float](), asyncio.timeout
    socket = Ready()
    line = a_line(socket, resumable=False)

    def counted(limit_s: float) -> asyncio.Timeout:
        limits.append(limit_s)
        return timeout(limit_s)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "timeout", counted)
        await line.send(1, OutgoingFrame(b"1"))
        assert (socket.frames, limits) == ([b"1"], [])
        socket.n_waits = 2
        async with asyncio.TaskGroup() as group:
            group.create_task(line.send(2, OutgoingFrame(b"2")))
            for _ in range(2):
                await asyncio.sleep(0)
                assert socket.frames == [b"1"]
                socket.may_take.release()
    assert (socket.frames, limits) == ([b"1", b"2"], [lines.UNREAD_LIMIT_S])


async def test_a_task_that_is_cancelled_while_a_frame_waits_ends() -> None:
    """The socket's own wait is cancelled."""
    socket = Slow()
    line = a_line(socket, resumable=False)
    sending = asyncio.create_task(line.send(1, OutgoingFrame(b"1")))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    socket.may_take.release()
    assert not socket.may_take.locked(), "no one waits for it"
    assert not socket.gone


async def test_frame_longer_than_the_buffer_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't be sent a second time, and that is all."""
    monkeypatch.setattr(lines, "SENT_FRAMES_BYTES", 10)
    socket = Slow()
    line = a_line(socket, resumable=True)
    socket.may_take.release()
    await line.send(1, OutgoingFrame(bytes(11)))
    assert [len(frame) for frame in socket.frames] == [11]
    assert line.can_resume_after(1)
    assert not line.can_resume_after(0)
