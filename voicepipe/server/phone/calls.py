"""The routes of phone calls: a carrier's webhook, what follows a call's media stream, and the stream itself."""

from __future__ import annotations

import logging
import secrets
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from voicepipe.clock import unix_s
from voicepipe.errors import AuthError, Overload, VoicepipeError
from voicepipe.phone.calls import PhoneCall
from voicepipe.phone.carrier import AnnouncedCall, WebhookAnswer, WebhookRequest
from voicepipe.phone.options import PhoneLine
from voicepipe.server.authenticate import Principal
from voicepipe.server.bodies import read_body
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.phone.socket import SESSION, PhoneSocket
from voicepipe.server.quota_usage import QuotaExceeded
from voicepipe.server.realtime import check_ready, upgrade_required
from voicepipe.server.serving import admitted, run_session
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.websocket import AiohttpSocket, upgrade
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.session.grant import SessionGrant
from voicepipe.session.shutdown import POLICY_VIOLATION, TRY_AGAIN_LATER
from voicepipe.telemetry.log import log_event

BODY_MAX_BYTES: Final = 64 * 1024
"""Limit of a webhook's body: the carriers' have some kB."""

STREAM_WAIT_S: Final = 60
"""Time from the webhook's answer to the media stream. Twilio opens it at once."""

TRANSFER_WAIT_S: Final = 300
"""How long a transfer waits for the end of the media stream: the session ends with the agent's next words."""

FORM: Final = "application/x-www-form-urlencoded"


class _Stored(msgspec.Struct, frozen=True):
    """A call between its webhook and its media stream."""

    call: AnnouncedCall
    agent: str
    """The agent that the server has dialed for; empty: the line's."""


async def phone_webhook(request: web.Request) -> web.Response:
    """`POST /v1/phone/{line}`: the carrier announces a call, and connects it with a media stream."""
    context = request.app[CONTEXT]
    line = line_of(request, context)
    call, base_url = await _signed(request, line, context)
    if call.is_voicemail:
        context.phone_calls.n_voicemail += 1
        if line.hangs_up_on_voicemail:
            return _answer(line.carrier.hang_up())
    agent = request.query.get("agent", "")  # the address is signed
    try:
        check_ready(context)
        await context.live_sessions.check(_live(call, agent, line, context))
    except (Overload, QuotaExceeded) as why:
        _refuse(line, context, why)
        return _answer(line.carrier.reject())
    token = secrets.token_urlsafe(24)
    now_s = unix_s()
    await context.cluster.keep_config(
        _stored_call(token),
        msgspec.json.encode(_Stored(call, agent)),
        project=line.project,
        until_s=now_s + STREAM_WAIT_S,
        now_s=now_s,
    )
    stream_url = f"{base_url.replace('http', 'ws', 1)}/v1/phone/{line.name}/stream/{token}"
    next_url = f"{base_url}/v1/phone/{line.name}/next"
    return _answer(line.carrier.connect(call, stream_url=stream_url, next_url=next_url))


async def phone_next(request: web.Request) -> web.Response:
    """`POST /v1/phone/{line}/next`: the media stream is over; the call is transferred, or ends."""
    context = request.app[CONTEXT]
    line = line_of(request, context)
    call, _ = await _signed(request, line, context)
    stored = await context.cluster.config(_stored_transfer(line, call.call_id), project=line.project, now_s=unix_s())
    if stored is None:
        return _answer(line.carrier.hang_up())
    context.phone_calls.n_transferred += 1
    return _answer(line.carrier.transfer(stored.decode()))


async def phone_stream(request: web.Request) -> web.StreamResponse:
    """`GET /v1/phone/{line}/stream/{token}`: the media stream of a call that the webhook has announced."""
    context = request.app[CONTEXT]
    line = line_of(request, context)
    stored = await _announced(request.match_info["token"], line, context)
    check_ready(context)
    response = upgrade(ping_ms=context.options.ping_ms, subprotocol=None)
    if not response.can_prepare(request):
        return upgrade_required()
    live = _live(stored.call, stored.agent, line, context)
    await response.prepare(request)
    socket = AiohttpSocket(response, request.transport)
    phone = PhoneSocket(socket, line.carrier.codec(), context.phone_calls.note_unread)
    try:
        await _talk(phone, stored.call, line, live, context)
    except VoicepipeError as why:  # the server has filled since the webhook, or a provider can't be used
        _refuse(line, context, why)
        await socket.close(TRY_AGAIN_LATER, "The call can't be taken now.")
    return response


