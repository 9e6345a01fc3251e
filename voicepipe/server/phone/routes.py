"""The routes that a carrier requests: the webhook, the media stream of a call, and what follows the stream."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from voicepipe.clock import unix_s
from voicepipe.errors import AuthError, Overload, VoicepipeError
from voicepipe.phone.calls import PhoneCall
from voicepipe.phone.carrier import (
    AnnouncedCall,
    ApiRequest,
    FailedStream,
    IgnoredWebhook,
    WebhookAnswer,
    WebhookEvent,
    WebhookRequest,
)
from voicepipe.phone.options import PhoneLine
from voicepipe.ports.server_tool import ToolError
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.phone.carrier_api import is_transient, send_request
from voicepipe.server.phone.pending_calls import (
    PendingCall,
    dialed_agent,
    store_pending_call,
    store_transfer,
    stored_transfer,
    take_pending_call,
)
from voicepipe.server.phone.socket import SESSION, PhoneSocket
from voicepipe.server.quota_usage import QuotaExceeded
from voicepipe.server.realtime import check_ready, upgrade_required
from voicepipe.server.request_bodies import read_body
from voicepipe.server.serving import admitted, run_session
from voicepipe.server.sessions.live_sessions import LiveSession
from voicepipe.server.sessions.session_usage import SessionUsage
from voicepipe.server.sessions.websocket import AiohttpSocket, upgrade
from voicepipe.server.usage_limits import UsageLimits
from voicepipe.session.grant import SessionGrant
from voicepipe.session.shutdown import POLICY_VIOLATION, TRY_AGAIN_LATER
from voicepipe.telemetry.log import log_event

MAX_BODY_BYTES: Final = 64 * 1024
"""Limit of a webhook's body: the carriers' have some kB."""

RETRY_WAITS_S: Final = (0.5, 2.0, 5.0)
"""Waits before a command that ends or transfers a call is tried again: else the user would hear silence until the
carrier ends the call itself. Telnyx ignores a repeated command: commands have IDs."""

FORM: Final = "application/x-www-form-urlencoded"


async def phone_webhook(request: web.Request) -> web.Response:
    """`POST /v1/phone/{line}`: the carrier announces a call, and connects it with a media stream."""
    context = request.app[CONTEXT]
    line = line_of(request, context)
    call, agent, base_url = await _verified_event(request, line, context)
    if isinstance(call, IgnoredWebhook):
        return web.Response()
    if isinstance(call, FailedStream):
        return await _transfer_or_hang_up(call.call_id, line, context)
    if call.is_voicemail:
        context.phone_calls.n_voicemail += 1
        if line.hangs_up_on_voicemail:
            return await _answer(line.carrier.hang_up(call.call_id, line.account), line, context)
    try:
        check_ready(context)
        await context.live_sessions.check(_live(call, agent, line, context))
    except (Overload, QuotaExceeded) as why:
        _refuse(line, context, why)
        # A call that the server has dialed is answered already: it can't be rejected.
        refuse = line.carrier.hang_up if call.is_dialed else line.carrier.reject
        return await _answer(refuse(call.call_id, line.account), line, context)
    token = await store_pending_call(PendingCall(call, agent), line, context.cluster)
    stream_url = f"{base_url.replace('http', 'ws', 1)}/v1/phone/{line.name}/stream/{token}"
    next_url = f"{base_url}/v1/phone/{line.name}/next"
    connect = line.carrier.connect(call, line.account, stream_url=stream_url, next_url=next_url)
    return await _answer(connect, line, context)


async def phone_next(request: web.Request) -> web.Response:
    """`POST /v1/phone/{line}/next`: the media stream is over; the call is transferred, or ends."""
    context = request.app[CONTEXT]
    line = line_of(request, context)
    call, *_ = await _verified_event(request, line, context)
    if isinstance(call, IgnoredWebhook):
        return web.Response()
    return await _transfer_or_hang_up(call.call_id, line, context)


async def _transfer_or_hang_up(
    call_id: str, line: PhoneLine, context: ServerContext, waits_s: Sequence[float] = ()
) -> web.Response:
    """Return the answer that transfers a call whose media stream is over, or ends it."""
    number = await stored_transfer(call_id, line, context.cluster)
    if number:
        transferred = await _answer(line.carrier.transfer(call_id, number, line.account), line, context, waits_s)
        if transferred.status == 200:
            context.phone_calls.n_transferred += 1
            return transferred
    return await _answer(line.carrier.hang_up(call_id, line.account), line, context, waits_s)


async def phone_stream(request: web.Request) -> web.StreamResponse:
    """`GET /v1/phone/{line}/stream/{token}`: the media stream of a call that the webhook has announced.

    A client that can set only the query of its address sends the token there.
    """
    context = request.app[CONTEXT]
    line = line_of(request, context)
    token = request.match_info.get("token") or request.query.get("token", "")
    stored = await take_pending_call(token, line, context.cluster)
    phone: PhoneSocket | None = None
    try:
        try:
            check_ready(context)
        except Overload as why:
            _refuse(line, context, why)
            raise
        response = upgrade(ping_ms=context.options.ping_ms, subprotocol=None)
        if not response.can_prepare(request):
            return upgrade_required()
        live = _live(stored.call, stored.agent, line, context)
        await response.prepare(request)
        socket = AiohttpSocket(response, request.transport)
        phone = PhoneSocket(socket, line.carrier.serializer(), context.phone_calls.count_invalid)
        try:
            await _run_call(phone, stored.call, line, live, context)
        except VoicepipeError as why:  # the server is full since the webhook, or a provider can't be used
            _refuse(line, context, why)
            await socket.close(TRY_AGAIN_LATER, "The call can't be taken now.")
        return response
    finally:  # however the stream ended: no call stays up without an agent
        if phone is None or not phone.is_over:
            await _end_by_api(stored.call.call_id, line, context)


async def _end_by_api(call_id: str, line: PhoneLine, context: ServerContext) -> None:
    """Transfer or end a call whose carrier takes commands by its API. No webhook repeats these commands, so the server
    retries."""
    if line.carrier.hang_up(call_id, line.account).requests:
        await _transfer_or_hang_up(call_id, line, context, waits_s=RETRY_WAITS_S)


async def _run_call(
    phone: PhoneSocket, call: AnnouncedCall, line: PhoneLine, live: LiveSession, context: ServerContext
) -> None:
    started = await phone.start()
    if started is None or started.call_id not in ("", call.call_id):
        await phone.close(POLICY_VIOLATION, "Expected the start of the announced call's stream.")
        return

    async def transfer(number: str) -> None:
        await store_transfer(call.call_id, number, line, context.cluster)

    async def send_dtmf(digits: str) -> None:
        await _send_dtmf(digits, phone, call, line, context)

    phone_call = PhoneCall(transfer_to=line.transfer_to, transfer=transfer, send_dtmf=send_dtmf)
    async with admitted(live, context) as session:
        live.socket = phone
        with context.phone_calls.running(live.grant.session_id, phone_call):
            await run_session(session, live, phone)


async def _send_dtmf(
    digits: str, phone: PhoneSocket, call: AnnouncedCall, line: PhoneLine, context: ServerContext
) -> None:
    """Send DTMF in a call.

    Raises:
        ToolError: the carrier refused it.
    """
    try:
        pressed = line.carrier.send_dtmf(call.call_id, digits, line.account, phone.serializer, now_s=unix_s())
    except ValueError as why:  # the line lacks what the carrier's API needs
        raise ToolError("Keys can't be pressed on this line.") from why
    if not isinstance(pressed, ApiRequest):
        await phone.send_dtmf(pressed)
    elif not await _send_command(pressed, line, context):
        raise ToolError("The keys were not pressed: the phone carrier did not take them.")


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


async def _verified_event(
    request: web.Request, line: PhoneLine, context: ServerContext
) -> tuple[WebhookEvent, str, str]:
    """Return the event of a webhook's request, the agent of a dialed call (empty: the line's), and the server's address
    as the carrier requested it.

    Raises:
        AuthError: 403: the signature is wrong, or the server did not make the call.
        NotFound: the request names no call.
    """
    handshake = context.authenticator.handshake(request)  # first: bodies are limited by the address that it finds
    body = await read_body(request, MAX_BODY_BYTES)
    form = parse_qsl(body.decode(errors="replace"), keep_blank_values=True) if request.content_type == FORM else []
    base_url = base_url_of(request, line, context)
    dial = request.query.get("dial")  # the server gave the carrier this address, see `phone_dial`
    webhook = WebhookRequest(
        url=f"{base_url}{request.raw_path}",
        headers=dict(handshake.headers),
        form=form,
        body=body,
        unix_s=unix_s(),
        is_dialed=dial is not None,
    )
    if not line.carrier.is_signed(webhook, line.account):
        context.phone_calls.log_unsigned(line.name, f"{base_url}{request.path}")
        raise AuthError("The carrier's signature is wrong.", code="phone_signature_wrong", status=403)
    event = line.carrier.event(webhook)
    if event is None:
        raise NotFound("The request names no call.", param=None, code="phone_call_not_found")
    agent = "" if dial is None else await dialed_agent(dial, line, context.cluster)
    if agent is None and isinstance(event, AnnouncedCall):
        raise AuthError("The server has made no such call.", code="phone_dial_unknown", status=403)
    return event, agent or "", base_url


def base_url_of(request: web.Request, line: PhoneLine, context: ServerContext) -> str:
    """Return the server's address as the carrier calls it."""
    return line.public_url or f"{context.authenticator.handshake(request).scheme}://{request.host}"


