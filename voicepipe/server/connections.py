"""Connections without a request, new or idle: limited per client address and by time.

A connection is not trusted before its request arrives, and must not cost other clients anything. The oldest connection
of the same address is closed first. When the process runs out of descriptors, the oldest of all is closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from aiohttp import web

from voicepipe.auth.proxies import TrustedProxies
from voicepipe.server.connection_limits import ConnectionLimits
from voicepipe.server.wait_limits import WaitingConnection, WaitLimits, Waits, of_address

Why = Literal["headers", "address", "descriptors", "refused", "unread"]
"""Why the server closed a connection: its request did not come in time; its address had too many without a request; it
was closed to free a descriptor; no descriptor was free for it; its client did not read an answer."""

CLOSE_REASONS: Final[tuple[Why, ...]] = ("headers", "address", "descriptors", "refused", "unread")

PROXY_IDLE_S: Final = 3_630
"""Idle timeout of a trusted proxy's connection: longer than the proxy's own. So the proxy closes it first and never
sends a request into a closing connection. aiohttp's own default."""

UNREAD_S: Final = 30
"""Timeout of a client that reads nothing of its answer."""


class AcceptedConnection:
    """An accepted connection, from the accept on. Belongs to one event loop."""

    __slots__ = (
        *("_address", "_close", "_connections", "_deadline", "_is_ended"),
        *("is_open", "is_waiting", "trusted", "wait_of_address"),
    )

    def __init__(self, connections: Connections, address: str, close: Callable[[], object]) -> None:
        """Start to wait for the first request; `close` ends the connection at once, in any state."""
        self._connections, self._address, self._close = connections, address, close
        self.trusted = address in connections.proxies
        """Whether a trusted proxy made it, for clients of many addresses."""
        self.is_open = False
        """Whether its handshake is complete."""
        self.is_waiting = self._is_ended = False
        """Whether no request is being answered on it: an attribute, since each frame of audio reads it."""
        self._deadline: asyncio.TimerHandle | None = None
        self.wait_of_address: WaitingConnection | None = None
        """Its slot among the connections of its address; None: it has none now."""
        self.wait()
        self.begin_headers()

    @property
    def address(self) -> str:
        """The peer's address, from the socket."""
        return self._address

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of the connection."""
        return self._connections.limits

    def opened(self, abort: Callable[[], None]) -> None:
        """Mark the handshake as complete: from now on there is a transport, which `abort` ends."""
        self.is_open, self._close = True, abort
        if self._is_ended:
            abort()

    def wait(self) -> None:
        """Count it among the connections without a request."""
        if not self.is_waiting and not self._is_ended:
            self.is_waiting = True
            self._connections.add(self)

    def begin_headers(self) -> None:
        """Set the deadline for a request's headers, `header_ms` after its first byte: more bytes do not extend it."""
        if self._deadline is None:
            limit_s = self._connections.limits.header_ms / 1_000
            self._deadline = asyncio.get_running_loop().call_later(limit_s, self.close_for, "headers")

    def work(self) -> None:
        """Stop the deadline: the headers have arrived, and the request has its own limits."""
        self._stop_waiting()

    def closed(self) -> None:
        """Remove the closed connection."""
        self._is_ended = True
        self._stop_waiting()
        self._connections.on_closed()

    def close_for(self, why: Why) -> None:
        """Close it, and count the reason."""
        self._is_ended = True
        self._stop_waiting()
        self._connections.n_closed[why] += 1
        self._close()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.is_waiting:
            self.is_waiting = False
            self._connections.remove(self)


class Connections:
    """The connections that wait for a request, oldest first. Belongs to one event loop."""

    def __init__(self, limits: ConnectionLimits, proxies: TrustedProxies, waits: Waits | None = None) -> None:
        """Begin with none. A trusted proxy has no limit: its clients are counted by their own addresses. `waits` counts
        the connections of all processes that serve the port; None: there are no others."""
        self.limits, self.proxies = limits, proxies
        self._waits = WaitLimits(limits.wait_caps) if waits is None else waits
        self.n_closed: Counter[Why] = Counter()
        """Number of connections that the server has closed, per reason."""

        self.on_closed: Callable[[], object] = int
        """Called when a connection is closed, by either side."""

        # bounded: `address_connections` per address, and the process's descriptors in total
        self._waiting: dict[AcceptedConnection, None] = {}

    def __len__(self) -> int:
        """Number of connections that wait."""
        return len(self._waiting)

    def add(self, connection: AcceptedConnection) -> None:
        """Add one; the oldest of its address is closed when there are too many."""
        self._waiting[connection] = None
        if not connection.trusted:
            drop = partial(connection.close_for, "address")
            connection.wait_of_address = self._waits.begin(of_address(connection.address), drop)

    def remove(self, connection: AcceptedConnection) -> None:
        """Remove one."""
        del self._waiting[connection]
        if connection.wait_of_address is not None:
            self._waits.end(connection.wait_of_address)
            connection.wait_of_address = None

    def close_oldest(self) -> bool:
        """Close the connection that has waited longest, a trusted proxy's only without another. False: none waits."""
        untrusted = (each for each in self._waiting if not each.trusted)
        oldest = next(untrusted, None) or next(iter(self._waiting), None)
        if oldest is not None:
            oldest.close_for("descriptors")
        return oldest is not None


CONNECTIONS: Final = web.AppKey("connections", Connections)
