"""Listen on a port, and accept connections without asyncio's own servers: a supervisor passes them to its workers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.server.options import ServerSettings

BACKLOG: Final = 1_024
"""Backlog of the kernel: 1000 clients may connect in one second."""

AT_ONCE: Final = 64
"""Connections accepted in one iteration of the loop."""

PAUSE_S: Final = 0.1
"""Pause between two attempts to accept when descriptors have run out. The socket stays readable while connections wait,
so there is no other way to pause."""

TakeConnection = Callable[[socket.socket, str], bool]


def bound(options: ServerSettings) -> list[socket.socket]:
    """Return the listening sockets.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    host, port = options.host, options.port
    try:
        return bind(host, port)
    except OSError as problem:
        why = problem.strerror if isinstance(problem, socket.gaierror) else os.strerror(problem.errno or 0)
        raise ConfigError(
            f"server.port: expected a port that is free on {host}, got {port}: {why}; choose another one with --port"
        ) from problem


def address(listeners: list[socket.socket], options: ServerSettings) -> str:
    """Return the server's own address; the system may have chosen the port."""
    port = listeners[0].getsockname()[1]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    scheme = "https" if options.has_tls else "http"  # a client cannot connect to the wildcards above
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`; port 0 takes a free one, the same for all.

    Raises:
        OSError: an address cannot be listened on.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            bound_port = listeners[0].getsockname()[1] if listeners else port
            listener = socket.create_server((address[0], bound_port), family=family, backlog=BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


class Listeners:
    """Accepts connections from listening sockets until it is stopped. Belongs to one event loop."""

    def __init__(
        self, sockets: list[socket.socket], take: TakeConnection, exhausted: Callable[[OSError], None]
    ) -> None:
        """Start accepting.

        Args:
            sockets: the sockets, owned from now on.
            take: takes a connection and its peer's address; False: let the loop run before the next one.
            exhausted: called when no connection can be accepted; the next attempt is after `PAUSE_S`.
        """
        self._sockets, self._take, self._exhausted = sockets, take, exhausted
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        for listener in sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def stop(self) -> None:
        """Stop accepting, and close the sockets."""
        for listener in self._sockets:
            self._loop.remove_reader(listener)
            listener.close()
        for paused in self._paused.values():
            paused.cancel()
        self._sockets, self._paused = [], {}

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                client, peer = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has disconnected
                continue
            except OSError as problem:
                self._rest(listener, problem)
                return
            if not self._take(client, str(peer[0])):
                return

    def _rest(self, listener: socket.socket, problem: OSError) -> None:
        """Stop accepting for a moment."""
        self._exhausted(problem)
        self._loop.remove_reader(listener)
        self._paused[listener] = self._loop.call_later(PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        del self._paused[listener]
        self._loop.add_reader(listener, self._accept, listener)
