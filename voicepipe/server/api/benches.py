"""`GET /v1/benches`: the scheduled benches, for the operator."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.server.context import CONTEXT


async def list_benches(request: web.Request) -> web.Response:
    """Return the latest run of each model of each scheduled bench, what has changed, and the cost."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    state = await asyncio.to_thread(context.benches)
    return web.Response(body=msgspec.json.encode(state), content_type="application/json")
