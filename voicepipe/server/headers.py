"""Headers of every request and response beside its content: its trace, and what browsers may do with it."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import refusal
from voicepipe.telemetry.tracing.port import OUTGOING, REQUEST_TRACE, TraceContext

ALWAYS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

API: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Default `Cache-Control`: client secrets and turns must not be stored in caches."""

NO_FRAMES: Final = "frame-ancestors 'none'"
"""The part of a policy that forbids frames. Only such an answer also gets `X-Frame-Options`, for browsers that do not
support the policy: that header cannot name an origin."""

METHODS: Final = "GET, POST, DELETE, OPTIONS"
EXPOSED: Final = (
    "Location, Retry-After, X-Request-Id, X-Voicepipe-Cache, X-Voicepipe-Route, X-Voicepipe-TTFT-Ms, "
    "X-Voicepipe-TTFB-Ms"
)
"""Headers that a page's script may read."""

MAX_AGE_S: Final = 600
"""Time for which a browser may cache a preflight answer."""

READABLE_PATHS: Final[web.AppKey[frozenset[str]]] = web.AppKey("readable_paths", frozenset)
"""Paths of the endpoints with `any_origin_reads`."""

_NAMES: Final = re.compile(r"[A-Za-z0-9-]{1,64}(\s*,\s*[A-Za-z0-9-]{1,64}){0,63}")


async def add_headers(request: web.Request, answer: web.StreamResponse) -> None:
    """Add the headers that `answer` does not have yet; called before each response is sent."""
    for name, value in (ALWAYS | API).items():
        answer.headers.setdefault(name, value)
    if NO_FRAMES in answer.headers["Content-Security-Policy"]:
        answer.headers["X-Frame-Options"] = "DENY"
    answer.headers["Server"] = "voicepipe"  # the library's own header names its version
    origin = request.headers.get("Origin")
    if origin is not None:
        answer.headers.add("Vary", "Origin")
        if _may_read(request, origin):
            answer.headers["Access-Control-Allow-Origin"] = origin
            answer.headers["Access-Control-Expose-Headers"] = EXPOSED


@web.middleware
async def answer_preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a browser's preflight request (the Fetch standard, CORS).

    Pages of `server.allowed_origins` may send requests, and any page those of `READABLE_PATHS`. Cookies mean nothing
    here, so credentials are never allowed.
    """
    is_preflight = "Access-Control-Request-Method" in request.headers
    if request.method != "OPTIONS" or not is_preflight:
        return await handler(request)
    origin = request.headers.get("Origin", "")
    if not _may_read(request, origin):
        return refusal(
            403,
            f"Pages of {origin[:200]!r} may not use this server. Add the origin to server.allowed_origins, or send "
            "the request from your backend.",
            code="origin_not_allowed",
        )
    requested_headers = request.headers.get("Access-Control-Request-Headers", "").strip()
    headers = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_S)}
    if _NAMES.fullmatch(requested_headers):
        headers["Access-Control-Allow-Headers"] = requested_headers
    return web.Response(status=204, headers=headers)


def _may_read(request: web.Request, origin: str) -> bool:
    preflight = request.method == "OPTIONS"
    method = request.headers.get("Access-Control-Request-Method") if preflight else request.method
    if method == "GET" and request.path.rstrip("/") in request.app[READABLE_PATHS]:
        return True
    return origin in request.app[CONTEXT].options.allowed_origins


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
