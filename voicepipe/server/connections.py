"""Connections that have sent no request yet, or none again: bounded for each client's address and by time.

Whoever connects is a stranger until their request is there. What they hold must cost nobody else anything: the oldest
of their own connections goes first, and where the process runs out of descriptors, the oldest of all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from aiohttp import web

from voicepipe.auth.attempts import subscriber
from voicepipe.auth.proxies import TrustedProxies
from voicepipe.server.connection_limits import ConnectionLimits

Why = Literal["headers", "address", "descriptors", "refused", "unread"]
"""Why the server closed a connection: its request did not come in time; its address had too many without a request; it
had to make room, since descriptors ran out; it found no room itself; its client did not take an answer."""

WHYS: Final[tuple[Why, ...]] = ("headers", "address", "descriptors", "refused", "unread")

PROXY_IDLE_S: Final = 3_630
"""How long a trusted proxy's connection may be idle: longer than proxies keep theirs, so that they close it first and
never send a request into a connection that we are closing. aiohttp's own default."""

UNREAD_S: Final = 30
"""How long a client may take nothing of an answer that is waiting for it."""


class Connection:
    """One accepted connection, from the accept on. Belongs to one event loop."""

    __slots__ = ("_address", "_close", "_connections", "_deadline", "_is_ended", "_is_waiting", "is_open", "trusted")

    def __init__(self, connections: Connections, address: str, close: Callable[[], object]) -> None:
        """Begin to wait for its first request; `close` ends it at once, whatever it is doing."""
        self._connections, self._address, self._close = connections, address, close
        self.trusted = address in connections.proxies
        """Whether a trusted proxy made it, for clients of many addresses."""
        self.is_open = False
        """Whether its handshake is over."""
        self._is_waiting = self._is_ended = False
        self._deadline: asyncio.TimerHandle | None = None
        self.wait()
        self.begin_headers()

    @property
    def address(self) -> str:
        """Whose it is, as the socket says it."""
        return self._address

    @property
    def limits(self) -> ConnectionLimits:
        """What it may cost."""
        return self._connections.limits

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered on it."""
        return self._is_waiting

    def opened(self, abort: Callable[[], None]) -> None:
        """Its handshake is over: there is a transport, which `abort` ends."""
        self.is_open, self._close = True, abort
        if self._is_ended:
            abort()

    def wait(self) -> None:
        """Count it among those without a request."""
        if not self._is_waiting and not self._is_ended:
            self._is_waiting = True
            self._connections.add(self)

    def begin_headers(self) -> None:
        """Give a request that has begun `header_ms` for its headers, once: more bytes don't give it more time."""
        if self._deadline is None:
            limit_s = self._connections.limits.header_ms / 1_000
            self._deadline = asyncio.get_running_loop().call_later(limit_s, self.close_for, "headers")

    def work(self) -> None:
        """The headers are there: what happens now is the request's own affair."""
        self._forget()

    def closed(self) -> None:
        """It is gone."""
        self._is_ended = True
        self._forget()

    def close_for(self, why: Why) -> None:
        """Close it, and count why."""
        self._is_ended = True
        self._forget()
        self._connections.n_closed[why] += 1
        self._close()

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._is_waiting:
            self._is_waiting = False
            self._connections.remove(self)


class Connections:
    """All connections that wait for a request, oldest first. Belongs to one event loop."""

    def __init__(self, limits: ConnectionLimits, proxies: TrustedProxies) -> None:
        """Begin with none. A trusted proxy has no bound: what its clients do is counted by their own addresses."""
        self.limits, self.proxies = limits, proxies
        self.n_closed: Counter[Why] = Counter()
        """How many the server has closed, and why."""
        # bounded: by `address_connections` for each address, and all together by the process's descriptors
        self._waiting: dict[Connection, None] = {}
        self._of_address: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, connection: Connection) -> None:
        """Count one; the oldest of its address goes when there are too many."""
        self._waiting[connection] = None
        if connection.trusted:
            return
        its = self._of_address.setdefault(subscriber(connection.address), {})
        its[connection] = None
        if len(its) > self.limits.address_connections:
            next(iter(its)).close_for("address")

    def remove(self, connection: Connection) -> None:
        """Count one no more."""
        del self._waiting[connection]
        if connection.trusted:
            return
        key = subscriber(connection.address)
        del self._of_address[key][connection]
        if not self._of_address[key]:
            del self._of_address[key]

    def close_oldest(self) -> bool:
        """Close what has waited longest, a trusted proxy's only if there is no other. False: none waits."""
        strangers = (each for each in self._waiting if not each.trusted)
        oldest = next(strangers, None) or next(iter(self._waiting), None)
        if oldest is not None:
            oldest.close_for("descriptors")
        return oldest is not None


CONNECTIONS: Final = web.AppKey("connections", Connections)
