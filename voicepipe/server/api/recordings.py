"""`GET /v1/sessions/{id}/audio` and `/v1/sessions/{id}/audio/{side}`: the audio beside a session's journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from voicepipe.auth.scopes import OPERATE
from voicepipe.errors import AuthError
from voicepipe.server.api.turns import json_answer
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound
from voicepipe.telemetry.journal.recordings import SideRecording


async def list_recordings(request: web.Request) -> web.Response:
    """Return what there is of a session: `{"object": "list", "data": [{"side", "rate_hz", "duration_ms"}],
    "recording": {"path", "duration_ms"} or null}`."""
    project = await _project(request)
    found = await _recordings(request, project)
    session = request.match_info["id"]
    call = await asyncio.to_thread(request.app[CONTEXT].call_recordings.find, project, session)
    recording = None
    if call is not None and call.is_done:
        duration_ms = await asyncio.to_thread(call.duration_ms)
        recording = {"path": f"/v1/sessions/{call.session}/recording", "duration_ms": duration_ms}
    data = [
        {
            "object": "voicepipe.session.audio",
            "side": each.side,
            "rate_hz": each.rate_hz,
            "duration_ms": each.duration_ms,
        }
        for each in found
    ]
    return json_answer({"object": "list", "data": data, "recording": recording})


async def one_recording(request: web.Request) -> web.StreamResponse:
    """Send one side of a session as a WAV file, with one piece in memory at a time."""
    side = request.match_info["side"]
    found = await _recordings(request, await _project(request))
    recording = next((each for each in found if each.side == side), None)
    if recording is None:
        raise NotFound(f"There is no audio of the {side} in this session.", param="id", code="audio_not_found")
    answer = web.StreamResponse(headers={"Content-Type": "audio/wav", "Content-Length": str(recording.wav_bytes)})
    await answer.prepare(request)
    pieces = recording.wav()
    while piece := await asyncio.to_thread(_next, pieces):
        await answer.write(piece)
    return answer


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


async def _project(request: web.Request) -> str | None:
    """Return the project whose recordings the client may hear, as an operator; None: all."""
    principal = await request.app[CONTEXT].authenticator.admit(request)
    principal.check_scope(OPERATE)
    if principal.claims is not None:
        raise AuthError("Expected an API key, got a client secret.", code="api_key_required", status=403)
    return principal.requested_project(request.query.get("project"))


async def _recordings(request: web.Request, project: str | None) -> tuple[SideRecording, ...]:
    return await asyncio.to_thread(request.app[CONTEXT].recordings, project, request.match_info["id"])
