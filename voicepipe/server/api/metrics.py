"""`GET /metrics`: the metrics for Prometheus, for an operator of all projects or from the allowed addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from voicepipe import __version__
from voicepipe.auth.networks import Networks
from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.router.health import Health
from voicepipe.server.connections import CLOSE_REASONS, CONNECTIONS, Connections
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.telemetry.event_loop import EventLoopFigures
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.prometheus import CONTENT_TYPE
from voicepipe.telemetry.storage_log import storage_samples

STATES = ("closed", "half_open", "open")


async def metrics(request: web.Request) -> web.Response:
    """Return all metrics in Prometheus' text format."""
    context = request.app[CONTEXT]
    open_to = Networks(context.options.metrics_allow, key="server.metrics_allow")
    handshake = context.authenticator.handshake(request)
    if handshake.peer in open_to:
        context.authenticator.check_not_foreign(handshake)
    else:
        principal = await context.authenticator.admit(request)
        principal.check_scope(OPERATE_ALL)
    if context.workers is None:
        body = await own_metrics(context, request.app[CONNECTIONS])
    else:
        body = await context.workers.metrics()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def own_metrics(context: ServerContext, connections: Connections) -> bytes:
    """Return the text of this process."""
    loop = None if context.loop is None else context.loop.figures()
    # Read on the loop, where nothing changes meanwhile; formatted in a thread, which delays nothing.
    server = (*_of_server(context), *_of_connections(connections), *_of_providers(context.healths()))
    now = [*server, *_of_loop(loop), *storage_samples(context.storage), *context.counts()]
    return await asyncio.to_thread(context.metrics.text, now, loop)


def _of_server(context: ServerContext) -> Iterator[Sample]:
    yield Sample("build_info", 1, (__version__,))
    if context.workers is None:  # else the supervisor counts them
        yield Sample("workers", 1)
        yield Sample("worker_restarts_total", 0)
    yield Sample("ready", not context.live_sessions.closing and not context.missing())
    yield Sample("sessions", len(context.live_sessions))
    yield Sample("sessions_limit", context.live_sessions.max_sessions)
    yield Sample("sessions_opened_total", context.live_sessions.n_accepted)
    for reason, count in context.live_sessions.n_refused.items():
        yield Sample("sessions_refused_total", count, (reason,))
    for stage, share in context.local_loads().items():
        yield Sample("local_model_busy_ratio", share, (stage,))
    for kind, slots in (("chat", context.chat_slots), ("audio", context.audio_slots)):
        yield Sample("http_requests_running", len(slots), (kind,))
        yield Sample("http_requests_limit", slots.caps.all, (kind,))
    yield from _of_response_cache(context.response_cache)


def _of_response_cache(cache: ResponseCache) -> Iterator[Sample]:
    if cache.is_on:
        for result, count in cache.counts():
            yield Sample("response_cache_requests_total", count, (result,))
        yield Sample("response_cache_saved_usd_total", cache.saved_usd)
        yield Sample("response_cache_bytes", cache.n_bytes)


def _of_connections(connections: Connections) -> Iterator[Sample]:
    yield Sample("connections_waiting", len(connections))
    for why in CLOSE_REASONS:
        yield Sample("connections_closed_total", connections.n_closed[why], (why,))


def _of_providers(healths: tuple[Health, ...]) -> Iterator[Sample]:
    for health in healths:
        who = (health.stage, health.spec)
        for state in STATES:
            yield Sample("provider_state", health.state == state, (*who, state))
        yield Sample("circuit_breaker_opened_total", health.n_opened, who)
        yield Sample("provider_alert", bool(health.alert), who)
        yield Sample("provider_in_flight", health.in_flight, who)
        for kind, count in health.errors:
            yield Sample("provider_errors_total", count, (*who, kind))


def _of_loop(loop: EventLoopFigures | None) -> Iterator[Sample]:
    if loop is None:
        return
    yield Sample("event_loop_stalls_total", loop.n_stalls)
    yield Sample("gc_longest_pause_seconds", loop.gc_longest_ms / 1_000)
    for generation, (count, lasted_ms) in enumerate(zip(loop.gc_pauses, loop.gc_pause_ms, strict=True)):
        yield Sample("gc_pauses_total", count, (str(generation),))
        yield Sample("gc_pause_seconds_total", lasted_ms / 1_000, (str(generation),))
