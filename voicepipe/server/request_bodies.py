"""Limit request bodies in transit: each must keep a minimum rate, and one client can't use all of their memory.

An incomplete body takes only memory, not a slot among the requests that are answered. The memory of all bodies is
bounded. Beyond it the client with the most bytes loses its slowest body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from voicepipe.auth.rate_limit import subscriber
from voicepipe.clock import loop_s
from voicepipe.errors import Overload
from voicepipe.server.errors import PEER

MAX_BODY_BYTES: Final = 1024 * 1024
"""Maximum size of a REST request's body. A session config with long instructions and many tools has some 100 kB."""

GRACE_S: Final = 10
"""Time after the headers before a body must keep the minimum rate."""

BYTES_PER_S: Final = 16_000
"""Minimum rate of a body: 128 kbit/s."""

MAX_BODY_S: Final = 120
"""Maximum time for any body. 25 MiB in that time is 1.7 Mbit/s."""

ALL_BYTES: Final = 128 << 20
"""Memory of all bodies in transit: five of the largest, or the first half of ten."""

ADDRESS_BODIES: Final = 32
"""Bodies in transit from one client's address: by default twice as many as recordings are transcribed at once."""

TOO_MANY: Final = "Too many request bodies are being received, and this one was the slowest of its client."

WAIT_MS: Final = 1_000
"""`Retry-After` of a body that was cut: other bodies take seconds."""


class Body:
    """A body in transit."""

    def __init__(self) -> None:
        self._began_s = loop_s()
        self.limit = asyncio.timeout_at(self._began_s + GRACE_S)
        """The time limit that the body is read in."""
        self.n_bytes = 0
        self.is_evicted = False

    @property
    def rate(self) -> float:
        """Bytes per second so far, as if one more second had passed: a body that has just started is not slow yet."""
        return self.n_bytes / (loop_s() - self._began_s + 1)

    def grow(self, n_bytes: int) -> None:
        """Add this number of bytes, which extends the body's deadline, up to a limit."""
        self.n_bytes += n_bytes
        if not self.is_evicted and not self.limit.expired():
            self.limit.reschedule(self._began_s + min(MAX_BODY_S, GRACE_S + self.n_bytes / BYTES_PER_S))

    def evict(self) -> None:
        """Cut the body now: there are too many."""
        if not self.limit.expired():
            self.is_evicted = True
            self.limit.reschedule(loop_s())


class Bodies:
    """The bodies in transit to one server. Belongs to one event loop."""

    def __init__(self) -> None:
        # bounded: ADDRESS_BODIES per address, and ALL_BYTES bytes in total
        self._of_address: dict[str, set[Body]] = {}
        self._n_bytes = 0

    def __len__(self) -> int:
        """Number of bodies in transit."""
        return sum(map(len, self._of_address.values()))

    async def read(self, request: web.Request, take: Callable[[bytes], None]) -> None:
        """Pass a request's body to `take`, piece by piece, as it arrives.

        Raises:
            HTTPRequestTimeout: 408: the body comes too slowly.
            Overload: 503: too many bodies are in transit, and this one was the slowest of the client with the most
                bytes.
        """
        body = Body()
        with self._counted(subscriber(request.get(PEER) or request.remote or ""), body):
            try:
                async with body.limit:
                    async for piece in request.content.iter_any():
                        take(piece)
                        body.grow(len(piece))
                        self._n_bytes += len(piece)
                        if self._n_bytes > ALL_BYTES:
                            self._evict_if_full()
            except TimeoutError:
                if body.is_evicted:
                    raise Overload(TOO_MANY, retry_after_ms=WAIT_MS) from None
                raise web.HTTPRequestTimeout from None

    @contextmanager
    def _counted(self, address: str, body: Body) -> Iterator[None]:
        bodies = self._of_address.setdefault(address, set())
        if len(bodies) >= ADDRESS_BODIES:
            _evict_slowest(bodies)
        bodies.add(body)
        try:
            yield
        finally:
            self._n_bytes -= body.n_bytes
            bodies.remove(body)
            if not bodies:
                self._of_address.pop(address, None)

    def _evict_if_full(self) -> None:
        """Cut the slowest body of the client with the most bytes, unless bodies that are ending already free enough
        memory."""
        staying = {who: [body for body in bodies if not body.is_evicted] for who, bodies in self._of_address.items()}
        n_bytes = {who: sum(body.n_bytes for body in bodies) for who, bodies in staying.items()}
        if sum(n_bytes.values()) > ALL_BYTES:
            _evict_slowest(staying[max(n_bytes, key=n_bytes.__getitem__)])


def _evict_slowest(bodies: Iterable[Body]) -> None:
    slowest = min((body for body in bodies if not body.is_evicted), key=lambda body: body.rate, default=None)
    if slowest is not None:
        slowest.evict()


async def read_body(request: web.Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read a whole body.

    Raises:
        HTTPRequestEntityTooLarge: 413.
        HTTPRequestTimeout: 408: the body comes too slowly.
        Overload: 503: too many bodies are in transit.
    """
    body = bytearray()

    def take(piece: bytes) -> None:
        body.extend(piece)
        if len(body) > max_bytes:
            raise web.HTTPRequestEntityTooLarge(max_size=max_bytes, actual_size=len(body))

    await request.app[BODIES].read(request, take)
    return bytes(body)


BODIES: Final = web.AppKey("bodies", Bodies)