def _live(call: AnnouncedCall, requested_agent: str, line: PhoneLine, context: ServerContext) -> LiveSession:
    """Return the call's session, not yet admitted. The session's identity is the user's number."""
    metadata = (
        ("phone_line", line.name),
        ("user_number", call.user_number),
        ("line_number", call.line_number),
        ("answered_by", "voicemail" if call.is_voicemail else "person"),
    )
    agent = requested_agent or line.agent or context.agent_for(metadata) or "default"
    length_s = context.session_limit_s(agent)
    grant = SessionGrant(
        session_id=f"sess_{secrets.token_urlsafe(18)}",
        project=line.project,
        agent=agent,
        model=agent,
        identity=call.user_number or None,
        config=SESSION,
        metadata=metadata,
        expires_at=unix_s() + length_s,
        length_s=length_s,
    )
    principal = Principal(line.project, None)
    return LiveSession(grant, SessionUsage(UsageLimits(principal, context.quotas, context.cluster)))


def _refuse(line: PhoneLine, context: ServerContext, why: VoicepipeError) -> None:
    context.phone_calls.n_refused += 1
    log_event("phone_call_refused", level=logging.WARNING, line=line.name, why=str(why))


async def _answer(
    answer: WebhookAnswer, line: PhoneLine, context: ServerContext, waits_s: Sequence[float] = ()
) -> web.Response:
    """Return the answer to a webhook, after its requests to the carrier's API; 502 if the API refuses one: then the
    carrier repeats the webhook."""
    for each in answer.requests:
        if not await _send_command(each, line, context, waits_s):
            return web.Response(status=502)
    return web.Response(text=answer.body, content_type=answer.content_type)


async def _send_command(
    request: ApiRequest, line: PhoneLine, context: ServerContext, waits_s: Sequence[float] = ()
) -> bool:
    """Send a command to a call; return whether the carrier's API accepted it. Transient failures are retried after each
    of `waits_s`."""
    status, _ = await send_request(request)
    for wait_s in waits_s:
        if not is_transient(status):
            break
        await asyncio.sleep(wait_s)
        status, _ = await send_request(request)
    if not 200 <= status < 300:
        context.phone_calls.n_failed += 1
        log_event("phone_command_failed", level=logging.WARNING, line=line.name, url=request.url, status=status)
        return False
    return True
