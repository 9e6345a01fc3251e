"""`python -m voicepipe.bench.load.flood URL`: flood a server until the standard input is closed, and print the counts.

Three kinds at once, each at a rate that one client can send: connections that are closed at once, connections that
never finish their request, and requests for client secrets, half of them with a wrong key.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from voicepipe import clock
from voicepipe.bench.load.concurrent_users import unlimited_session
from voicepipe.bench.load.fast_loop import run_fast

PER_S: Final = 100
"""Of each kind."""

MAX_HALF_OPEN: Final = 400
"""Half-open connections held at once; the oldest is closed for the next one."""

HALF_REQUEST: Final = b"GET /v1/realtime HTTP/1.1\r\nHost: flood\r\n"


class FloodCounts(msgspec.Struct):
    """Counts of what was sent."""

    connections: int = 0
    half_open: int = 0
    answers: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests for client secrets by their status."""

    def line(self) -> str:
        """Return the counts as text."""
        answers = ", ".join(f"{number} answered {status}" for status, number in self.answers.items())
        return f"{self.connections} connections, {self.half_open} half-open ones, client secrets: {answers or 'none'}"


class Flood:
    """The three kinds against one address."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.counts = FloodCounts()
        self._answers: Counter[str] = Counter()
        self._held: deque[asyncio.StreamWriter] = deque()  # bounded: the oldest is closed above MAX_HALF_OPEN

    @property
    def n_answers(self) -> int:
        """Return how many requests for client secrets were answered."""
        return sum(self._answers.values())

    async def run(self, ended: asyncio.Event) -> None:
        """Flood until `ended`."""
        async with unlimited_session() as web, asyncio.TaskGroup() as group:
            kinds = (self._connect, self._half_open, lambda: self._mint(web))
            tasks = [group.create_task(_repeat(kind), name=f"flood-{n}") for n, kind in enumerate(kinds)]
            await ended.wait()
            for task in tasks:
                task.cancel()
        for writer in self._held:
            writer.close()
        self.counts.answers = dict(self._answers)

    async def _connect(self) -> None:
        _, writer = await asyncio.open_connection(self._host, self._port)
        writer.close()
        self.counts.connections += 1

    async def _half_open(self) -> None:
        _, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(HALF_REQUEST)
        self._held.append(writer)
        self.counts.half_open += 1
        if len(self._held) > MAX_HALF_OPEN:
            self._held.popleft().close()

    async def _mint(self, web: aiohttp.ClientSession) -> None:
        headers = {"Authorization": "Bearer wrong"} if self.n_answers % 2 else {}
        url = f"http://{self._host}:{self._port}/v1/realtime/client_secrets"
        async with web.post(url, json={"session": {"type": "realtime"}}, headers=headers) as answer:
            await answer.read()
            self._answers[str(answer.status)] += 1


async def _repeat(kind: Callable[[], Awaitable[None]]) -> None:
    """Send one kind at its rate until cancelled. What the server refuses or drops is tried again."""
    due_ms = clock.monotonic_ms()
    while True:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            await kind()
        due_ms = max(due_ms + 1_000 // PER_S, clock.monotonic_ms() - 1_000)
        await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)


async def _until_closed(url: str) -> FloodCounts:
    """Flood until the standard input is closed."""
    parts = urlsplit(url)
    flood, ended = Flood(parts.hostname or "127.0.0.1", parts.port or 80), asyncio.Event()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        group.create_task(flood.run(ended), name="flood")
        await reader.read()
        ended.set()
    return flood.counts


def main() -> None:
    """Flood the server at the first argument."""
    sys.stdout.buffer.write(msgspec.json.encode(run_fast(_until_closed(sys.argv[1]))) + b"\n")


if __name__ == "__main__":
    main()
