"""Bodies of requests on their way: each must come at some rate, and one client's must not crowd out another's.

A body takes nothing but memory while it comes: no place among those who are answered. What all have in memory is
bounded; beyond it the client with most of it loses its slowest body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from voicepipe.auth.attempts import subscriber
from voicepipe.clock import loop_s
from voicepipe.errors import Overload
from voicepipe.server.refusals import PEER

MAX_BODY_BYTES: Final = 1024 * 1024
"""Of a REST request. A session config with long instructions and many tools has some 100 kB."""

GRACE_S: Final = 10
"""From the headers on, before a body must have come at the rate."""

BYTES_PER_S: Final = 16_000
"""The slowest that is waited for: 128 kbit/s."""

LONGEST_S: Final = 120
"""How long any body may take. 25 MiB in that time is 1.7 Mbit/s."""

ALL_BYTES: Final = 128 << 20
"""Of all bodies on their way: five of the largest, or the first half of ten."""

ADDRESS_BODIES: Final = 32
"""On their way from one client's address: twice as many as recordings are transcribed at once, by default."""

CROWDED: Final = "Too many requests' bodies are on their way, and this one was the slowest of its client."

WAIT_MS: Final = 1_000
"""When it is worth sending the body again that was cut: others' take seconds."""


class Body:
    """One body on its way."""

    def __init__(self) -> None:
        self._began_s = loop_s()
        self.limit = asyncio.timeout_at(self._began_s + GRACE_S)
        """What it is read in."""
        self.n_bytes = 0
        self.is_crowded_out = False

    @property
    def rate(self) -> float:
        """Bytes a second so far, as if a second more had passed: who has just begun is not slow yet."""
        return self.n_bytes / (loop_s() - self._began_s + 1)

    def grow(self, n_bytes: int) -> None:
        """Count so many more bytes, which give it time for more, to a point."""
        self.n_bytes += n_bytes
        if not self.is_crowded_out and not self.limit.expired():
            self.limit.reschedule(self._began_s + min(LONGEST_S, GRACE_S + self.n_bytes / BYTES_PER_S))

    def crowd_out(self) -> None:
        """End it now: there are too many."""
        if not self.limit.expired():
            self.is_crowded_out = True
            self.limit.reschedule(loop_s())


class Bodies:
    """All bodies on their way to one server. Belongs to one event loop."""

    def __init__(self) -> None:
        # bounded: by ADDRESS_BODIES for each address, and in bytes by ALL_BYTES for all
        self._of_address: dict[str, set[Body]] = {}
        self._n_bytes = 0

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._of_address.values()))

    async def read(self, request: web.Request, take: Callable[[bytes], None]) -> None:
        """Give a request's body to `take`, piece by piece, as it comes.

        Raises:
            HTTPRequestTimeout: 408: it comes too slowly.
            Overload: 503: too many are on their way, and this one was the slowest of who has most of them.
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
                            self._make_room()
            except TimeoutError:
                if body.is_crowded_out:
                    raise Overload(CROWDED, retry_after_ms=WAIT_MS) from None
                raise web.HTTPRequestTimeout from None

    @contextmanager
    def _counted(self, address: str, body: Body) -> Iterator[None]:
        its = self._of_address.setdefault(address, set())
        if len(its) >= ADDRESS_BODIES:
            _crowd_out_slowest(its)
        its.add(body)
        try:
            yield
        finally:
            self._n_bytes -= body.n_bytes
            its.remove(body)
            if not its:
                self._of_address.pop(address, None)

    def _make_room(self) -> None:
        """End the slowest body of who has most, unless those that are ending already make enough room."""
        staying = {who: [body for body in its if not body.is_crowded_out] for who, its in self._of_address.items()}
        n_bytes = {who: sum(body.n_bytes for body in its) for who, its in staying.items()}
        if sum(n_bytes.values()) > ALL_BYTES:
            _crowd_out_slowest(staying[max(n_bytes, key=n_bytes.__getitem__)])


def _crowd_out_slowest(bodies: Iterable[Body]) -> None:
    slowest = min((body for body in bodies if not body.is_crowded_out), key=lambda body: body.rate, default=None)
    if slowest is not None:
        slowest.crowd_out()


async def read_body(request: web.Request, most_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Read a whole body.

    Raises:
        HTTPRequestEntityTooLarge: 413.
        HTTPRequestTimeout: 408: it comes too slowly.
        Overload: 503: too many are on their way.
    """
    body = bytearray()

    def take(piece: bytes) -> None:
        body.extend(piece)
        if len(body) > most_bytes:
            raise web.HTTPRequestEntityTooLarge(max_size=most_bytes, actual_size=len(body))

    await request.app[BODIES].read(request, take)
    return bytes(body)


BODIES: Final = web.AppKey("bodies", Bodies)
