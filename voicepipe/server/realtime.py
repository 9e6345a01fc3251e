"""`GET /v1/realtime`: from a handshake to a session on a WebSocket."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import answer_subprotocol
from voicepipe.auth.request_credentials import Handshake
from voicepipe.auth.scopes import REALTIME
from voicepipe.auth.token_limits import check_token_limits
from voicepipe.auth.tokens import session_prefix
from voicepipe.clock import unix_s
from voicepipe.errors import AuthError, Overload
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound, refusal
from voicepipe.server.serving import admitted, run_session
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.resume import resume
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.websocket import AiohttpSocket, upgrade
from voicepipe.server.takeover import StoredSessions, delete_snapshot, share_snapshot
from voicepipe.server.token_issuer import metadata_of
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.server.webrtc.calls import RtcCallLookup
from voicepipe.server.webrtc.sideband import CALL_OVER, serve_sideband
from voicepipe.session.grant import Dialect, SessionGrant
from voicepipe.session.shutdown import NORMAL

STARTING_WAIT_MS = 2_000
"""`Retry-After` while models load."""

DATED_PREVIEW = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
"""Clients of the older dialect send an `api-version` of this shape."""


async def realtime(request: web.Request) -> web.StreamResponse:
    """Check everything that can be refused with an HTTP answer, then upgrade and run the session to its end.

    A browser hides the reason why its WebSocket was refused. The same request without the upgrade is refused for the
    same reasons, where a page can read them. It is answered 426 when there are none.
    """
    context = request.app[CONTEXT]
    if "resume" in request.query:
        return await _resume(request, context)
    principal = await context.authenticator.admit(request)
    principal.check_scope(REALTIME)
    handshake = context.authenticator.handshake(request)
    if "call_id" in request.query:
        return await _sideband(request, RtcCallLookup.of(request.query["call_id"], principal), handshake, context)
    check_ready(context)
    grant = await grant_for(principal, handshake, request.query, context)
    live = LiveSession(grant, SessionUsage(UsageLimits(principal, context.quotas, context.cluster)))
    websocket = upgrade(ping_ms=context.options.ping_ms, subprotocol=answer_subprotocol(handshake))
    if not websocket.can_prepare(request):
        await context.live_sessions.check(live)
        return upgrade_required()
    async with admitted(live, context) as session:
        share_snapshot(session, principal, grant, context)
        await websocket.prepare(request)
        live.socket = socket = AiohttpSocket(websocket, request.transport)
        await run_session(session, live, socket)
    await delete_snapshot(grant.session_id, context)
    return websocket


async def _sideband(
    request: web.Request, lookup: RtcCallLookup, handshake: Handshake, context: ServerContext
) -> web.StreamResponse:
    """Serve a WebSocket beside a call over WebRTC, which another worker may have."""
    call, session = context.rtc_calls.find(lookup), ""
    if call is None and context.other_rtc_calls is not None:
        session = await context.other_rtc_calls.session_of(lookup)
    if call is None and not session:
        raise lookup.not_found()
    websocket = upgrade(ping_ms=context.options.ping_ms, subprotocol=answer_subprotocol(handshake))
    if not websocket.can_prepare(request):
        return upgrade_required()
    await websocket.prepare(request)
    socket = AiohttpSocket(websocket, request.transport)
    if call is not None:
        await serve_sideband(call, socket)
    elif context.other_rtc_calls is not None and not await context.other_rtc_calls.serve_sideband(
        lookup, session, socket
    ):
        await socket.close(NORMAL, CALL_OVER)
    return websocket


async def _resume(request: web.Request, context: ServerContext) -> web.StreamResponse:
    handshake = context.authenticator.handshake(request)
    websocket = upgrade(ping_ms=context.options.ping_ms, subprotocol=answer_subprotocol(handshake))
    if not websocket.can_prepare(request):
        return upgrade_required()
    others = context.other_sessions
    if context.session_snapshots is not None:
        others = StoredSessions(context, context.session_snapshots, others)
    return await resume(request, websocket, context.live_sessions, context.resumptions, handshake.peer, others)


def upgrade_required() -> web.Response:
    """Return the answer to a request without an upgrade."""
    answer = refusal(426, "This is a WebSocket endpoint: connect with ws:// or wss://.", code="upgrade_required")
    answer.headers["Upgrade"] = "websocket"
    return answer


async def grant_for(
    principal: Principal, handshake: Handshake, query: Mapping[str, str], context: ServerContext
) -> SessionGrant:
    """Decide the session that the client gets.

    Raises:
        AuthError: 403, when the token does not allow this page, model or agent.
        NotFound: 404, for an agent or (with `strict_models`) a model that does not exist.
    """
    claims, now_s = principal.claims, unix_s()
    config = await token_config(claims, context) if claims is not None else None
    requested_model = query.get("model") or query.get("deployment") or _model_of(config)
    metadata = metadata_of(config, claims.routing) if claims is not None else ()
    agent = _agent(claims, query.get("agent", ""), requested_model, metadata, context)
    length_s = context.session_limit_s(agent)
    if claims is not None:
        check_token_limits(claims, origin=origin_of(handshake), model=requested_model, agent=agent)
        length_s = min(length_s, claims.limits.session_seconds or length_s)
    return SessionGrant(
        session_id=f"{session_prefix(claims) if claims is not None else 'sess_'}{secrets.token_urlsafe(18)}",
        project=principal.project,
        agent=agent,
        model=requested_model or agent,
        identity=(claims.identity or claims.subject or None) if claims is not None else None,
        config=config,
        metadata=metadata,
        locks=claims.locks if claims is not None else (),
        redacted=claims is not None,
        expires_at=now_s + length_s,
        length_s=length_s,
        kind="transcription" if query.get("intent") == "transcription" else "realtime",
        continues=query.get("continues") == "true",
        dialect=_dialect(handshake, query),
    )


def origin_of(handshake: Handshake) -> str | None:
    """Return the origin of the page that sends the request. In a GET without the upgrade to its own server a browser
    omits `Origin`. It then sends the same fact in a header that pages cannot set (Fetch Metadata, `Sec-Fetch-Site`)."""
    origins, hosts = handshake.values("origin"), handshake.values("host")
    if not origins and hosts and handshake.values("sec-fetch-site") == ("same-origin",):
        return f"{handshake.scheme}://{hosts[0]}"
    return origins[0] if origins else None


def _agent(
    claims: Claims | None,
    requested_agent: str,
    model: str,
    metadata: tuple[tuple[str, str], ...],
    context: ServerContext,
) -> str:
    """Return the requested agent. An agent of `?agent=` must exist; a model's name may be anything, unless set to
    strict. Without either, the token's metadata may choose."""
    allowed = claims.limits.agents if claims is not None else ()
    if requested_agent:
        found = context.agent_named(requested_agent)
        if found is None:
            names = ", ".join(allowed or (choice.name for choice in context.agent_choices()))
            why = f"There is no agent {requested_agent[:64]!r} here; expected one of {names}."
            raise NotFound(why, param="agent", code="agent_not_found")
        return found
    found = context.agent_named(model) if model else None
    if found is not None:
        return found
    if model and context.options.strict_models:
        names = ", ".join(allowed or (choice.name for choice in context.agent_choices()))
        why = f"There is no model {model[:64]!r} here; expected one of {names}."
        raise NotFound(why, param="model", code="model_not_found")
    found = context.agent_for(metadata)
    if found is not None and (not allowed or found in allowed):
        return found
    return next((agent for agent in allowed if context.agent_named(agent) == agent), "default")


