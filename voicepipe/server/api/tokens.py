"""The routes of client secrets: a backend mints and revokes them; this machine's talk page gets one automatically."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from voicepipe.auth.claims import Limits
from voicepipe.auth.identify import check_may_mint
from voicepipe.auth.scopes import REALTIME, TURNS
from voicepipe.clock import unix_s
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.errors import ProtocolError
from voicepipe.protocol.ga import session_object
from voicepipe.server.authenticate import OPEN_PROJECT, Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.quota_usage import QuotaUsage
from voicepipe.server.request_bodies import read_body
from voicepipe.server.token_issuer import (
    ExpiresAfter,
    Minted,
    SecretRequest,
    TokenRequest,
    read_json,
    read_secret_request,
)
from voicepipe.telemetry.log import log_event
from voicepipe.values import replace

TALK_LIFE_S: Final = 3_600
"""Lifetime of the talk page's own token: a page that stays open longer requests another one."""

JWKS_AGE_S: Final = 300
"""Time for which a client may cache the public keys: publish a new key 300 s before it signs."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Revoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens to revoke: exactly one of both fields."""

    token_id: Text | None = None
    subject: Text | None = None


async def client_secrets(request: web.Request) -> web.Response:
    """`POST /v1/realtime/client_secrets`: exchange an API key for a short-lived `ek_` for a browser."""
    principal = await admit_minter(request)
    requested = read_secret_request(await read_body(request))
    minted = await mint_secret(principal, requested, request.app[CONTEXT])
    return _json(_published_fields(minted) | (_voicepipe_fields(minted) if requested.voicepipe is not None else {}))


async def revoke(request: web.Request) -> web.Response:
    """`POST /v1/realtime/client_secrets/revoke`: one token, or all tokens of a subject until now, and their sessions.

    An unknown token is revoked too: tokens are not stored, so the server cannot distinguish it. `"stored": false` while
    the shared store fails: this process applies the revocation at once, and others when the store is back.
    """
    principal = await admit_minter(request)
    gone: Revoked = read_json(await read_body(request), Revoked)
    now_s, project = unix_s(), principal.project
    if gone.token_id is not None and gone.subject is None:
        revocation: Revocation = RevokedToken.at(now_s, project, gone.token_id)
    elif gone.subject is not None and gone.token_id is None:
        revocation = RevokedSubject.at(now_s, project, gone.subject)
    else:
        raise ProtocolError("Expected one of token_id and subject.", field="token_id")
    stored = await request.app[CONTEXT].cluster.revoke(revocation, now_s=now_s)
    log_event("token_revoked", project=project, by="subject" if gone.subject is not None else "id")
    return _json({"revoked": True} if stored else {"revoked": True, "stored": False})


async def talk_token(request: web.Request) -> web.Response:
    """`POST /talk/token`: a client secret for the talk page of this machine, good for that page alone."""
    context = request.app[CONTEXT]
    origin = await context.authenticator.admit_talk_page(request)
    requested = read_secret_request(await read_body(request))
    extension = TokenRequest(identity="talk page", scopes=(REALTIME, TURNS), limits=Limits(origins=(origin,)))
    life = requested.expires_after or ExpiresAfter(seconds=TALK_LIFE_S)
    minted = await context.token_issuer.mint(OPEN_PROJECT, replace(requested, expires_after=life, voicepipe=extension))
    return _json(
        _published_fields(minted) | {"voicepipe": {"token_id": minted.token_id, "agents": context.agent_choices()}}
    )


async def jwks(request: web.Request) -> web.Response:
    """`GET /.well-known/jwks.json`: the public halves of the keys that sign, for services that verify this server's
    tokens (RFC 7517).

    Empty while generated secrets sign, since those have no public half.
    """
    keyring = await asyncio.to_thread(request.app[CONTEXT].key_store.keyring, unix_s())
    body = msgspec.json.encode(await asyncio.to_thread(keyring.jwks))
    headers = {"Cache-Control": f"public, max-age={JWKS_AGE_S}"}
    return web.Response(body=body, content_type="application/jwk-set+json", headers=headers)


async def admit_minter(request: web.Request) -> Principal:
    """Authenticate a request for a secret.

    Raises:
        AuthError: 401, 403 or 429; a client secret may not mint.
    """
    principal = await request.app[CONTEXT].authenticator.admit(request)
    if principal.holder is not None:
        check_may_mint(principal.holder)
    return principal


async def mint_secret(principal: Principal, requested: SecretRequest, context: ServerContext) -> Minted:
    """Mint the requested secret, in the principal's project.

    Raises:
        ProtocolError: the request cannot be met; `field` names the wrong field.
        Overload: the server has no slot for another session.
        QuotaExceeded: no slot is left for it to reserve.
    """
    await context.live_sessions.check_capacity()
    minted = await context.token_issuer.mint(principal.project, requested, key_id=principal.key_id)
    context.live_sessions.check_stages(context.agent_named(minted.session.model) or "default")
    if minted.reserved_until_s and requested.voicepipe is not None:
        token_quotas = context.quotas.of(
            project=principal.project, key_id=principal.key_id, subject=requested.voicepipe.subject
        )
        quotas = QuotaUsage(token_quotas, context.cluster)
        await context.live_sessions.reserve(principal.project, minted.token_id, quotas)
    return minted


def _voicepipe_fields(minted: Minted) -> dict[str, Any]:
    reserved = {"reserved_until": minted.reserved_until_s} if minted.reserved_until_s else {}
    return {"voicepipe": {"token_id": minted.token_id, **reserved}}


def _published_fields(minted: Minted) -> dict[str, Any]:
    return {"value": minted.value, "expires_at": minted.expires_at, "session": session_object(minted.session)}


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
