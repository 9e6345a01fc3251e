"""`POST /v1/realtime/calls`: start a session over WebRTC from an SDP offer; `POST .../hangup`: end it."""

from __future__ import annotations

import asyncio
import secrets
from importlib import import_module
from typing import TYPE_CHECKING

from aiohttp import web

from voicepipe.auth.scopes import REALTIME
from voicepipe.errors import ProtocolError, VoicepipeError
from voicepipe.extras import install_command
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.detached import DETACHED_TASKS
from voicepipe.server.errors import refusal
from voicepipe.server.realtime import check_ready, grant_for
from voicepipe.server.serving import admitted, run_session
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.server.webrtc.calls import RtcCall, RtcCallLookup
from voicepipe.server.webrtc.events import without_formats
from voicepipe.server.webrtc.offer import Offer, read_offer
from voicepipe.server.webrtc.rtc_socket import RtcSocket
from voicepipe.session.grant import SessionGrant
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.values import replace

if TYPE_CHECKING:
    from voicepipe.server.webrtc.peer import RtcPeer

AnswerFuture = asyncio.Future[str]
"""The SDP answer, or the exception that refuses the call."""


async def create_call(request: web.Request) -> web.Response:
    """Check the request, start the call in a task of its own, and return the SDP answer."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(REALTIME)
    peer_type = await _peer_type()
    if peer_type is None:
        why = f"This server has no WebRTC: it needs the extra 'webrtc' ({install_command('webrtc')})."
        return refusal(501, why, code="webrtc_not_installed")
    check_ready(context)
    offer = await read_offer(request)
    grant = await _grant(request, principal, offer, context)
    socket = RtcSocket()
    peer = peer_type(context.rtc_calls.settings, socket)
    live = LiveSession(grant, SessionUsage(UsageLimits(principal, context.quotas, context.cluster)))
    token_id = principal.claims.token_id if principal.claims is not None else ""
    call = RtcCall(f"rtc_{secrets.token_urlsafe(18)}", principal.project, token_id, live, socket)
    answer: AnswerFuture = asyncio.get_running_loop().create_future()
    request.app[DETACHED_TASKS].start(_serve(call, peer, offer.sdp, answer, context), name="call")
    location = f"/v1/realtime/calls/{call.id}"
    return web.Response(status=201, text=await answer, content_type="application/sdp", headers={"Location": location})


async def _peer_type() -> type[RtcPeer] | None:
    """Return `RtcPeer`, which is imported with the first call; None: the extra is not installed."""
    try:
        module = await asyncio.to_thread(import_module, "voicepipe.server.webrtc.peer")
    except ImportError:
        return None
    found: type[RtcPeer] = module.RtcPeer
    return found


async def _grant(request: web.Request, principal: Principal, offer: Offer, context: ServerContext) -> SessionGrant:
    """Return the client's session grant.

    Raises:
        ProtocolError: the request has a session and a client secret, which has a session of its own.
        AuthError, NotFound: as in `grant_for`.
    """
    if offer.session is not None and principal.claims is not None:
        why = "session: expected none with a client secret, which has its own"
        raise ProtocolError(why, field="session")
    query = dict(request.query)
    if offer.session is not None and isinstance(model := offer.session.get("model"), str):
        query["model"] = model
    handshake = context.authenticator.handshake(request)
    grant = await grant_for(principal, handshake, query, context)
    return replace(grant, config=without_formats(offer.session if offer.session is not None else grant.config))


async def _serve(call: RtcCall, peer: RtcPeer, sdp: str, answer: AnswerFuture, context: ServerContext) -> None:
    """Run a call to its end. An error before the SDP answer becomes the exception of `answer`."""
    try:
        async with admitted(call.live, context) as session:
            sdp_answer = await peer.answer(sdp)
            with context.rtc_calls.open(call):
                if not answer.done():  # done: the client has disconnected
                    answer.set_result(sdp_answer)
                if not await peer.connected(context.rtc_calls.settings.connect_ms):
                    log_event("call_not_connected", session=call.live.grant.session_id)
                    return
                call.socket.attach(peer)
                call.live.socket = call.socket
                async with asyncio.TaskGroup() as group:
                    audio = group.create_task(peer.read_audio(), name="rtp")
                    await run_session(session, call.live, call.socket)
                    audio.cancel()
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
        elif not isinstance(error, VoicepipeError):
            log_crash("call", error, session=call.live.grant.session_id)
    finally:
        answer.cancel()
        call.socket.end()
        await peer.close()


async def hang_up(request: web.Request) -> web.Response:
    """End a call of this worker or of another one."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(REALTIME)
    lookup = RtcCallLookup.of(request.match_info["id"], principal)
    call = context.rtc_calls.find(lookup)
    if call is not None:
        call.hang_up()
    elif context.other_rtc_calls is None or not await context.other_rtc_calls.hang_up(lookup):
        raise lookup.not_found()
    return web.Response(status=200)
