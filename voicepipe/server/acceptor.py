"""Accept connections below TLS, so that a client that never begins its handshake has the same limits as any other.

The event loop's own servers do not do this: a handshake that never comes stays unseen for a minute. When descriptors
run out, asyncio writes a traceback for each connection of the backlog.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.server.connections import AcceptedConnection, Connections
from voicepipe.server.http_protocol import HttpProtocol, log_bad_http
from voicepipe.server.listeners import Listeners
from voicepipe.server.log_limit import LogLimit
from voicepipe.tasks import BackgroundTasks
from voicepipe.telemetry.log import log_event

FREED_AT_ONCE: Final = 16
"""Connections without a request that are closed when the process has run out of descriptors."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

MakeProtocol = Callable[[AcceptedConnection], HttpProtocol]


class Acceptor:
    """Starts the HTTP of connections: of those that its listening sockets accept, and of those that `take` gets."""

    def __init__(
        self,
        listeners: list[socket.socket],
        connections: Connections,
        tasks: BackgroundTasks,
        make_protocol: MakeProtocol,
        *,
        tls: ssl.SSLContext | None,
        max_descriptors: int,
        log_limit: LogLimit,
    ) -> None:
        """Start accepting.

        Args:
            listeners: the sockets; the acceptor owns them from now on.
            connections: counts connections without a request.
            tasks: own the handshakes.
            make_protocol: makes the protocol of a connection.
            tls: None: plain.
            max_descriptors: a connection that gets this descriptor or a higher one replaces another connection, or is
                closed.
            log_limit: limits log lines about connections that fail before HTTP.
        """
        self._connections, self._tasks = connections, tasks
        self._make_protocol, self._tls, self._max_descriptors = make_protocol, tls, max_descriptors
        self._bad_http_limit, self._full_limit = log_limit, LogLimit()
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._listeners = Listeners(listeners, self._take, self._free_descriptors)

    def stop(self) -> None:
        """Stop accepting, and close the sockets."""
        self._is_stopped = True
        self._listeners.stop()

    def take(self, client: socket.socket) -> None:
        """Start a connection that another process has accepted; after `stop` it is closed."""
        try:
            peer = client.getpeername()
        except OSError:  # the client has disconnected
            client.close()
            return
        if self._is_stopped:
            client.close()
        else:
            self._take(client, str(peer[0]))

    def _free_descriptors(self, problem: OSError) -> None:
        """Close connections without a request, if the process has run out of descriptors."""
        if problem.errno in EXHAUSTED:
            for _ in range(FREED_AT_ONCE):
                if not self._connections.close_oldest():
                    break
        self._log_full(problem.strerror or "accept failed")

    def _take(self, client: socket.socket, address: str) -> bool:
        """Start a connection if there is a descriptor for it; return whether no other connection was closed for it. A
        closed one keeps its descriptor until the loop's next iteration."""
        client.setblocking(False)
        is_below_limit = client.fileno() < self._max_descriptors
        if not is_below_limit and not self._connections.close_oldest():
            self._connections.n_closed["refused"] += 1
            self._log_full("all file descriptors for clients are in use")
            client.close()
            return False
        connection = AcceptedConnection(self._connections, address, lambda: _hang_up(client))
        task = self._tasks.start(self._open(client, connection), name="connection")
        task.add_done_callback(lambda _: self._drop_unless_open(client, connection))
        return is_below_limit

    async def _open(self, client: socket.socket, connection: AcceptedConnection) -> None:
        """Make the TLS handshake, if there is one; then the protocol runs without this task."""
        limit_s = None if self._tls is None else self._connections.limits.header_ms / 1_000
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(connection), client, ssl=self._tls, ssl_handshake_timeout=limit_s
            )
        except ssl.SSLError:
            log_bad_http(self._bad_http_limit, connection.address, "expected a TLS handshake, got other data")
        except OSError:
            pass  # the client has disconnected, or took too long

    def _drop_unless_open(self, client: socket.socket, connection: AcceptedConnection) -> None:
        """The connection may have been closed before the handshake began."""
        if not connection.is_open:
            connection.closed()
            client.close()

    def _log_full(self, why: str) -> None:
        unlogged = self._full_limit.take(monotonic_ms())
        if unlogged is not None:
            waiting = len(self._connections)
            log_event("connections_full", level=logging.WARNING, why=why, waiting=waiting, unlogged=unlogged)


def _hang_up(client: socket.socket) -> None:
    """End a handshake by closing its transport. Cancelling its task could leave a protocol that never learns of its
    end."""
    with suppress(OSError):  # it is closed already
        client.shutdown(socket.SHUT_RDWR)