async def _talk(
    phone: PhoneSocket, call: AnnouncedCall, line: PhoneLine, live: LiveSession, context: ServerContext
) -> None:
    started = await phone.start()
    if started is None or started.call_id != call.call_id:
        await phone.close(POLICY_VIOLATION, "Expected the start of the announced call's stream.")
        return

    async def transfer(number: str) -> None:
        now_s = unix_s()
        await context.cluster.keep_config(
            _stored_transfer(line, call.call_id),
            number.encode(),
            project=line.project,
            until_s=now_s + TRANSFER_WAIT_S,
            now_s=now_s,
        )

    its = PhoneCall(transfer_to=line.transfer_to, transfer=transfer)
    async with admitted(live, context) as session:
        live.socket = phone
        with context.phone_calls.running(live.grant.session_id, its):
            await run_session(session, live, phone)


def line_of(request: web.Request, context: ServerContext) -> PhoneLine:
    """Return the line that the path names.

    Raises:
        NotFound: there is none.
    """
    name = request.match_info["line"]
    line = context.phone_lines.get(name)
    if line is None:
        raise NotFound(f"There is no phone line {name[:64]!r} here.", param=None, code="phone_line_not_found")
    return line


async def _signed(request: web.Request, line: PhoneLine, context: ServerContext) -> tuple[AnnouncedCall, str]:
    """Return the call of a webhook's request, and the server's address as the carrier called it.

    Raises:
        AuthError: 403: the carrier did not sign it.
        NotFound: it has no call.
    """
    body = await read_body(request, BODY_MAX_BYTES)
    form = parse_qsl(body.decode(errors="replace"), keep_blank_values=True) if request.content_type == FORM else []
    handshake = context.authenticator.handshake(request)
    base_url = base_url_of(request, line, context)
    webhook = WebhookRequest(
        url=f"{base_url}{request.raw_path}",
        headers=dict(handshake.headers),
        form=form,
    )
    if not line.carrier.is_signed(webhook, line.secret):
        context.phone_calls.note_unsigned(line.name, f"{base_url}{request.path}")
        raise AuthError("The carrier's signature is wrong.", code="phone_signature_wrong", status=403)
    call = line.carrier.announced(webhook)
    if call is None:
        raise NotFound("The request names no call.", param=None, code="phone_call_not_found")
    return call, base_url


def base_url_of(request: web.Request, line: PhoneLine, context: ServerContext) -> str:
    """Return the server's address as the carrier calls it."""
    return line.public_url or f"{context.authenticator.handshake(request).scheme}://{request.host}"


async def _announced(token: str, line: PhoneLine, context: ServerContext) -> _Stored:
    """Return the call for which the webhook has made this token. It opens one stream.

    Raises:
        AuthError: 401: there is none, it is too old, or it has opened its stream.
    """
    now_s, name = unix_s(), _stored_call(token)
    stored = await context.cluster.config(name, project=line.project, now_s=now_s)
    if stored is not None:
        used = await context.cluster.count(name, 1, limit=1, until_s=now_s + STREAM_WAIT_S, now_s=now_s)
        if used.counted:
            return msgspec.json.decode(stored, type=_Stored)
    raise AuthError("No call waits for this media stream.", code="phone_stream_unknown", status=401)


def _stored_call(token: str) -> str:
    return f"phone_call_{token}"


def _stored_transfer(line: PhoneLine, call_id: str) -> str:
    return f"phone_transfer_{line.name}_{call_id}"


def _live(call: AnnouncedCall, requested_agent: str, line: PhoneLine, context: ServerContext) -> LiveSession:
    """Return the call's session, not yet admitted. The user's number is its identity."""
    metadata = (
        ("phone_line", line.name),
        ("user_number", call.user_number),
        ("line_number", call.line_number),
        ("answered_by", "voicemail" if call.is_voicemail else "person"),
    )
    agent = requested_agent or line.agent or context.agent_for(metadata) or "default"
    grant = SessionGrant(
        session_id=f"sess_{secrets.token_urlsafe(18)}",
        project=line.project,
        agent=agent,
        model=agent,
        identity=call.user_number or None,
        config=SESSION,
        metadata=metadata,
        expires_at=unix_s() + context.session_limit_s(agent),
    )
    principal = Principal(line.project, None)
    return LiveSession(grant, SessionUsage(UsageLimits(principal, context.quotas, context.cluster)))


def _refuse(line: PhoneLine, context: ServerContext, why: VoicepipeError) -> None:
    context.phone_calls.n_refused += 1
    log_event("phone_call_refused", level=logging.WARNING, line=line.name, why=str(why))


def _answer(answer: WebhookAnswer) -> web.Response:
    return web.Response(text=answer.body, content_type=answer.content_type)
