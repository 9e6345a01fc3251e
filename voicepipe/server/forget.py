"""`DELETE /v1/sessions/{id}` and `/v1/users/{user}`: delete the stored data of a session or a user."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.errors import ProtocolError
from voicepipe.server.parts import PARTS, Parts
from voicepipe.server.refusals import refusal
from voicepipe.server.turns import json_answer
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store import LIMIT_MAX, SessionQuery

STILL_OPEN: Final = "It is still open and would go on writing: delete it when it has ended."


async def forget_session(request: web.Request) -> web.Response:
    """Delete a session's turns, its journal, and pending webhook deliveries of it: `{"deleted": true, "turns": n}`."""
    parts, project = await _operator(request)
    session = request.match_info["id"]
    running = parts.open_sessions.find(session)
    if running is not None and running.grant.project == project:
        return refusal(409, f"Session {session[:64]!r}: {STILL_OPEN}", code="session_open", param="id")
    n_turns = await _forget(parts, project, session)
    log_event("session_deleted", session=session[:64], project=project, turns=n_turns)
    return json_answer({"object": "voicepipe.session.deleted", "id": session, "deleted": True, "turns": n_turns})


async def forget_user(request: web.Request) -> web.Response:
    """Delete the turns of all sessions of a user, and all other stored data of these sessions."""
    parts, project = await _operator(request)
    user = request.match_info["user"]
    running = [each for each in parts.open_sessions.of(project) if each.grant.identity == user]
    if running:
        return refusal(409, f"A session of this user is open. {STILL_OPEN}", code="session_open", param="user")
    n_turns = 0
    sessions = await _sessions_of(parts, project, user)
    for session in sessions:
        n_turns += await _forget(parts, project, session)
    n_turns += await parts.turns.delete_user(project, user)
    log_event("user_deleted", project=project, sessions=len(sessions), turns=n_turns)
    deleted = {"deleted": True, "sessions": len(sessions), "turns": n_turns}
    return json_answer({"object": "voicepipe.user.deleted", "id": user, **deleted})


async def _operator(request: web.Request) -> tuple[Parts, str]:
    """Return the project to delete in, if the client may delete: an operator of all projects must name one, since
    clients choose the IDs."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(OPERATE)
    unknown = next((name for name in request.query if name not in ("project", "token")), None)
    if unknown is not None:
        raise ProtocolError("Unknown parameter; known is project.", field=unknown[:64])
    project = visitor.project_asked(request.query.get("project"))
    if project is None and visitor.sees_all and visitor.holder is not None:
        raise ProtocolError("An operator of all projects says in which one to delete.", field="project")
    return parts, project or visitor.project


async def _sessions_of(parts: Parts, project: str, user: str) -> list[str]:
    found: list[str] = []
    before: str | None = None
    while True:
        page = await parts.turns.sessions(project, SessionQuery(user=user, limit=LIMIT_MAX, before=before))
        found += [each.session for each in page.sessions]
        if page.next is None:
            return found
        before = page.next


async def _forget(parts: Parts, project: str, session: str) -> int:
    n_turns = await parts.turns.delete_session(project, session)
    parts.feed.forget(project, session)
    await parts.webhooks.forget(project, session)
    await asyncio.to_thread(parts.forget_journal, project, session)
    return n_turns
