"""`GET /v1/sessions/{id}/items/{item}/audio`: what was said in an item of a live session."""

from __future__ import annotations

import asyncio

from aiohttp import web

from voicepipe.audio.files import wav_bytes
from voicepipe.auth.scopes import TURNS
from voicepipe.server.api.transcript import readable_project
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound


async def item_audio(request: web.Request) -> web.Response:
    """Send the item's audio as a WAV file."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TURNS)
    session, item = request.match_info["id"], request.match_info["item"]
    project = readable_project(principal, session, request.query.get("project"))
    async with context.audio_slots.slot(principal):  # bounds the memory of the files, and those that workers send
        found = await own_item_audio(context, project, session, item)
        if not found and context.workers is not None:
            found = await context.workers.item_audio(project, session, item)
    if not found:
        why = (
            f"There is no audio of item {item[:64]!r}: its session is over, server.item_audio_s holds none, or it is "
            "too old."
        )
        raise NotFound(why, param="item", code="item_audio_not_found")
    headers = {"Cache-Control": "private, no-store"}
    return web.Response(body=found, content_type="audio/wav", headers=headers)


async def own_item_audio(context: ServerContext, project: str | None, session: str, item: str) -> bytes:
    """Return the audio of an item of this process's sessions as a WAV file; nothing if there is none."""
    live = context.live_sessions.find(session)
    items = None if live is None or live.session is None else live.session.items
    if live is None or items is None or project not in (None, live.grant.project):
        return b""
    found = items.of(item)
    return b"" if found is None else await asyncio.to_thread(wav_bytes, *found)
