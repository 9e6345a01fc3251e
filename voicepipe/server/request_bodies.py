"""Read request bodies: each must keep a minimum rate, and one client can't use all of their memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from voicepipe.auth.rate_limit import subscriber
from voicepipe.clock import loop_s
from voicepipe.errors import Overload
from voicepipe.server.body_limits import BodyCounts
from voicepipe.server.errors import PEER

MAX_BODY_BYTES: Final = 1024 * 1024
"""Maximum size of a REST request's body. A session config with long instructions and many tools has some 100 kB."""

GRACE_S: Final = 10
"""Time after the headers before a body must keep the minimum rate."""

BYTES_PER_S: Final = 16_000
"""Minimum rate of a body: 128 kbit/s."""

MAX_BODY_S: Final = 120
"""Maximum time for any body. 25 MiB in that time is 1.7 Mbit/s."""

TOO_MANY: Final = "Too many request bodies are being received, and this one was the slowest of its client."

WAIT_MS: Final = 1_000
"""`Retry-After` of a body that was cut: other bodies take seconds."""


class BodyDeadline:
    """The time limit of a body in transit, which each byte extends, up to a limit."""

    def __init__(self) -> None:
        self._began_s = loop_s()
        self.limit = asyncio.timeout_at(self._began_s + GRACE_S)
        """The time limit that the body is read in."""

        self.is_cut = False

    def extend(self, n_bytes: int) -> None:
        """Extend it: this number of bytes has come in all."""
        if not self.is_cut and not self.limit.expired():
            self.limit.reschedule(self._began_s + min(MAX_BODY_S, GRACE_S + n_bytes / BYTES_PER_S))

    def cut(self) -> None:
        """End the body now: there are too many."""
        if not self.limit.expired():
            self.is_cut = True
            self.limit.reschedule(loop_s())


class Bodies:
    """The bodies in transit to one process. Belongs to one event loop."""

    def __init__(self, counts: BodyCounts) -> None:
        """`counts` has the bodies of all processes that serve the port."""
        self._counts = counts

    async def read(self, request: web.Request, take: Callable[[bytes], None]) -> None:
        """Pass a request's body to `take`, piece by piece, as it arrives. One that has arrived already is not counted.

        Raises:
            HTTPRequestTimeout: 408: the body comes too slowly.
            Overload: 503: too many bodies are in transit, and this one was the slowest of the client with the most
                bytes.
        """
        if request.content.is_eof():
            async for piece in request.content.iter_any():
                take(piece)
            return
        deadline = BodyDeadline()
        body = self._counts.begin(subscriber(request.get(PEER) or request.remote or ""), deadline.cut)
        try:
            async with deadline.limit:
                async for piece in request.content.iter_any():
                    take(piece)
                    self._counts.grow(body, len(piece))
                    deadline.extend(body.n_bytes)
        except TimeoutError:
            if deadline.is_cut:
                raise Overload(TOO_MANY, retry_after_ms=WAIT_MS) from None
            raise web.HTTPRequestTimeout from None
        finally:
            self._counts.end(body)


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
