"""Register all routes."""

from __future__ import annotations

import logging

from aiohttp import web

from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.endpoints import ENDPOINTS
from voicepipe.server.errors import refuse_in_json
from voicepipe.server.headers import READABLE_PATHS, add_headers, add_trace_header, answer_preflight, read_trace
from voicepipe.server.request_bodies import MAX_BODY_BYTES


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
