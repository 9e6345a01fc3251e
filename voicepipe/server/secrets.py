"""The routes of client secrets: a backend mints and revokes them; this machine's talk page gets one automatically."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from voicepipe.auth.claims import Limits
from voicepipe.auth.door import check_may_mint
from voicepipe.auth.scopes import REALTIME, TURNS
from voicepipe.clock import unix_s
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.errors import ProtocolError
from voicepipe.server.bodies import read_body
from voicepipe.server.desk import ExpiresAfter, Minted, SecretWanted, TokenWanted, read_json, read_wanted
from voicepipe.server.doorway import OPEN_PROJECT, Visitor
from voicepipe.server.parts import PARTS, Parts
from voicepipe.telemetry.log import log_event

TALK_LIFE_S: Final = 3_600
"""Lifetime of the talk page's own token: a page that stays open longer requests another one."""

JWKS_AGE_S: Final = 300
"""How long a client may cache the public keys: publish a new key that long before it signs."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Revoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to revoke: exactly one of both."""

    token_id: Text | None = None
    subject: Text | None = None


async def client_secrets(request: web.Request) -> web.Response:
    """`POST /v1/realtime/client_secrets`: exchange an API key for a short-lived `ek_` for a browser."""
    visitor = await admit_minter(request)
    wanted = read_wanted(await read_body(request))
    minted = await mint_secret(visitor, wanted, request.app[PARTS])
    ours = {"voicepipe": {"token_id": minted.token_id}} if wanted.voicepipe is not None else {}
    return _json(_told(minted) | ours)


async def revoke(request: web.Request) -> web.Response:
    """`POST /v1/realtime/client_secrets/revoke`: one token, or all tokens of a subject until now, and their sessions.

    An unknown token is revoked too: tokens are not stored, so the server cannot distinguish it. `"stored": false` while
    the shared store fails: this process applies the revocation at once, and others when the store is back.
    """
    visitor = await admit_minter(request)
    gone: Revoked = read_json(await read_body(request), Revoked)
    now_s, project = unix_s(), visitor.project
    if gone.token_id is not None and gone.subject is None:
        revocation: Revocation = RevokedToken.at(now_s, project, gone.token_id)
    elif gone.subject is not None and gone.token_id is None:
        revocation = RevokedSubject.at(now_s, project, gone.subject)
    else:
        raise ProtocolError("Expected one of token_id and subject.", field="token_id")
    stored = await request.app[PARTS].cluster.revoke(revocation, now_s=now_s)
    log_event("token_revoked", project=project, by="subject" if gone.subject is not None else "id")
    return _json({"revoked": True} if stored else {"revoked": True, "stored": False})


async def talk_token(request: web.Request) -> web.Response:
    """`POST /talk/token`: a client secret for the talk page of this machine, good for that page alone."""
    parts = request.app[PARTS]
    origin = await parts.doorway.admit_talk_page(request)
    wanted = read_wanted(await read_body(request))
    ours = TokenWanted(identity="talk page", scopes=(REALTIME, TURNS), limits=Limits(origins=(origin,)))
    life = wanted.expires_after or ExpiresAfter(seconds=TALK_LIFE_S)
    minted = await parts.desk.mint(OPEN_PROJECT, msgspec.structs.replace(wanted, expires_after=life, voicepipe=ours))
    return _json(_told(minted) | {"voicepipe": {"token_id": minted.token_id, "agents": parts.offered()}})


async def jwks(request: web.Request) -> web.Response:
    """`GET /.well-known/jwks.json`: the public halves of the keys that sign, for services that verify our tokens (RFC
    7517).

    Empty while generated secrets sign, since those have no public half.
    """
    keyring = await asyncio.to_thread(request.app[PARTS].key_store.keyring, unix_s())
    body = msgspec.json.encode(await asyncio.to_thread(keyring.jwks))
    headers = {"Cache-Control": f"public, max-age={JWKS_AGE_S}"}
    return web.Response(body=body, content_type="application/jwk-set+json", headers=headers)


async def admit_minter(request: web.Request) -> Visitor:
    """Authenticate a request for a secret.

    Raises:
        AuthError: 401, 403 or 429; a client secret may not mint.
    """
    visitor = await request.app[PARTS].doorway.admit(request)
    if visitor.holder is not None:
        check_may_mint(visitor.holder)
    return visitor


async def mint_secret(visitor: Visitor, wanted: SecretWanted, parts: Parts) -> Minted:
    """Mint the requested secret, in the visitor's project.

    Raises:
        ProtocolError: the request cannot be met; `field` names what is wrong.
    """
    return await parts.desk.mint(visitor.project, wanted)


def _told(minted: Minted) -> dict[str, Any]:
    return {"value": minted.value, "expires_at": minted.expires_at, "session": minted.session.to_wire()}


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
