"""Whom to attack, with which credentials, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed

HANG_S = 180.0
"""The bound of every wait: far over what a healthy server needs, so that only a hang meets it."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, and what a visitor's browser or a customer's backend would hold."""

    url: str
    """`http://HOST:PORT`."""

    key: str
    """An API key: only good users have it."""

    secret: str
    """A client secret without limits: attackers have it."""

    seed: int = 7
    """Of every random choice."""

    scale: float = 1.0
    """How much larger than usual a random search is."""

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of everything."""
        return urlsplit(self.url).port or 80

    def socket_url(self, query: str = "") -> str:
        """The WebSocket's address, with what stands behind the question mark."""
        return f"{self.url.replace('http', 'ws', 1)}/v1/realtime{'?' if query else ''}{query}"

    def headers(self, credential: str | None = None) -> dict[str, str]:
        """Those of a request with that credential; None takes the client secret."""
        return {"Authorization": f"Bearer {self.secret if credential is None else credential}"}

    async def line(self, query: str = "", *, credential: str | None = None, **more: Any) -> ClientConnection:
        """Open a WebSocket that never pings by itself. An empty `credential` sends none.

        Raises:
            InvalidStatus: the server refused.
        """
        headers = self.headers(credential) if credential != "" else {}
        more = {"ping_interval": None, "compression": None, "max_size": None, "open_timeout": HANG_S, **more}
        return await connect(self.socket_url(query), additional_headers=headers, proxy=None, **more)

    async def tcp(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a bare connection."""
        return await asyncio.open_connection(self.host, self.port)


@dataclass(slots=True)
class Sent:
    """What an attack sent, and what it saw."""

    events: int = 0
    n_bytes: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    async def send(self, line: Connection, message: str | bytes | Event) -> None:
        """Send one message and count it; an event is written as JSON."""
        data = json.dumps(message) if isinstance(message, dict) else message
        await line.send(data)
        self.events += 1
        self.n_bytes += len(data)

    def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Send bytes and count them as one event."""
        writer.write(data)
        self.events += 1
        self.n_bytes += len(data)


Run = Callable[[Target], Coroutine[Any, Any, Sent]]


async def until(line: Connection, *kinds: str) -> Event:
    """The next event of one of these types, passing over others.

    Raises:
        TimeoutError: there was none within `HANG_S`.
        ConnectionClosed: the line was closed.
    """
    async with asyncio.timeout(HANG_S):
        while True:
            event: Event = json.loads(await line.recv())
            if event["type"] in kinds:
                return event


async def count_events(line: Connection, sent: Sent) -> None:
    """Read to the line's end: count events by type, errors by code, and the close code."""
    try:
        async for message in line:
            if isinstance(message, bytes):
                sent.seen["binary frame"] += 1
                continue
            event = json.loads(message)
            is_error = event["type"] == "error"
            sent.seen[f"error {event['error']['code']}" if is_error else event["type"]] += 1
    except ConnectionClosed:
        pass  # counted below as any other end
    sent.seen[f"closed {line.close_code}"] += 1


async def written_turn(line: Connection, text: str = "hello") -> tuple[str, float | None]:
    """Ask in writing; return how the response ended, and after how many ms its first sound came (None: never).

    Raises:
        TimeoutError: no end within `HANG_S`.
        ConnectionClosed: the line was closed.
    """
    now = asyncio.get_running_loop().time
    began_s, first_ms = now(), None
    await line.send(json.dumps(user_item([{"type": "input_text", "text": text}])))
    await line.send('{"type":"response.create"}')
    async with asyncio.timeout(HANG_S):
        while True:
            event = json.loads(await line.recv())
            if event["type"] == "response.output_audio.delta" and first_ms is None:
                first_ms = (now() - began_s) * 1_000
            if event["type"] == "response.done":
                return event["response"]["status"], first_ms


def user_item(content: list[Event], **more: Any) -> Event:
    """A `conversation.item.create` of the user's."""
    return {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": content, **more},
    }


def session_update(**session: Any) -> Event:
    """A `session.update`."""
    return {"type": "session.update", "session": {"type": "realtime", **session}}
