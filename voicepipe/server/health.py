"""`/healthz`: the process answers. `/readyz`: it can take a call, or what is missing for that.

A store in trouble makes no server unready: it takes calls without it, and another behind the same balancer would fare
no better with the same store.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from voicepipe.server.parts import PARTS
from voicepipe.telemetry.storage_log import troubles_plain


async def healthz(request: web.Request) -> web.Response:
    """200 for as long as the event loop turns."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """200 when sessions are taken; 503 with what is missing while models load, or while the server stops.

    `storage` is in the body while stores are in trouble, whatever the status.
    """
    parts = request.app[PARTS]
    missing = ("the server is stopping",) if parts.lobby.closing else parts.missing()
    status = {"status": "starting" if not parts.lobby.closing else "stopping", "missing": missing}
    storage = troubles_plain(parts.storage)
    body = (status if missing else {"status": "ready", "missing": []}) | ({"storage": storage} if storage else {})
    headers = {"Retry-After": "2"} if missing else {}
    return web.Response(
        status=503 if missing else 200, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )
