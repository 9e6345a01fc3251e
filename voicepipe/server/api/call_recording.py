"""`GET /v1/sessions/{id}/recording`: the recording of a call, both sides in one file."""

from __future__ import annotations

import asyncio

from aiohttp import web

from voicepipe.auth.scopes import TURNS
from voicepipe.server.api.transcript import readable_project
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound, refusal


async def call_recording(request: web.Request) -> web.StreamResponse:
    """Send the recording as FLAC, or the requested range of it."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    session = request.match_info["id"]
    project = readable_project(principal, session, request.query.get("project"))
    found = await asyncio.to_thread(context.call_recordings.find, project, session)
    if found is None:
        raise NotFound(f"There is no recording of session {session[:64]!r}.", param="id", code="recording_not_found")
    if not found.is_done:
        return refusal(409, "The call is still being recorded.", code="recording_not_ready", param="id")
    headers = {"Content-Type": "audio/flac", "Cache-Control": "private, no-store"}
    return web.FileResponse(found.path, headers=headers)
