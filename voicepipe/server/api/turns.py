"""`GET /v1/turns` and `/v1/turns/{id}`: the records of the client's own project, or of its token's own sessions."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.auth.tokens import session_prefix
from voicepipe.server.api.query import own_sessions_only, turn_query
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound
from voicepipe.telemetry.store.port import Cursor, StoredTurn, TurnPage, redacted_turn, turn_plain


async def list_turns(request: web.Request) -> web.Response:
    """Return turns, newest or slowest first, a page at a time: `{"object": "list", "data": [...], "next": cursor or
    null}`."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    query = turn_query(request.query)
    own_sessions_only(query.session, own_prefix(principal))
    page = await context.turns.list(principal.requested_project(request.query.get("project")), query)
    body = await asyncio.to_thread(_page_json, page, principal)  # 0.1 ms per turn
    return web.Response(body=body, content_type="application/json")


async def one_turn(request: web.Request) -> web.Response:
    """Return the turn of that ID; a turn of another project is as unknown as a missing one."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    id_, prefix = request.match_info["id"], own_prefix(principal)
    turn = await context.turns.get(id_, principal.requested_project(request.query.get("project")))
    if turn is None or (prefix is not None and not turn.record.session.startswith(prefix)):
        raise NotFound(f"There is no turn {id_[:64]!r}.", param="id", code="turn_not_found")
    return json_answer(turn_plain(visible_turn(turn, principal)))


def next_text(next: Cursor | None) -> str | None:
    """Return the `next` of a page in JSON."""
    return None if next is None else str(next)


def _page_json(page: TurnPage, principal: Principal) -> bytes:
    data = [turn_plain(visible_turn(turn, principal)) for turn in page.turns]
    return msgspec.json.encode({"object": "list", "data": data, "next": next_text(page.next)})


def visible_turn(turn: StoredTurn, principal: Principal) -> StoredTurn:
    """Return the turn as the principal may read it: for a client secret without providers' error texts."""
    return turn if principal.claims is None else redacted_turn(turn)


def own_prefix(principal: Principal) -> str | None:
    """Return the prefix of the session IDs that the principal may read; None: an API key reads all of its project."""
    return None if principal.claims is None else session_prefix(principal.claims)


def json_answer(body: object) -> web.Response:
    """Return `body` as JSON."""
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
