"""The older endpoints that mint: they take a flat session and return all of it with the client secret inside."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from voicepipe.errors import ProtocolError, validation_place
from voicepipe.protocol.beta import BETA
from voicepipe.protocol.session_types import SessionKind
from voicepipe.protocol.session_update import is_published, published
from voicepipe.server.api.tokens import admit_minter, mint_secret
from voicepipe.server.context import CONTEXT
from voicepipe.server.request_bodies import read_body
from voicepipe.server.token_issuer import ExpiresAfter, SecretRequest

LIFE_S: Final = 60
"""Default lifetime of these secrets: one minute, as in the older service."""


async def sessions(request: web.Request) -> web.Response:
    """`POST /v1/realtime/sessions`: a secret for sessions with speech output."""
    return await _answer(request, "realtime")


async def transcription_sessions(request: web.Request) -> web.Response:
    """`POST /v1/realtime/transcription_sessions`: a secret for sessions that only transcribe."""
    return await _answer(request, "transcription")


async def _answer(request: web.Request, kind: SessionKind) -> web.Response:
    principal = await admit_minter(request)
    requested = read_older(await read_body(request), kind)
    minted = await mint_secret(principal, requested, request.app[CONTEXT])
    secret = {"value": minted.value, "expires_at": minted.expires_at}
    body = {**BETA.session(minted.session), "client_secret": secret}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def read_older(body: bytes, kind: SessionKind) -> SecretRequest:
    """Read a flat session, which may set its secret's lifetime at `client_secret.expires_after`.

    Raises:
        ProtocolError: it is not the expected JSON object; `field` is the path of the wrong field.
    """
    try:
        given = msgspec.json.decode(body, type=dict[str, Any]) if body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("Expected a JSON object as the body, or no body.", code="invalid_json") from None
    session = {**given, "type": kind} if is_published(given) else published(given, kind)
    if "model" in given:
        session["model"] = given["model"]
    return SecretRequest(expires_after=_life(given), session=session)


def _life(given: dict[str, Any]) -> ExpiresAfter:
    secret = given.get("client_secret")
    if not isinstance(secret, dict):
        secret = given
    # The older transcription endpoint calls it `expires_at`, with the same content.
    requested = secret.get("expires_after") or secret.get("expires_at")
    if requested is None:
        return ExpiresAfter(seconds=LIFE_S)
    try:
        return msgspec.convert(
            {"seconds": LIFE_S, **requested} if isinstance(requested, dict) else requested, ExpiresAfter
        )
    except msgspec.ValidationError as wrong:
        why, path = validation_place(wrong)
        raise ProtocolError(why, field=".".join(filter(None, ("client_secret.expires_after", path)))) from None
