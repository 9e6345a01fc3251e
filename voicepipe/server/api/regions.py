"""`GET /v1/regions`: the regions whose nodes serve the same clients, and whether this one accepts sessions."""

from __future__ import annotations

from aiohttp import web

from voicepipe.server.api.health import missing_parts
from voicepipe.server.api.turns import json_answer
from voicepipe.server.context import CONTEXT


async def list_regions(request: web.Request) -> web.Response:
    """Return `{"object": "list", "region", "ready", "data": [{"name", "url"}]}`.

    It needs no credential: a client measures the time of this request to find the nearest region, before it has a
    client secret of that region.
    """
    context = request.app[CONTEXT]
    return json_answer(
        {
            "object": "list",
            "region": context.region,
            "ready": not missing_parts(context),
            "data": [{"name": name, "url": url} for name, url in context.regions.items()],
        }
    )
