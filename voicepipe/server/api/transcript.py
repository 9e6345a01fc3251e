"""`GET /v1/sessions/{id}/transcript`: what was said in a session, with latencies and function calls."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.errors import ProtocolError
from voicepipe.server.api.turns import own_prefix, visible_turn
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.telemetry.store.port import MAX_LIMIT, StoredTurn, TurnQuery
from voicepipe.telemetry.transcript import MAX_TURNS, transcript_text, transcript_turn
from voicepipe.values import replace


async def session_transcript(request: web.Request) -> web.Response:
    """Return the session's transcript as JSON, or with `format=text` as plain text."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    kind = request.query.get("format", "json")
    if kind not in ("json", "text"):
        raise ProtocolError(f"Expected json or text, got {kind[:32]!r}.", field="format")
    session = request.match_info["id"]
    project = readable_project(principal, session, request.query.get("project"))
    turns, n_left_out = await _turns(context, project, session)
    if not turns:
        raise NotFound(f"There is no turn of session {session[:64]!r}.", param="id", code="session_not_found")
    summary = await context.turns.summary(turns[0].project, session)
    plain = await asyncio.to_thread(_plain, turns, n_left_out, summary, principal)
    if kind == "text":
        text = transcript_text(plain["turns"], turns_left_out=n_left_out, summary=summary)
        return web.Response(text=text, content_type="text/plain")
    return web.Response(body=msgspec.json.encode(plain), content_type="application/json")


def readable_project(principal: Principal, session: str, requested: str | None) -> str | None:
    """Return the project to read the session in; None: any.

    Raises:
        NotFound: the principal may not read that session: for a client secret, one that is not its own.
    """
    prefix = own_prefix(principal)
    if prefix is not None and not session.startswith(prefix):
        raise NotFound(f"There is no turn of session {session[:64]!r}.", param="id", code="session_not_found")
    return principal.requested_project(requested)


async def _turns(context: ServerContext, project: str | None, session: str) -> tuple[list[StoredTurn], int]:
    """Return the session's newest turns, the oldest of them first, and how many are left out."""
    query = TurnQuery(session=session, limit=MAX_LIMIT)
    newest: list[StoredTurn] = []
    n_turns = 0
    while True:
        page = await context.turns.list(project, query)
        n_turns += len(page.turns)
        newest += page.turns[: MAX_TURNS - len(newest)]
        if page.next is None:
            return newest[::-1], n_turns - len(newest)
        query = replace(query, before=page.next)


def _plain(turns: list[StoredTurn], n_left_out: int, summary: str, principal: Principal) -> dict[str, Any]:
    first = turns[0]
    return {
        "object": "voicepipe.session.transcript",
        "id": first.record.session,
        "project": first.project,
        "agent": first.agent,
        "user": first.user,
        "turns": [transcript_turn(visible_turn(turn, principal)) for turn in turns],
        "turns_left_out": n_left_out,
        "summary": summary,
    }
