"""Open WebSockets for turns before they are needed.

    async with connection_pool.lifetime():                    # the composition root, around everything that uses
    providers
        with connection_pool.wanted(source):                  # a session with speech output: dial now
            async with connection_pool.lease(source) as context:  # a turn: the WebSocket is open
                ...

The pool keeps WebSockets alive and replaces them by the vendor's `SharingRules`. Pings detect a dead idle WebSocket,
and it is replaced. Outside of a lifetime each turn dials for itself, which is correct and slow.
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
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import B, Context, MultiplexedSocket, Source
from voicepipe.tasks import BackgroundTasks, background_tasks

SESSIONS_PER_SOCKET = 4
"""Sessions per free WebSocket: about one in four conversations is playing the agent. Source: Cartesia
docs, "Concurrency and WebSocket Limits", which counts four conversations to one generation."""

MAX_PAUSE_S = 30.0
"""Maximum pause between two attempts to dial a vendor that does not answer; the first pause is 1 s."""

PRECONNECT_S = 60.0
"""Interval in which an idle HTTP connection is used, so that it stays open: this client keeps it for two minutes,
servers for a minute or more."""

LOOK_S = 1.0
"""Interval of checks for WebSockets that were idle too long, and whether a vendor may be dialled again."""

_POOL_SETS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Pools]] = weakref.WeakKeyDictionary()
"""The pools of each running lifetime in the event loop: two servers may run in one loop. The newest lifetime is
used."""


@asynccontextmanager
async def lifetime() -> AsyncIterator[None]:
    """Keep WebSockets opened inside for later turns; leaving closes all of them."""
    loop = asyncio.get_running_loop()
    async with background_tasks() as owned:
        pools, pool_sets = _Pools(owned), _POOL_SETS.setdefault(loop, [])
        pool_sets.append(pools)
        try:
            yield
        finally:
            pool_sets.remove(pools)
            pools.close()


def _newest_pools() -> _Pools | None:
    pool_sets = _POOL_SETS.get(asyncio.get_running_loop())
    return pool_sets[-1] if pool_sets else None


@contextmanager
def keep_ready(source: Source[Any]) -> Iterator[None]:
    """Keep WebSockets ready for a session while the block runs. Returns at once, and never fails."""
    pools = _newest_pools()
    if pools is None:
        yield
        return
    pools.pool(source).add_sessions(1)
    try:
        yield
    finally:
        pools.pool(source).add_sessions(-1)


@contextmanager
def preconnected(address: ProviderAddress, path: str) -> Iterator[None]:
    """Keep a connection from `http`'s pool open, for a vendor that is used over HTTP."""
    pools = _newest_pools()
    if pools is None:
        yield
        return
    pools.preconnecting(address, path, 1)
    try:
        yield
    finally:
        pools.preconnecting(address, path, -1)


@asynccontextmanager
async def lease(source: Source[B]) -> AsyncIterator[Context[B]]:
    """Begin a turn, on a WebSocket that is ready if there is one: yields at once; if dialling failed, `receive` raises
    it.

    Leaving sends the messages of `Context.cancel`, and gives the WebSocket back, or closes it within 100 ms.
    """
    pools = _newest_pools()
    if pools is not None:
        socket = pools.pool(source).take()
        try:
            yield socket.begin()
        finally:
            socket.end()
        return
    async with background_tasks() as owned:
        socket = MultiplexedSocket(source, owned, changed=lambda: None)
        try:
            yield socket.begin()
        finally:
            socket.leave()
            socket.end()


class _Pools:
    """The WebSockets of an event loop."""

    def __init__(self, owned: BackgroundTasks) -> None:
        self._owned = owned
        self._pools: dict[Source[Any], _Pool[Any]] = {}
        self._preconnecting: dict[ProviderAddress, tuple[int, asyncio.Task[None]]] = {}
        """HTTP address -> the number of sessions that may use it, and the task that keeps a connection for them."""

    def pool(self, source: Source[B]) -> _Pool[B]:
        """Return the pool of the WebSockets to a source."""
        pool = self._pools.get(source)
        if pool is None:
            pool = self._pools[source] = _Pool(source, self._owned)
            self._owned.start(self._keep(source, pool), name=f"warm-{source.address.name}")
        return pool

    async def _keep(self, source: Source[Any], pool: _Pool[Any]) -> None:
        await pool.keep()
        if self._pools.get(source) is pool:
            del self._pools[source]

    def preconnecting(self, address: ProviderAddress, path: str, more: int) -> None:
        """Add this number of sessions, possibly negative, to the sessions that may use an address."""
        n_before, task = self._preconnecting.pop(address, (0, None))
        if task is None:
            task = self._owned.start(self._preconnect(address, path), name=f"warm-{address.name}")
        if n_before + more:
            self._preconnecting[address] = n_before + more, task
        else:
            task.cancel()

    async def _preconnect(self, address: ProviderAddress, path: str) -> None:
        while True:
            await http.preconnect(address, path)
            await asyncio.sleep(PRECONNECT_S)

    def close(self) -> None:
        """Close all."""
        for pool in self._pools.values():
            pool.close()


class _Pool(Generic[B]):
    """The WebSockets to one source: in use, ready, or being dialled."""

    def __init__(self, source: Source[B], owned: BackgroundTasks) -> None:
        self._source, self._owned = source, owned
        self._sockets: set[MultiplexedSocket[B]] = set()  # bounded: one for each turn, and the idle ones for sessions
        self._n_sessions = 0
        self._changed = asyncio.Event()
        self._n_failed = 0
        self._not_before_s = 0.0

    def add_sessions(self, more: int) -> None:
        """Add this number of sessions, possibly negative."""
        self._n_sessions += more
        self._changed.set()

    def take(self) -> MultiplexedSocket[B]:
        """Return a WebSocket on which a turn may begin: one that is open, or is being dialled, or is dialled now."""
        free = [socket for socket in self._sockets if socket.is_free]
        self._changed.set()
        return max(free, key=lambda socket: (socket.up_s is not None, socket.rested_s), default=None) or self._dial()

    async def keep(self) -> None:
        """Keep as many WebSockets ready as the sessions need; returns when there are neither sessions nor
        WebSockets."""
        while self._n_sessions or self._sockets:
            self._changed.clear()
            self._drop_closed()
            self._replace()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    def close(self) -> None:
        """Close all."""
        for socket in self._sockets:
            socket.leave()

    def _drop_closed(self) -> None:
        for socket in [socket for socket in self._sockets if socket.over]:
            self._sockets.discard(socket)
            if socket.up_s is None:
                self._n_failed += 1
                self._not_before_s = clock.loop_s() + min(MAX_PAUSE_S, 2.0 ** (self._n_failed - 1))

    def _replace(self) -> None:
        idle = [socket for socket in self._sockets if socket.active is None]
        ready = [socket for socket in idle if socket.is_free and not socket.is_rested]
        if any(socket.up_s is not None for socket in ready):
            self._n_failed = 0
        n_needed = math.ceil(self._n_sessions / SESSIONS_PER_SOCKET)
        if len(ready) < n_needed and clock.loop_s() >= self._not_before_s:
            ready += [self._dial() for _ in range(n_needed - len(ready))]
        if sum(socket.up_s is not None for socket in ready) >= n_needed:  # old ones are used until then
            for socket in idle:
                if socket.is_rested or socket.is_old:
                    socket.leave()

    def _dial(self) -> MultiplexedSocket[B]:
        socket = MultiplexedSocket(self._source, self._owned, changed=self._changed.set)
        self._sockets.add(socket)
        return socket
