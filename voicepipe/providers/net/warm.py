"""Open WebSockets for turns before they are needed.

    async with warm.lifetime():                    # the composition root, around everything that uses providers
        with warm.wanted(source):                  # a session with speech output: dial now
            async with warm.lease(source) as context:  # a turn: the WebSocket is open
                ...

WebSockets are kept alive and replaced as the vendor's `Plan` says. Pings detect a dead idle WebSocket, and it is
replaced. Outside of a lifetime each turn dials for itself, which is correct and slow.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic

from voicepipe import clock
from voicepipe.providers.net import http
from voicepipe.providers.net.contexts import B, Context, SharedSocket, Source
from voicepipe.providers.net.peer import Peer
from voicepipe.stages.helpers import Helpers, helpers

CALLERS_PER_SOCKET = 4
"""Sessions per free WebSocket: of users in a conversation, about one in four is hearing the agent. Source: Cartesia
docs, "Concurrency and WebSocket Limits", which counts four conversations to one generation."""

LONGEST_PAUSE_S = 30.0
"""Maximum pause between two attempts to dial a vendor that does not answer; the first pause is 1 s."""

TOUCH_S = 60.0
"""Interval in which an idle HTTP connection is used, so that it stays open: our side keeps it for two minutes, servers
for a minute or more."""

LOOK_S = 1.0
"""Interval of checks for WebSockets that were idle too long, and whether a vendor may be dialled again."""

_KEEPERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Keeper]] = weakref.WeakKeyDictionary()
"""One pool set for each lifetime that is running in the loop: two servers may run in one. The newest is used."""


@asynccontextmanager
async def lifetime() -> AsyncIterator[None]:
    """Keep WebSockets opened inside for later turns; leaving closes all of them."""
    loop = asyncio.get_running_loop()
    async with helpers() as owned:
        keeper, keepers = _Keeper(owned), _KEEPERS.setdefault(loop, [])
        keepers.append(keeper)
        try:
            yield
        finally:
            keepers.remove(keeper)
            keeper.close()


def _newest_keeper() -> _Keeper | None:
    keepers = _KEEPERS.get(asyncio.get_running_loop())
    return keepers[-1] if keepers else None


@contextmanager
def wanted(source: Source[Any]) -> Iterator[None]:
    """Keep WebSockets ready for a session while the block runs. Returns at once, and never fails."""
    keeper = _newest_keeper()
    if keeper is None:
        yield
        return
    keeper.shelf(source).callers(1)
    try:
        yield
    finally:
        keeper.shelf(source).callers(-1)


@contextmanager
def touched(peer: Peer, path: str) -> Iterator[None]:
    """Keep a connection from `http`'s pool open, for a vendor that is used over HTTP."""
    keeper = _newest_keeper()
    if keeper is None:
        yield
        return
    keeper.touching(peer, path, 1)
    try:
        yield
    finally:
        keeper.touching(peer, path, -1)


@asynccontextmanager
async def lease(source: Source[B]) -> AsyncIterator[Context[B]]:
    """Begin a turn, on a WebSocket that is ready if there is one: yields at once; if dialling failed, `receive` raises
    it.

    Leaving sends the messages of `Context.cancel`, and gives the WebSocket back, or closes it within 100 ms.
    """
    keeper = _newest_keeper()
    if keeper is not None:
        socket = keeper.shelf(source).take()
        try:
            yield socket.begin()
        finally:
            socket.end()
        return
    async with helpers() as owned:
        socket = SharedSocket(source, owned, changed=lambda: None)
        try:
            yield socket.begin()
        finally:
            socket.leave()
            socket.end()


class _Keeper:
    """All WebSockets of an event loop."""

    def __init__(self, owned: Helpers) -> None:
        self._owned = owned
        self._shelves: dict[Source[Any], _Shelf[Any]] = {}
        self._touching: dict[Peer, tuple[int, asyncio.Task[None]]] = {}
        """HTTP peer -> the number of sessions that may use it, and the task that keeps a connection for them."""

    def shelf(self, source: Source[B]) -> _Shelf[B]:
        """Return the pool of the WebSockets to a source."""
        shelf = self._shelves.get(source)
        if shelf is None:
            shelf = self._shelves[source] = _Shelf(source, self._owned)
            self._owned.start(self._keep(source, shelf), name=f"warm-{source.peer.name}")
        return shelf

    async def _keep(self, source: Source[Any], shelf: _Shelf[Any]) -> None:
        await shelf.keep()
        if self._shelves.get(source) is shelf:
            del self._shelves[source]

    def touching(self, peer: Peer, path: str, more: int) -> None:
        """Add this number of sessions, possibly negative, to those that may use a peer."""
        n_before, task = self._touching.pop(peer, (0, None))
        if task is None:
            task = self._owned.start(self._touch(peer, path), name=f"warm-{peer.name}")
        if n_before + more:
            self._touching[peer] = n_before + more, task
        else:
            task.cancel()

    async def _touch(self, peer: Peer, path: str) -> None:
        while True:
            await http.touch(peer, path)
            await asyncio.sleep(TOUCH_S)

    def close(self) -> None:
        """Close all."""
        for shelf in self._shelves.values():
            shelf.close()


class _Shelf(Generic[B]):
    """The WebSockets to one source: in use, ready, or being dialled."""

    def __init__(self, source: Source[B], owned: Helpers) -> None:
        self._source, self._owned = source, owned
        self._sockets: set[SharedSocket[B]] = set()  # bounded: one for each turn, and those kept free for sessions
        self._n_callers = 0
        self._changed = asyncio.Event()
        self._n_failed = 0
        self._not_before_s = 0.0

    def callers(self, more: int) -> None:
        """Add this number of sessions, possibly negative."""
        self._n_callers += more
        self._changed.set()

    def take(self) -> SharedSocket[B]:
        """Return a WebSocket on which a turn may begin: one that is open, or is being dialled, or is dialled now."""
        free = [socket for socket in self._sockets if socket.is_free]
        self._changed.set()
        return max(free, key=lambda socket: (socket.up_s is not None, socket.rested_s), default=None) or self._dial()

    async def keep(self) -> None:
        """Keep as many WebSockets ready as the sessions need; returns when there are neither sessions nor
        WebSockets."""
        while self._n_callers or self._sockets:
            self._changed.clear()
            self._drop_dead()
            self._replace()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    def close(self) -> None:
        """Close all."""
        for socket in self._sockets:
            socket.leave()

    def _drop_dead(self) -> None:
        for socket in [socket for socket in self._sockets if socket.over]:
            self._sockets.discard(socket)
            if socket.up_s is None:
                self._n_failed += 1
                self._not_before_s = clock.loop_s() + min(LONGEST_PAUSE_S, 2.0 ** (self._n_failed - 1))

    def _replace(self) -> None:
        idle = [socket for socket in self._sockets if socket.living is None]
        ready = [socket for socket in idle if socket.is_free and not socket.is_rested]
        if any(socket.up_s is not None for socket in ready):
            self._n_failed = 0
        wanted = math.ceil(self._n_callers / CALLERS_PER_SOCKET)
        if len(ready) < wanted and clock.loop_s() >= self._not_before_s:
            ready += [self._dial() for _ in range(wanted - len(ready))]
        if sum(socket.up_s is not None for socket in ready) >= wanted:  # old ones are used until then
            for socket in idle:
                if socket.is_rested or socket.is_old:
                    socket.leave()

    def _dial(self) -> SharedSocket[B]:
        socket = SharedSocket(self._source, self._owned, changed=self._changed.set)
        self._sockets.add(socket)
        return socket
