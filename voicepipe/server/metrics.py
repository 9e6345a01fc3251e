"""`GET /metrics`: the metrics for Prometheus, for an operator of all projects or from the allowed addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from voicepipe import __version__
from voicepipe.auth.networks import Networks
from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.router.health import Health
from voicepipe.server.connections import CONNECTIONS, WHYS, Connections
from voicepipe.server.parts import PARTS, Parts
from voicepipe.telemetry.families import Sample
from voicepipe.telemetry.loop_health import LoopFigures
from voicepipe.telemetry.prometheus import CONTENT_TYPE
from voicepipe.telemetry.storage_log import storage_samples

STATES = ("closed", "half_open", "open")


async def metrics(request: web.Request) -> web.Response:
    """Return all metrics in Prometheus' text format."""
    parts = request.app[PARTS]
    open_to = Networks(parts.options.metrics_from, key="server.metrics_from")
    shown = parts.doorway.shown(request)
    if shown.peer in open_to:
        parts.doorway.check_not_foreign(shown)
    else:
        visitor = await parts.doorway.admit(request)
        visitor.check_scope(OPERATE_ALL)
    loop = None if parts.loop is None else parts.loop.figures()
    # Read on the loop, where nothing changes meanwhile; formatted in a thread, which delays nothing.
    house = (*_of_house(parts), *_of_connections(request.app[CONNECTIONS]), *_of_providers(parts.healths()))
    now = [*house, *_of_loop(loop), *storage_samples(parts.storage), *parts.counts()]
    body = await asyncio.to_thread(parts.metrics.text, now, loop)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _of_house(parts: Parts) -> Iterator[Sample]:
    yield Sample("build_info", 1, (__version__,))
    yield Sample("ready", not parts.lobby.closing and not parts.missing())
    yield Sample("sessions", len(parts.lobby))
    yield Sample("sessions_limit", parts.lobby.max_sessions)
    yield Sample("sessions_opened_total", parts.lobby.n_came)
    for kind, places in (("chat", parts.chat_places), ("audio", parts.audio_places)):
        yield Sample("rest_running", len(places), (kind,))
        yield Sample("rest_limit", places.most, (kind,))


def _of_connections(connections: Connections) -> Iterator[Sample]:
    yield Sample("connections_waiting", len(connections))
    for why in WHYS:
        yield Sample("connections_closed_total", connections.n_closed[why], (why,))


def _of_providers(healths: tuple[Health, ...]) -> Iterator[Sample]:
    for its in healths:
        who = (its.stage, its.spec)
        for state in STATES:
            yield Sample("provider_state", its.state == state, (*who, state))
        yield Sample("provider_opened_total", its.n_opened, who)
        yield Sample("provider_alert", bool(its.alert), who)
        yield Sample("provider_in_flight", its.in_flight, who)
        for kind, count in its.errors:
            yield Sample("provider_errors_total", count, (*who, kind))


def _of_loop(loop: LoopFigures | None) -> Iterator[Sample]:
    if loop is None:
        return
    yield Sample("loop_holds_total", loop.n_held)
    yield Sample("gc_longest_pause_seconds", loop.gc_longest_ms / 1_000)
    for generation, (count, lasted_ms) in enumerate(zip(loop.gc_pauses, loop.gc_pause_ms, strict=True)):
        yield Sample("gc_pauses_total", count, (str(generation),))
        yield Sample("gc_pause_seconds_total", lasted_ms / 1_000, (str(generation),))
