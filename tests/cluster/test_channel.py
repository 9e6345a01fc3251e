"""Messages and sockets between two processes; both ends are in this one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from voicepipe.cluster.channel import LONG_BYTES, MAX_LONG_UNSENT, MAX_UNSENT, Channel
from voicepipe.testing.waiting import WAIT_S, eventually


@dataclass
class End:
    messages: list[bytes] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, message: bytes, passed: socket.socket | None) -> None:
        self.messages.append(message)
        if passed is not None:
            self.sockets.append(passed)

    async def until(self, count: int) -> list[bytes]:
        async def arrived() -> bool | None:
            return len(self.messages) >= count or None

        await eventually(arrived)
        return self.messages


@asynccontextmanager
async def channels() -> AsyncIterator[tuple[Channel, Channel, End]]:
    one, other = socket.socketpair()
    end = End()
    sender = Channel(one, lambda message, passed: None, lambda: None)
    receiver = Channel(other, end.take, end.closed.set)
    try:
        yield sender, receiver, end
    finally:
        sender.close()
        receiver.close()
        for each in end.sockets:
            each.close()


async def test_messages_of_any_size_arrive_whole_and_in_order() -> None:
    """A message that is larger than the kernel's buffer holds back those behind it."""
    messages = [b"first", bytes(3_000_000), b"", b"last"]
    async with channels() as (sender, _, end):
        for message in messages:
            assert sender.send(message)
        assert await end.until(len(messages)) == messages


async def test_each_socket_arrives_with_its_own_message() -> None:
    """Also where messages without one are read together with it."""
    pairs = [socket.socketpair() for _ in range(20)]
    async with channels() as (sender, _, end):
        for number, (_, passed) in enumerate(pairs):
            sender.send(b"without")
            sender.send(str(number).encode(), passed)
        await end.until(2 * len(pairs))
        for number, (ours, _) in enumerate(pairs):
            ours.send(str(number).encode())
            assert end.sockets[number].recv(9) == str(number).encode()
            assert not end.sockets[number].get_inheritable()
            ours.close()
        assert all(passed.fileno() == -1 for _, passed in pairs)  # this side has closed its own


async def test_a_message_whose_handler_fails_is_handled_once() -> None:
    """And the ones after it too."""
    ours, remote = socket.socketpair()
    handled: list[bytes] = []

    def handle(message: bytes, _: socket.socket | None) -> None:
        handled.append(message)
        if message == b"bad":
            raise RuntimeError("a bug")

    receiving, sending = Channel(ours, handle, lambda: None), Channel(remote, lambda *_: None, lambda: None)
    for message in (b"first", b"bad", b"last"):
        sending.send(message)
    with pytest.raises(RuntimeError):
        receiving.read()
    sending.send(b"next")
    receiving.read()
    assert handled == [b"first", b"bad", b"last", b"next"]
    receiving.close()
    sending.close()


async def test_a_reader_learns_that_the_other_end_is_closed() -> None:
    async with channels() as (sender, receiver, end):
        sender.send(b"last")
        sender.close()
        async with asyncio.timeout(WAIT_S):
            await end.closed.wait()
        assert end.messages == [b"last"]
        ours, passed = socket.socketpair()
        assert not receiver.send(b"too late", passed)
        assert passed.fileno() == -1
        ours.close()


async def test_more_than_the_bound_is_refused_and_what_was_not_sent_is_closed() -> None:
    """An end that reads nothing must not fill the memory of the other."""
    one, other = socket.socketpair()
    sender = Channel(one, lambda message, passed: None, lambda: None)
    n_sent = 0
    while sender.send(bytes(1_000_000)):
        n_sent += 1
    assert MAX_LONG_UNSENT // 1_000_000 <= n_sent <= MAX_LONG_UNSENT // 1_000_000 + 4
    n_short = 0
    while sender.send(bytes(LONG_BYTES)):
        n_short += 1
    unsent = n_sent * 1_000_000 + n_short * LONG_BYTES
    assert MAX_UNSENT <= unsent <= MAX_UNSENT + 4_000_000
    ours, passed = socket.socketpair()
    assert not sender.send(b"one more", passed)
    assert passed.fileno() == -1
    sender.close()
    for each in (ours, other):
        each.close()


async def test_sockets_that_wait_are_closed_with_the_channel() -> None:
    one, other = socket.socketpair()
    sender = Channel(one, lambda message, passed: None, lambda: None)
    sender.send(bytes(3_000_000))
    ours, passed = socket.socketpair()
    assert sender.send(b"waits", passed)
    assert passed.fileno() != -1
    other.close()
    sender.read()
    assert passed.fileno() == -1
    ours.close()
    sender.close()
