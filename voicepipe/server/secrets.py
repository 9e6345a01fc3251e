"""`POST /v1/realtime/client_secrets`: a backend's API key becomes a short-lived `ek_` for a browser."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from aiohttp import web

from voicepipe.auth.claims import Claims
from voicepipe.auth.door import check_may_mint
from voicepipe.auth.tokens import AUDIENCE, ISSUER, fits_inline, mint, new_token_id
from voicepipe.clock import unix_s
from voicepipe.errors import ProtocolError
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.doorway import Visitor
from voicepipe.server.parts import PARTS, Parts
from voicepipe.session.grant import SessionGrant

LIFE_S: Final = 600
MIN_LIFE_S: Final = 10
MAX_LIFE_S: Final = 7_200
"""The published default and bounds of `expires_after.seconds`."""


class ExpiresAfter(msgspec.Struct, frozen=True):
    """When the client secret stops opening sessions."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, msgspec.Meta(ge=MIN_LIFE_S, le=MAX_LIFE_S)] = LIFE_S


class SecretWanted(msgspec.Struct, frozen=True):
    """The body of the request; every part may be left out. Unknown fields are skipped, as everywhere on this wire."""

    expires_after: ExpiresAfter | None = None
    session: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Minted:
    """A client secret and the session that it would start."""

    value: str
    expires_at: int
    session: SessionConfig


async def client_secrets(request: web.Request) -> web.Response:
    """Mint an `ek_` for whoever holds an API key; a client secret never mints another."""
    visitor = await admit_minter(request)
    minted = await mint_secret(visitor, read_wanted(await request.read()), request.app[PARTS])
    body = {"value": minted.value, "expires_at": minted.expires_at, "session": minted.session.to_wire()}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def admit_minter(request: web.Request) -> Visitor:
    """Find out who asks for a secret.

    Raises:
        AuthError: 401, 403 or 429; a client secret may not mint.
    """
    visitor = await request.app[PARTS].doorway.admit(request)
    if visitor.holder is not None:
        check_may_mint(visitor.holder)
    return visitor


def read_wanted(body: bytes) -> SecretWanted:
    """Read the request's body; an empty one asks for nothing special.

    Raises:
        ProtocolError: it is not such a JSON object; `field` is the dotted path of what is wrong.
    """
    if not body.strip():
        return SecretWanted()
    try:
        return msgspec.json.decode(body, type=SecretWanted)
    except msgspec.ValidationError as wrong:
        why, _, path = str(wrong).partition(" - at ")
        raise ProtocolError(why, field=path.strip("`").removeprefix("$.") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("Expected a JSON object as the body, or no body.", code="invalid_json") from None


async def mint_secret(visitor: Visitor, wanted: SecretWanted, parts: Parts) -> Minted:
    """Mint what was wanted.

    Raises:
        ProtocolError: the session can't be started like that; `field` names what is wrong.
    """
    now_s = unix_s()
    expires_at = now_s + (wanted.expires_after or ExpiresAfter()).seconds
    session = wanted.session or {}
    shown = _session_shown(visitor, session, expires_at, parts)
    token_id, inline = new_token_id(), fits_inline(session)
    claims = Claims(
        issuer=ISSUER,
        audience=AUDIENCE,
        subject="",
        issued_at_s=now_s,
        not_before_s=now_s,
        expires_at_s=expires_at,
        token_id=token_id,
        project=visitor.project,
        config_id="" if inline else token_id,
        session=session if inline else {},
    )
    keyring = await asyncio.to_thread(parts.key_store.keyring, now_s)
    value = mint(claims, keyring.signer)
    if not inline:
        kept = msgspec.json.encode(session)
        await parts.cluster.keep_config(token_id, kept, project=visitor.project, until_s=expires_at, now_s=now_s)
    return Minted(value, expires_at, shown)


def _session_shown(visitor: Visitor, session: dict[str, Any], expires_at: int, parts: Parts) -> SessionConfig:
    """The whole session that the token will start, and with it the check that it can.

    Raises:
        ProtocolError: a field of the session is wrong.
    """
    model = session.get("model")
    if model is not None and not isinstance(model, str):
        raise ProtocolError(f"Expected a text, got {type(model).__name__}.", field="session.model")
    agent = (parts.agent_named(model) if model else None) or "default"
    grant = SessionGrant(
        session_id=f"sess_{secrets.token_urlsafe(18)}",
        project=visitor.project,
        agent=agent,
        model=model or agent,
        identity=None,
        config=session,
        expires_at=expires_at,
    )
    return parts.start_config(grant).merged(session)
