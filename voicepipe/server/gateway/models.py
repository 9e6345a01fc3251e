"""`GET /v1/models` and `/v1/models/{id}`: the models that the client may use in a chat completion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.errors import AuthError
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.chat_token_policy import check_may_request


async def list_models(request: web.Request) -> web.Response:
    """Return all models in the published shape: `{"object": "list", "data": [...]}`."""
    return _json({"object": "list", "data": [_wire(route) for route in await _allowed(request)]})


async def one_model(request: web.Request) -> web.Response:
    """Return the model of a name, which may have slashes."""
    name = request.match_info["id"].removesuffix("/")
    found = next((route for route in await _allowed(request) if route.name == name), None)
    if found is None:
        raise NotFound(f"There is no model {name[:64]!r} here.", param="id", code="model_not_found")
    return _json(_wire(found))


async def _allowed(request: web.Request) -> tuple[ChatRoute, ...]:
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    routes, claims = context.chat_models.listed(), principal.claims
    if claims is None:
        return routes
    handshake = context.authenticator.handshake(request)

    def allowed() -> Iterator[ChatRoute]:
        for route in routes:
            try:
                check_may_request(claims, route, handshake, context)
            except AuthError:
                continue
            yield route

    return tuple(allowed())


def _wire(route: ChatRoute) -> dict[str, Any]:
    # `created` is part of the shape, but the server has no vendor's release date.
    return {"id": route.name, "object": "model", "created": 0, "owned_by": route.owner}


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
