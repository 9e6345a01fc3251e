"""`DELETE /v1/sessions/{id}` and `/v1/users/{user}`: delete the stored data of a session or a user."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.errors import ProtocolError
from voicepipe.server.api.stats import open_sessions
from voicepipe.server.api.turns import json_answer
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import refusal
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.store.port import MAX_LIMIT, Cursor, SessionQuery

UNKNOWN_WAIT_S: Final = 10
"""`Retry-After` while not all open sessions are known."""

STILL_OPEN: Final = "The session is open and still writes data: delete it when it has ended."


async def delete_session_data(request: web.Request) -> web.Response:
    """Delete a session's turns, journal, recording, and pending webhook deliveries: `{"deleted": true, "turns": n}`."""
    context, project = await _operator(request)
    session = request.match_info["id"]
    found = await open_sessions(request.app, project)
    if any(each["id"] == session for each in found.rows):
        return refusal(409, f"Session {session[:64]!r}: {STILL_OPEN}", code="session_open", param="id")
    if found.why_more:
        return _unknown(found.why_more)
    n_turns = await _delete_session(context, project, session)
    log_event("session_deleted", session=session[:64], project=project, turns=n_turns)
    return json_answer({"object": "voicepipe.session.deleted", "id": session, "deleted": True, "turns": n_turns})


async def delete_user_data(request: web.Request) -> web.Response:
    """Delete the turns of all sessions of a user, and all other stored data of these sessions."""
    context, project = await _operator(request)
    user = request.match_info["user"]
    found = await open_sessions(request.app, project)
    if any(each["user"] == user for each in found.rows):
        return refusal(409, f"A session of this user is open. {STILL_OPEN}", code="session_open", param="user")
    if found.why_more:
        return _unknown(found.why_more)
    n_turns = 0
    sessions = await _sessions_of(context, project, user)
    for session in sessions:
        n_turns += await _delete_session(context, project, session)
    n_turns += await context.turns.delete_user(project, user)
    await asyncio.to_thread(context.call_recordings.delete_user, project, user)  # also of calls without a turn
    await context.responses.delete_user(project, user)
    log_event("user_deleted", project=project, sessions=len(sessions), turns=n_turns)
    deleted = {"deleted": True, "sessions": len(sessions), "turns": n_turns}
    return json_answer({"object": "voicepipe.user.deleted", "id": user, **deleted})


def _unknown(why: str) -> web.Response:
    """Return the refusal where an open session may be missing in the list: it would go on writing."""
    message = f"Nothing was deleted, since not all open sessions are known: {why}."
    return refusal(503, message, code="open_sessions_unknown", wait_s=UNKNOWN_WAIT_S)


async def delete_events(context: ServerContext, project: str, session: str) -> None:
    """Delete the events of a session that this process holds, and its deliveries."""
    context.feed.delete_session(project, session)
    await context.session_events.delete_session(project, session)


async def _operator(request: web.Request) -> tuple[ServerContext, str]:
    """Return the project to delete in, if the client may delete: an operator of all projects must name one, since
    clients choose the IDs."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(OPERATE)
    unknown = next((name for name in request.query if name not in ("project", "token")), None)
    if unknown is not None:
        raise ProtocolError("Expected only the parameter project, got another one.", field=unknown[:64])
    project = principal.requested_project(request.query.get("project"))
    if project is None and principal.sees_all and principal.holder is not None:
        raise ProtocolError(
            "Expected the project to delete from, since this credential covers all projects, got none.",
            field="project",
        )
    return context, project or principal.project


async def _sessions_of(context: ServerContext, project: str, user: str) -> list[str]:
    found: list[str] = []
    before: Cursor | None = None
    while True:
        page = await context.turns.sessions(project, SessionQuery(user=user, limit=MAX_LIMIT, before=before))
        found += [each.session for each in page.sessions]
        if page.next is None:
            return found
        before = page.next


async def _delete_session(context: ServerContext, project: str, session: str) -> int:
    n_turns = await context.turns.delete_session(project, session)
    if context.workers is None:
        await delete_events(context, project, session)
    else:
        await context.workers.delete_session(project, session)
    await asyncio.to_thread(context.delete_journal, project, session)
    await asyncio.to_thread(context.call_recordings.delete_session, project, session)
    return n_turns
