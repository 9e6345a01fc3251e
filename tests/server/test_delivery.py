"""Messages that a client sends: the session takes those that come alone in the call that has read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.server.test_realtime import HANDSHAKE
from voicepipe.server.sessions.websocket import AiohttpSocket
from voicepipe.testing.waiting import WAIT_S, eventually

READY = b"ready"


def text_frame(text: bytes) -> bytes:
    """A client's frame with a mask of zeros (RFC 6455, 5.2)."""
    return bytes((0x81, 0x80 | len(text))) + bytes(4) + text


class Reader:
    """A session that takes all messages but those that begin with "later", and notes how each came."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.line: AiohttpSocket | None = None
        self.begins = asyncio.Event()
        self.begins.set()

    def take(self, message: bytes) -> bool:
        if message.startswith(b"later"):
            return False
        self.came.put_nowait(("at once", message))
        return True

    async def talk(self, line: AiohttpSocket) -> None:
        self.line = line
        line.deliver_to(self.take)
        await line.send(READY)
        await self.begins.wait()
        while (message := await line.receive()) is not None:
            self.came.put_nowait(("received", message))
            if message == b"later: to nobody":
                line.deliver_to(None)

    async def next(self) -> tuple[str, bytes]:
        return await asyncio.wait_for(self.came.get(), WAIT_S)


@asynccontextmanager
async def connected(serve: Any, session: Reader) -> AsyncIterator[asyncio.StreamWriter]:
    """A client of that session on a plain connection, so that a test decides what is written together."""
    async with serve() as server:
        server.talks.append(session.talk)
        host, port = server.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HANDSHAKE)
        await asyncio.wait_for(reader.readuntil(READY), WAIT_S)
        yield writer
        writer.transport.abort()
        assert await server.context.live_sessions.left(5_000)


async def test_a_message_that_comes_alone_is_taken_at_once(serve: Any) -> None:
    """Those that the session does not take, and those behind them, are received in their order."""
    session = Reader()
    async with connected(serve, session) as client:
        for text, how in ((b"one", "at once"), (b"later", "received"), (b"two", "at once")):
            client.write(text_frame(text))
            assert await session.next() == (how, text)
        client.write(text_frame(b"three") + text_frame(b"four"))
        came = [await session.next() for _ in range(2)]
        assert [text for _, text in came] == [b"three", b"four"]
        assert came[0] == ("received", b"three")
        client.write(text_frame(b"later: to nobody"))
        assert await session.next() == ("received", b"later: to nobody")
        client.write(text_frame(b"five"))
        assert await session.next() == ("received", b"five")


async def test_a_busy_session_receives_what_came_meanwhile(serve: Any) -> None:
    """Nothing is offered while it does not wait for a message, nor while an older one waits for it."""
    session = Reader()
    session.begins.clear()
    async with connected(serve, session) as client:
        for text in (b"one", b"two"):
            client.write(text_frame(text))
            await client.drain()
        line: Any = session.line

        async def both_wait() -> bool | None:
            return len(line._websocket._reader._buffer) == 2 or None

        await eventually(both_wait)
        session.begins.set()
        came = [await session.next() for _ in range(2)]
        assert came == [("received", b"one"), ("received", b"two")]
