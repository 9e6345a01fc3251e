"""`/v1/responses/{id}`: read and delete a stored response, and list its input items."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.clock import unix_s
from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.response_conversation import MAX_BYTES, owner_of, written_items

MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 20
"""Items of a page of the list, as published."""


async def one_response(request: web.Request) -> web.Response:
    """Return a stored response."""
    context, principal, id_ = await _admitted(request)
    if request.query.get("stream") == "true":
        why = "This server can't replay the events of a response. Leave out 'stream' to read the whole response."
        raise ProtocolError(why, field="stream", code="unsupported_parameter")
    found = await context.responses.find(id_, owner_of(principal), now_s=unix_s())
    if found is None:
        raise _not_found(id_)
    return web.Response(body=found.body, content_type="application/json")


async def delete_response(request: web.Request) -> web.Response:
    """Delete a stored response. Responses that follow it can no longer be continued."""
    context, principal, id_ = await _admitted(request)
    if not await context.responses.delete(id_, owner_of(principal)):
        raise _not_found(id_)
    return _json({"id": id_, "object": "response", "deleted": True})


async def cancel_response(request: web.Request) -> web.Response:
    """Refuse: no response runs in the background."""
    await _admitted(request)
    raise ProtocolError(
        "Only a response with background=true can be cancelled, and this server runs none. Close the connection of a "
        "response to cancel it.",
        code="unsupported_parameter",
    )


async def input_items(request: web.Request) -> web.Response:
    """Return a page of the input items, including those of earlier responses; newest first, unless `order=asc`."""
    context, principal, id_ = await _admitted(request)
    found = await context.responses.conversation(id_, owner_of(principal), now_s=unix_s(), max_bytes=MAX_BYTES)
    if not found:
        raise _not_found(id_)
    items = list(written_items(found))
    if _choice(request, "order", ("desc", "asc")) == "desc":
        items.reverse()
    after, limit = request.query.get("after"), _limit(request)
    first = next((n for n, item in enumerate(items, 1) if item["id"] == after), 0)
    page = items[first : first + limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return _json({"object": "list", "data": page, **ends, "has_more": len(items) > first + limit})


async def _admitted(request: web.Request) -> tuple[ServerContext, Principal, str]:
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    return context, principal, request.match_info["id"]


def _not_found(id_: str) -> NotFound:
    return NotFound(f"Response with id {id_[:64]!r} not found.", param="id", code="response_not_found")


def _choice(request: web.Request, name: str, choices: tuple[str, ...]) -> str:
    value = request.query.get(name, choices[0])
    if value not in choices:
        raise ProtocolError(f"Expected {' or '.join(choices)}.", field=name, code="invalid_value")
    return value


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_LIMIT:
        raise ProtocolError(f"Expected a whole number from 1 to {MAX_LIMIT}.", field="limit", code="invalid_value")
    return int(text)


def _json(body: JsonObject) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
