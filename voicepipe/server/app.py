"""Register all routes; open the port, and close it after a drain."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from aiohttp import web

from voicepipe.server.acceptor import Acceptor
from voicepipe.server.api.nodes import ANNOUNCER
from voicepipe.server.body_limits import BodyLimits
from voicepipe.server.connections import CONNECTIONS, Connections
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.decoding import DECODING, decoding
from voicepipe.server.descriptors import max_client_connections, raise_descriptor_limit, warn_of_few
from voicepipe.server.detached import DETACHED_TASKS
from voicepipe.server.endpoints import ENDPOINTS
from voicepipe.server.errors import refuse_in_json
from voicepipe.server.headers import READABLE_PATHS, add_headers, add_trace_header, answer_preflight, read_trace
from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.server.left_sessions import LeftSessions
from voicepipe.server.listeners import address, bound
from voicepipe.server.log_limit import LogLimit
from voicepipe.server.node_events import NodeFeed
from voicepipe.server.presence import Announcer
from voicepipe.server.request_bodies import BODIES, MAX_BODY_BYTES, Bodies
from voicepipe.server.workers.messages import Draining
from voicepipe.server.workers.query_answers import answer_queries
from voicepipe.server.workers.shared_waits import SharedBodies, SharedWaits
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.telemetry.isolation import keep_running

LAST_ANSWERS_S = 2.0
"""Time limit for running REST requests after the sessions have ended."""


def build_app(context: ServerContext) -> web.Application:
    """Return the app; each route exists with and without a trailing slash."""
    # aiohttp logs all subprotocols that a client offered when it finds no known one among them, and one holds the key.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
    app = web.Application(middlewares=[read_trace, refuse_in_json, answer_preflight], client_max_size=MAX_BODY_BYTES)
    app[CONTEXT] = context
    readable = [each for each in ENDPOINTS if each.any_origin_reads]
    app[READABLE_PATHS] = frozenset(path for each in readable for path in (each.path, *each.other_paths))
    app.on_response_prepare.extend((add_headers, add_trace_header))
    for each in ENDPOINTS:
        for path in (each.path, *each.other_paths):
            for variant in dict.fromkeys((path, f"{path.rstrip('/')}/")):
                app.router.add_route(each.method, variant, each.handler)
    return app


@asynccontextmanager
async def listening(context: ServerContext) -> AsyncIterator[str]:
    """Serve on the port of `context.options` while the block runs; yield the server's own address.

    A worker does not listen: it serves the connections that its supervisor passes on. Leaving the block accepts no new
    connections, gives running sessions `drain_ms`, then closes the remaining ones.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    max_descriptors = raise_descriptor_limit()
    warn_of_few(context.options, max_descriptors)
    limits, workers = context.options.connection_limits, context.workers
    waits = None if workers is None else SharedWaits(workers.link, "connection", limits.wait_caps)
    connections = Connections(limits, context.options.proxies, waits)
    bodies = BodyLimits() if workers is None else SharedBodies(workers.link)
    async with background_tasks() as detached, decoding() as decoders:
        app = build_app(context)
        app[DETACHED_TASKS], app[CONNECTIONS], app[BODIES] = detached, connections, Bodies(bodies)
        app[DECODING] = decoders
        app[ANNOUNCER] = announcer = Announcer(context, context.presence, context.node)
        runner = web.AppRunner(app, handle_signals=False, handler_cancellation=True, shutdown_timeout=LAST_ANSWERS_S)
        with nullcontext() if workers is None else workers.link.handling():
            await runner.setup()
            exchanging = [
                detached.start(keep_running("presence", announcer.run), name="presence"),
                *_shared_feed(context, detached),
                *_left_sessions(context, detached),
            ]
            try:
                listeners = bound(context.options) if workers is None else []
                acceptor = _acceptor(runner, listeners, context, connections, detached, max_descriptors)
                try:
                    if workers is None:
                        yield address(listeners, context.options)
                    else:
                        answer_queries(workers, context, app)
                        workers.link.on_connection = acceptor.take
                        yield workers.base_url
                finally:
                    acceptor.stop()
                    if workers is not None:
                        workers.link.send(Draining())
                    await context.live_sessions.drain(context.options.drain_ms)
            finally:
                for task in exchanging:
                    task.cancel()
                await runner.cleanup()


def _shared_feed(context: ServerContext, tasks: BackgroundTasks) -> list[asyncio.Task[None]]:
    """Start to exchange the live feed's events with the other nodes, if there may be any."""
    if context.node_events is None:
        return []
    reads = context.workers is None or context.workers.link.index == 0
    shared = NodeFeed(context.feed, context.node_events, context.node, reads=reads)
    return [tasks.start(keep_running("node-events", shared.run), name="node-events")]


def _left_sessions(context: ServerContext, tasks: BackgroundTasks) -> list[asyncio.Task[None]]:
    """Start to end the records of sessions that died with another node, if there may be any."""
    if context.left_snapshots is None:
        return []
    left = LeftSessions(context, context.left_snapshots)
    return [tasks.start(keep_running("left-sessions", left.run), name="left-sessions")]


def _acceptor(
    runner: web.AppRunner,
    listeners: list[socket.socket],
    context: ServerContext,
    connections: Connections,
    tasks: BackgroundTasks,
    n_descriptors: int,
) -> Acceptor:
    server, log_limit = runner.server, LogLimit()
    assert server is not None
    return Acceptor(
        listeners,
        connections,
        tasks,
        lambda connection: HttpProtocol(server, connection, log_limit),
        tls=context.tls,
        max_descriptors=max_client_connections(n_descriptors),
        log_limit=log_limit,
    )
