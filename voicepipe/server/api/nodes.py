"""`GET /v1/nodes`: the nodes that share a store, with their load."""

from __future__ import annotations

from aiohttp import web

from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.server.api.turns import json_answer
from voicepipe.server.context import CONTEXT
from voicepipe.server.presence import Announcer

ANNOUNCER: web.AppKey[Announcer] = web.AppKey("announcer", Announcer)


async def list_nodes(request: web.Request) -> web.Response:
    """Return the nodes by name; `complete` is false while the store is away."""
    principal = await request.app[CONTEXT].authenticator.admit(request)
    principal.check_scope(OPERATE_ALL)
    nodes, is_complete = await request.app[ANNOUNCER].nodes()
    return json_answer({"object": "list", "data": nodes, "complete": is_complete})
