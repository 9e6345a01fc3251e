"""A proxy between a client and a server that breaks on cue: in the middle of a frame, without a close frame.

async with relay(port) as between:
    between.cut("down", after_bytes=50_000)
    ... a client at between.port ...
    await between.was_cut()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal

from voicepipe.testing.waiting import WAIT_S

Way = Literal["down", "up"]
"""From the server, or to it."""

WEBSOCKET: Final = b"GET /v1/realtime"
READ_BYTES: Final = 64 * 1024


class FlakyProxy:
    """Forward data both ways. Only WebSockets are cut; pages load normally."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        """The port for clients, on loopback."""

        self.server_port = server_port
        """The server's port, for new connections; may be set once the server runs. 0: none, connections are closed."""

        self.n_lines = 0
        """Number of WebSockets so far."""

        self._left: dict[Way, int] = {}
        self._cut = asyncio.Event()
        self._lines: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self, way: Way, *, after_bytes: int) -> None:
        """Break the WebSockets after `after_bytes` more bytes in that direction; later bytes are lost."""
        self._left[way] = after_bytes
        self._cut.clear()

    async def was_cut(self) -> None:
        """Wait for the cut.

        Raises:
            TimeoutError: too few bytes went in that direction.
        """
        async with asyncio.timeout(WAIT_S):
            await self._cut.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        if not self.server_port:
            writer.close()
            return
        first = await reader.read(READ_BYTES)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        ends = {writer, far_writer}
        is_line = first.startswith(WEBSOCKET)
        self.n_lines += is_line
        self._open |= ends
        self._lines |= ends if is_line else set()
        try:
            far_writer.write(first)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass("up", reader, far_writer, is_line=is_line), name="relay up")
                group.create_task(self._pass("down", far_reader, writer, is_line=is_line), name="relay down")
        finally:
            self._open -= ends
            self._lines -= ends
            for end in ends:
                end.close()

    def abort(self) -> None:
        """Drop all open connections."""
        for end in tuple(self._open):
            end.transport.abort()

    async def _pass(self, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_line: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(READ_BYTES):
                allowed = self._allowed(way, len(data)) if is_line else len(data)
                sink.write(data[:allowed])
                await sink.drain()
                if allowed < len(data):
                    self._break()
        sink.close()

    def _allowed(self, way: Way, n_bytes: int) -> int:
        left = self._left.get(way)
        if left is None:
            return n_bytes
        self._left[way] = left - n_bytes
        return min(left, n_bytes)

    def _break(self) -> None:
        self._left.clear()
        for end in tuple(self._lines):
            end.transport.abort()
        self._cut.set()


@asynccontextmanager
async def flaky_proxy(server_port: int) -> AsyncIterator[FlakyProxy]:
    """Start a proxy before the server on that port of loopback."""
    between = FlakyProxy(server_port)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    async with server:
        yield between
        between.abort()
