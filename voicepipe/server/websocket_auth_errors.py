"""Send refusals that a browser can read: its WebSocket is accepted just long enough to send the error."""

from __future__ import annotations

import secrets

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from voicepipe.auth.credentials import answer_subprotocol
from voicepipe.errors import AuthError
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.sessions.websocket import AiohttpSocket, upgrade
from voicepipe.session.shutdown import NOT_AUTHORISED, POLICY_VIOLATION


def websocket_auth_errors(handler: Handler) -> Handler:
    """Wrap the WebSocket endpoint: with `server.websocket_auth_errors` a page gets the reason of a refusal."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except AuthError as error:
            context = request.app[CONTEXT]
            if (
                not context.options.websocket_auth_errors
                or "Origin" not in request.headers
                or error.status not in (401, 403)
            ):
                raise  # an address with too many bad credentials (429) gets no WebSocket
            return await _send_error(request, context, error)

    return handle


async def _send_error(request: web.Request, context: ServerContext, error: AuthError) -> web.StreamResponse:
    websocket = upgrade(
        ping_ms=context.options.ping_ms, subprotocol=answer_subprotocol(context.authenticator.handshake(request))
    )
    if not websocket.can_prepare(request):
        raise error
    await websocket.prepare(request)
    socket = AiohttpSocket(websocket, request.transport)
    await socket.send(_event(error))
    await socket.close(NOT_AUTHORISED if error.status == 401 else POLICY_VIOLATION, error.why)
    return websocket


def _event(error: AuthError) -> bytes:
    why = {"type": "invalid_request_error", "code": error.code, "message": error.why, "param": None, "event_id": None}
    event = {"type": "error", "event_id": f"event_{secrets.token_urlsafe(12)}", "error": why}
    return msgspec.json.encode(event)
