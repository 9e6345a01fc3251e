"""Open the port, and close it in good order."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from voicepipe.errors import ConfigError
from voicepipe.server.acceptor import Acceptor, bind
from voicepipe.server.app import build_app
from voicepipe.server.bodies import BODIES, Bodies
from voicepipe.server.connections import CONNECTIONS, Connections
from voicepipe.server.context import ServerContext
from voicepipe.server.decoding import DECODING, decoding
from voicepipe.server.descriptors import most_for_clients, raise_descriptor_limit, warn_of_few
from voicepipe.server.detached import DETACHED_TASKS
from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.server.log_limit import LogLimit
from voicepipe.tasks import BackgroundTasks, background_tasks

LAST_ANSWERS_S = 2.0
"""Time limit for running REST requests after the sessions have ended."""


@asynccontextmanager
async def listening(context: ServerContext) -> AsyncIterator[str]:
    """Serve on the port of `context.options` while the block runs; yield the server's own address.

    Leaving the block accepts no new connections, gives running sessions `drain_ms`, then closes the remaining ones.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    most_descriptors = raise_descriptor_limit()
    warn_of_few(context.options, most_descriptors)
    connections = Connections(context.options.connection_limits, context.options.proxies)
    async with background_tasks() as detached, decoding() as decoders:
        app = build_app(context)
        app[DETACHED_TASKS], app[CONNECTIONS], app[BODIES] = detached, connections, Bodies()
        app[DECODING] = decoders
        runner = web.AppRunner(app, handle_signals=False, handler_cancellation=True, shutdown_timeout=LAST_ANSWERS_S)
        await runner.setup()
        try:
            acceptor, port = _opened(runner, context, connections, detached, most_descriptors)
            try:
                yield _address(port, context)
            finally:
                acceptor.stop()
                await context.live_sessions.drain(context.options.drain_ms)
        finally:
            await runner.cleanup()


def _opened(
    runner: web.AppRunner, context: ServerContext, connections: Connections, tasks: BackgroundTasks, n_descriptors: int
) -> tuple[Acceptor, int]:
    """Listen; return the port too, which the system may have chosen."""
    server, listeners, log_limit = runner.server, _bound(context.options.host, context.options.port), LogLimit()
    assert server is not None
    acceptor = Acceptor(
        listeners,
        connections,
        tasks,
        lambda connection: HttpProtocol(server, connection, log_limit),
        tls=context.tls,
        most_descriptors=most_for_clients(n_descriptors),
        log_limit=log_limit,
    )
    return acceptor, listeners[0].getsockname()[1]


def _bound(host: str, port: int) -> list[socket.socket]:
    try:
        return bind(host, port)
    except OSError as problem:
        why = problem.strerror if isinstance(problem, socket.gaierror) else os.strerror(problem.errno or 0)
        raise ConfigError(
            f"server.port: expected a port that is free on {host}, got {port}: {why}; choose another one with --port"
        ) from problem


def _address(port: int, context: ServerContext) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(context.options.host, context.options.host)
    scheme = "http" if context.tls is None else "https"  # a client cannot connect to the wildcards above
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
