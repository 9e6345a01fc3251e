"""Trace contexts of requests and answers: read from clients, and returned to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from voicepipe.telemetry.tracing.port import OUTGOING, REQUEST_TRACE, TraceContext

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def read_trace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the request's trace from its headers. Requests of one connection share a task: each starts a new context."""
    REQUEST_TRACE.set(TraceContext.of(request.headers.get("traceparent", ""), request.headers.get("tracestate", "")))
    OUTGOING.set("")
    return await handler(request)


async def add_trace_header(request: web.Request, answer: web.StreamResponse) -> None:
    """Return the span in the answer's header, a WebSocket's too (W3C Trace Context level 2, `traceresponse`)."""
    if OUTGOING.get():
        answer.headers["traceresponse"] = OUTGOING.get()
