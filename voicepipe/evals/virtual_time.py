"""An event loop in virtual time: when it has nothing to do, its clock jumps to the next timer.

Client and server run in this one loop. What they send each other arrives at once, so the clock never jumps over it:
their connections are socket pairs of this process. TCP would hand some of it to another thread of the kernel. While
work runs in a thread, the clock stands still. While anything waits for a model in another process, it runs as the
machine's does: `clock.answer_from_outside`.
"""

from __future__ import annotations

import asyncio
import errno
import math
import selectors
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from ipaddress import ip_address
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

from voicepipe.clock import VirtualClock, outside_work, virtual_time, waits_outside

THREAD_TIMEOUT_S: Final = 10.0
"""Real time that a thread's work may take. Then the clock goes on, so that the deadlines of the server decide."""

BUSY_POLLS: Final = 20_000
"""Iterations of the loop at one instant, from which on each takes `BUSY_US`: a task that never waits would stop the
clock. The start of a server takes some hundred.
"""

BUSY_US: Final = 1_000

_NEAR_US: Final = 1e-3
"""Rounding error of a loop's time in seconds: a float has 1e-4 us after a year."""

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


def run_in_virtual_time(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in virtual time, and return its result."""
    virtual = VirtualClock()
    with virtual_time(virtual), asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(virtual)) as runner:
        return runner.run(work())


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the clock instead of waiting for it, unless an answer from outside is due."""

    def __init__(self, virtual: VirtualClock) -> None:
        super().__init__()
        self._virtual = virtual
        self._n_polls = 0
        """Iterations since the loop last had nothing to do."""

        self._n_late = 0
        """Waits that have taken longer than `THREAD_TIMEOUT_S`: the clock goes on without them."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._virtual.n_answers:
            self._virtual.follow()
            ready = super().select(timeout)
            self._virtual.follow()
            return ready
        self._virtual.leave()
        ready = super().select(0)
        if ready or timeout == 0:
            self._n_polls += 1
            if self._n_polls > BUSY_POLLS and not self._virtual.n_outside:
                self._virtual.elapsed_us += BUSY_US
            return ready
        self._n_polls = 0
        if timeout is None:  # no timer: only a thread or a signal can go on
            return super().select()
        self._n_late = min(self._n_late, self._virtual.n_outside)
        if self._virtual.n_outside > self._n_late:
            ready = super().select(THREAD_TIMEOUT_S)
            if ready:
                return ready
            self._n_late = self._virtual.n_outside
        due_us = timeout * 1e6
        near_us = round(due_us)
        self._virtual.elapsed_us += near_us if abs(due_us - near_us) < _NEAR_US else math.ceil(due_us)
        return []

    def listens(self, port: int) -> bool:
        """Return whether the loop accepts connections at this port."""
        return any(_listening_port(key.fd) == port for key in self.get_map().values())


def _listening_port(descriptor: int) -> int | None:
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError:  # no socket
        return None
    try:
        if listener.family == socket.AF_UNIX or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        return int(listener.getsockname()[1])
    finally:
        listener.detach()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs in virtual time what stays in this process. Connections to anything else are refused, except for an answer
    that is waited for.
    """

    def __init__(self, virtual: VirtualClock) -> None:
        self._virtual = virtual
        self._jumping = _JumpingSelector(virtual)
        self._halves: dict[frozenset[tuple[Any, ...]], tuple[socket.socket, socket.socket]] = {}
        """Both ends' addresses -> (the socket pair's other end, the TCP connection of the first one)."""

        super().__init__(self._jumping)
        virtual.is_within = self._serves_url

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.elapsed_us / 1e6

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Run a function in a thread; the clock stands still until it returns."""
        running = super().run_in_executor(executor, func, *args)
        self._virtual.n_outside += 1
        running.add_done_callback(self._came_in)
        return running

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect to a server of this loop, or to another one for an answer from outside.

        Raises:
            OSError: it is another one, and nothing waits for its answer.
        """
        if not self._serves(address):
            if waits_outside():
                await super().sock_connect(sock, address)
                return
            _refuse(f"a connection to {address}")
        with outside_work():
            await super().sock_connect(sock, address)

    async def subprocess_exec(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse to start a program, with an `OSError`."""
        _refuse("a program")

    async def subprocess_shell(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse to start a program, with an `OSError`."""
        _refuse("a program")

    def close(self) -> None:
        """Close the loop, and the connections that nothing accepted."""
        for half in self._halves.values():
            for each in half:
                each.close()
        self._halves.clear()
        super().close()

    def _came_in(self, _: asyncio.Future[Any]) -> None:
        self._virtual.n_outside -= 1

    def _serves(self, address: Any) -> bool:
        if not isinstance(address, tuple):  # of a Unix socket
            return False
        host, port, *_ = address
        return ip_address(host).is_loopback and self._jumping.listens(port)

    def _serves_url(self, url: str) -> bool:
        parts = urlsplit(url)
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
        return parts.port is not None and host.startswith("127.") and self._serves((host, parts.port))

    def _make_socket_transport(
        self, sock: socket.socket, protocol: Any, waiter: Any = None, *, extra: Any = None, server: Any = None
    ) -> asyncio.Transport:
        """Make the transport of a connection: of either end of one within this process over a socket pair in place of
        TCP.

        asyncio calls this for all connections without TLS.
        """
        peer = sock.getpeername()
        ends = frozenset((sock.getsockname(), peer))
        is_within = ends in self._halves or any(self._serves(end) for end in ends)
        own = self._paired(sock, ends) if is_within else sock
        transport: asyncio.Transport = super()._make_socket_transport(  # type: ignore[misc]  # not in typeshed
            own, protocol, waiter, extra={"peername": peer, **(extra or {})}, server=server
        )
        return transport

    def _paired(self, sock: socket.socket, ends: frozenset[tuple[Any, ...]]) -> socket.socket:
        """Return an end of the pair: for the first of both ends a new one. The clock stands still until the second."""
        if ends in self._halves:
            own, tcp = self._halves.pop(ends)
            self._virtual.n_outside -= 1
            tcp.close()
            sock.close()
            return own
        own, other = socket.socketpair()
        for each in (own, other):
            each.setblocking(False)
        self._halves[ends] = other, sock
        self._virtual.n_outside += 1
        return own


def _refuse(what: str) -> NoReturn:
    raise OSError(errno.ENETUNREACH, f"virtual time: {what} is refused, since the answer takes real time")
