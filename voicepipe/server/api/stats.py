"""`GET /v1/stats`: aggregates of many turns; and `GET /v1/sessions`: the sessions of these turns."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.clock import unix_ms
from voicepipe.errors import AuthError
from voicepipe.server.api.nodes import ANNOUNCER
from voicepipe.server.api.query import live_node, session_query, stats_query, wants_live
from voicepipe.server.api.turns import json_answer, next_text
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.sessions.listed_sessions import ListedSessions
from voicepipe.server.sessions.live_sessions import iso
from voicepipe.telemetry.store.port import SessionQuery, SessionSummary


async def stats(request: web.Request) -> web.Response:
    """Return the fields of `telemetry.stats.Stats`, and the instants between which turns were counted."""
    context, principal = await _reader(request)
    query = stats_query(request.query, now_ms=unix_ms())
    summed = await context.turns.stats(principal.requested_project(request.query.get("project")), query)
    between = {"since_ms": query.since_ms, "until_ms": query.until_ms}
    return json_answer({"object": "voicepipe.stats", **between, **msgspec.to_builtins(summed)})


async def list_sessions(request: web.Request) -> web.Response:
    """Return sessions, newest first, a page at a time; with `live=true` all open sessions at once."""
    context, principal = await _reader(request)
    project, query = principal.requested_project(request.query.get("project")), session_query(request.query)
    node = live_node(request.query)
    if wants_live(request.query):
        return json_answer({"object": "list", "data": await _live(request.app, project, query, node), "next": None})
    page = await context.turns.sessions(project, query)
    live = {each["id"] for each in (await open_sessions(request.app, project)).rows}
    data = [_plain(each, is_live=each.session in live) for each in page.sessions]
    return json_answer({"object": "list", "data": data, "next": next_text(page.next)})


async def open_sessions(app: web.Application, project: str | None) -> ListedSessions:
    """Return the open sessions of a project, or of all, newest first, of all nodes; each with its `node`, empty
    where no store is shared."""
    context = app[CONTEXT]
    if context.workers is None:
        own = ListedSessions([each.plain() for each in context.live_sessions.of(project)], "")
    else:
        own = await context.workers.sessions(project)
    node = "" if context.presence is None else context.node
    elsewhere = await app[ANNOUNCER].sessions_elsewhere(project)
    # A session that has moved is still announced by the node that died.
    found = {each["id"]: each for each in (*elsewhere.rows, *({**each, "node": node} for each in own.rows))}
    rows = sorted(found.values(), key=lambda row: str(row["started_at"]), reverse=True)
    return ListedSessions(rows, own.why_more or elsewhere.why_more)


async def _reader(request: web.Request) -> tuple[ServerContext, Principal]:
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    if principal.claims is not None:
        raise AuthError(
            "A client secret reads only the turns of its own sessions; figures of a project are for API keys.",
            code="api_key_required",
            status=403,
        )
    return context, principal


async def _live(
    app: web.Application, project: str | None, query: SessionQuery, node: str | None
) -> list[dict[str, Any]]:
    return [
        each | {"live": True}
        for each in (await open_sessions(app, project)).rows
        if (query.agent or each["agent"]) == each["agent"]
        and (query.user or each["user"]) == each["user"]
        and (query.text or "").lower() in each["id"].lower()
        and (node or each["node"]) == each["node"]
    ][: query.limit]


def _plain(summary: SessionSummary, *, is_live: bool) -> dict[str, object]:
    return {
        "object": "voicepipe.session",
        "id": summary.session,
        "project": summary.project,
        "agent": summary.agent,
        "user": summary.user,
        "started_at": iso(summary.started_at_ms),
        "last_at": iso(summary.last_at_ms),
        "turns": summary.turns,
        "over": summary.over,
        "failed": summary.failed,
        "slowest_ms": summary.slowest_ms,
        "cost_usd": summary.cost_usd,
        "live": is_live,
    }
