"""Serve `/healthz` (the process answers) and `/readyz` (the process takes sessions, or the reasons why not).

A failing store does not make a server unready: the server takes sessions without it. Another server behind the same
balancer would have the same store.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.telemetry.storage_log import failing_stores_plain


async def healthz(request: web.Request) -> web.Response:
    """Return 200 while the event loop runs."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """Return 200 when sessions are accepted; 503 with the reasons while models load, or while the server stops.

    `storage` is in the body while stores fail, with either status.
    """
    context = request.app[CONTEXT]
    missing = missing_parts(context)
    status = {"status": "starting" if not context.live_sessions.closing else "stopping", "missing": missing}
    storage = failing_stores_plain(context.storage)
    body = (status if missing else {"status": "ready", "missing": []}) | ({"storage": storage} if storage else {})
    headers = {"Retry-After": "2"} if missing else {}
    return web.Response(
        status=503 if missing else 200, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )


def missing_parts(context: ServerContext) -> tuple[str, ...]:
    """Return why no sessions are accepted; empty when they are."""
    return ("the server is stopping",) if context.live_sessions.closing else context.missing()
