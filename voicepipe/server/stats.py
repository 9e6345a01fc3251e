"""`GET /v1/stats`: aggregates of many turns; and `GET /v1/sessions`: the sessions of these turns."""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.clock import unix_ms
from voicepipe.errors import AuthError
from voicepipe.server.doorway import Visitor
from voicepipe.server.open_sessions import iso
from voicepipe.server.parts import PARTS, Parts
from voicepipe.server.turn_queries import session_query, stats_query, wants_live
from voicepipe.server.turns import json_answer
from voicepipe.telemetry.store import SessionQuery, SessionSummary


async def stats(request: web.Request) -> web.Response:
    """Return the fields of `telemetry.stats.Stats`, and the instants between which turns were counted."""
    parts, visitor = await _reader(request)
    query = stats_query(request.query, now_ms=unix_ms())
    summed = await parts.turns.stats(visitor.project_asked(request.query.get("project")), query)
    between = {"since_ms": query.since_ms, "until_ms": query.until_ms}
    return json_answer({"object": "voicepipe.stats", **between, **asdict(summed)})


async def list_sessions(request: web.Request) -> web.Response:
    """Return sessions, newest first, a page at a time; with `live=true` those that are open now, all at once."""
    parts, visitor = await _reader(request)
    project, query = visitor.project_asked(request.query.get("project")), session_query(request.query)
    if wants_live(request.query):
        return json_answer({"object": "list", "data": _live(parts, project, query), "next": None})
    page = await parts.turns.sessions(project, query)
    return json_answer({"object": "list", "data": [_plain(each, parts) for each in page.sessions], "next": page.next})


async def _reader(request: web.Request) -> tuple[Parts, Visitor]:
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(TURNS)
    if visitor.claims is not None:
        raise AuthError(
            "A client secret reads only the turns of its own sessions; figures of a project are for API keys.",
            code="api_key_required",
            status=403,
        )
    return parts, visitor


def _live(parts: Parts, project: str | None, query: SessionQuery) -> list[dict[str, object]]:
    return [
        each.plain() | {"live": True}
        for each in parts.open_sessions.of(project)
        if (query.agent or each.grant.agent) == each.grant.agent
        and (query.user or each.grant.identity) == each.grant.identity
        and (query.text or "").lower() in each.grant.session_id.lower()
    ][: query.limit]


def _plain(summary: SessionSummary, parts: Parts) -> dict[str, object]:
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
        "live": parts.open_sessions.find(summary.session) is not None,
    }
