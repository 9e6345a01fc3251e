"""Trace contexts of requests and answers: read from clients, and returned to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from voicepipe.telemetry.tracing import CALLER, OUTGOING, Caller

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def read_trace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the request's trace from its headers. Requests of one connection share a task: each starts a new context."""
    CALLER.set(Caller.of(request.headers.get("traceparent", ""), request.headers.get("tracestate", "")))
    OUTGOING.set("")
    return await handler(request)


async def tell_trace(request: web.Request, answer: web.StreamResponse) -> None:
    """Return the span in the answer's header, a WebSocket's too (W3C Trace Context level 2, `traceresponse`)."""
    if OUTGOING.get():
        answer.headers["traceresponse"] = OUTGOING.get()