async def token_config(claims: Claims, context: ServerContext) -> Mapping[str, Any] | None:
    """Return the session settings of a client secret; None: none.

    Raises:
        AuthError: 401: the settings were stored here, and no longer are.
    """
    if not claims.config_id:
        return claims.session or None
    stored = await context.cluster.config(claims.config_id, project=claims.project, now_s=unix_s())
    if stored is None:
        raise AuthError(
            "The session settings of this client secret are gone: the server was restarted or they expired. Let your "
            "backend mint another one.",
            code="session_config_expired",
        )
    config: dict[str, Any] = msgspec.json.decode(stored)
    return config


def _model_of(config: Mapping[str, Any] | None) -> str:
    model = (config or {}).get("model")
    return model if isinstance(model, str) else ""


def _dialect(handshake: Handshake, query: Mapping[str, str]) -> Dialect:
    by_header = any("realtime=v1" in value for value in handshake.values("openai-beta"))
    by_subprotocol = "openai-beta.realtime-v1" in handshake.subprotocols()
    by_version = DATED_PREVIEW.fullmatch(query.get("api-version", "")) is not None
    return "beta" if by_header or by_subprotocol or by_version else "ga"


def check_ready(context: ServerContext) -> None:
    """Check that everything is loaded.

    Raises:
        Overload: something is not.
    """
    missing = context.missing()
    if missing:
        raise Overload(f"The server is starting: {'; '.join(missing)}.", retry_after_ms=STARTING_WAIT_MS)
