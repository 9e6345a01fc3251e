"""`POST /v1/phone/{line}/calls`: call a number, and connect an agent once the call is answered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import TOKENS
from voicepipe.clock import unix_s
from voicepipe.errors import AuthError, ProtocolError
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound, refusal
from voicepipe.server.phone.carrier_api import send_request
from voicepipe.server.phone.pending_calls import store_dial
from voicepipe.server.phone.routes import MAX_BODY_BYTES, base_url_of, line_of
from voicepipe.server.request_bodies import read_body
from voicepipe.server.token_issuer import read_json


class Dial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the request."""

    to: Annotated[str, msgspec.Meta(pattern=r"^\+[1-9][0-9]{1,14}$")]
    agent: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """The agent that talks; empty: the agent that answers the line's calls."""


async def phone_dial(request: web.Request) -> web.Response:
    """Call a number. Only API keys of the line's project may: a call costs money.

    Raises:
        AuthError: 401 or 403.
        NotFound: there is no such line, or agent.
        ProtocolError: the body is wrong, or the line has no number to call from.
    """
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(TOKENS)
    line = line_of(request, context)
    if principal.claims is not None or (principal.holder is not None and principal.project != line.project):
        raise AuthError("Calls are made for API keys of the line's project only.", code="phone_not_allowed", status=403)
    dial: Dial = read_json(await read_body(request, MAX_BODY_BYTES), Dial)
    if not line.account.number:
        raise ProtocolError(f"phone.{line.name}.number: expected a number to call from, got none", field=None)
    if dial.agent and context.agent_named(dial.agent) != dial.agent:
        raise NotFound(f"There is no agent {dial.agent[:64]!r} here.", param="agent", code="agent_not_found")
    dial_id = await store_dial(dial.agent, line, context.cluster)
    status, body = await send_request(
        line.carrier.dial(
            line.account,
            user_number=dial.to,
            webhook_url=f"{base_url_of(request, line, context)}/v1/phone/{line.name}?dial={dial_id}",
            hangs_up_on_voicemail=line.hangs_up_on_voicemail,
            now_s=unix_s(),
        )
    )
    try:
        call_id = line.carrier.dialed_call_id(body) if status in (200, 201) else ""
    except ValueError:  # not JSON, or without an ID
        call_id = ""
    if not call_id:
        return refusal(502, f"The carrier did not take the call: HTTP {status}.", code="phone_carrier_refused")
    context.phone_calls.n_dialed += 1
    answer = {"object": "voicepipe.phone_call", "id": call_id, "line": line.name, "to": dial.to}
    return web.json_response(answer, status=201)
