"""Count the sessions: a place for each, refused when all are taken, and the shutdown when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from voicepipe.errors import Overload
from voicepipe.session.socket import ClientSocket

FULL_WAIT_MS = 5_000
"""`Retry-After` when all places are taken: sessions last minutes."""

CLOSE_WAIT_MS = 2_000
"""Time for a client to answer the close frame before its connection is dropped."""


class Place:
    """The place of one session; the socket is added after the handshake."""

    def __init__(self) -> None:
        self.socket: ClientSocket | None = None


class SessionCapacity:
    """Counts the sessions. Belongs to one event loop."""

    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self.n_accepted = 0
        """Number of sessions accepted so far."""
        # Full: the next session is refused, never queued: a user who waits in silence hangs up.
        self._inside: set[Place] = set()
        self._all_left = asyncio.Event()
        self._all_left.set()
        self.closing = False

    def __len__(self) -> int:
        return len(self._inside)

    def check(self) -> None:
        """Check that a place is free now.

        Raises:
            Overload: all are taken, or the server is stopping.
        """
        if self.closing:
            raise Overload("The server is stopping.", retry_after_ms=FULL_WAIT_MS)
        if len(self._inside) >= self.max_sessions:
            raise Overload(
                f"Too many sessions on this server (limit {self.max_sessions}).", retry_after_ms=FULL_WAIT_MS
            )

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Take a place while the block runs.

        Raises:
            Overload: all are taken, or the server is stopping.
        """
        self.check()
        place = Place()
        self._inside.add(place)
        self.n_accepted += 1
        self._all_left.clear()
        try:
            yield place
        finally:
            self._inside.discard(place)
            if not self._inside:
                self._all_left.set()

    async def empty(self, within_ms: int) -> None:
        """Refuse new sessions; wait `within_ms` for the running ones to end, then close them, then drop their
        connections."""
        self.closing = True
        if await self.left(within_ms):
            return
        sockets = [place.socket for place in self._inside if place.socket is not None]
        async with asyncio.TaskGroup() as group:
            for socket in sockets:
                group.create_task(socket.close(1001, "The server is stopping."), name="close-session")
        if not await self.left(CLOSE_WAIT_MS):
            for place in self._inside:
                if place.socket is not None:
                    place.socket.abort()

    async def left(self, within_ms: int) -> bool:
        """Wait at most `within_ms` until no session is left; return whether that is so."""
        try:
            async with asyncio.timeout(within_ms / 1_000):
                await self._all_left.wait()
        except TimeoutError:
            return False
        return True
