"""Apply a client secret to a REST request: its allowed models, session settings and locks."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.auth.request_credentials import Handshake
from voicepipe.auth.token_limits import check_token_limits
from voicepipe.errors import AuthError, ProtocolError
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.context import ServerContext
from voicepipe.server.realtime import origin_of, token_config
from voicepipe.session.grant import SessionGrant


def check_may_reach(
    claims: Claims, name: str, agent: str | None, handshake: Handshake, *, unpriced: str | None
) -> None:
    """Check a client secret against one route. It may request agents; a bare spec only if its limits name that spec.

    Args:
        claims: the secret's claims.
        name: the name of the route.
        agent: the route's agent; None for a bare spec or a pool.
        handshake: the request's handshake.
        unpriced: a spec of the route without a price; None: all specs have a price.

    Raises:
        AuthError: 403, naming the allowed agents and models.
    """
    check_token_limits(claims, origin=origin_of(handshake), model=name, agent=agent or "")
    if agent is None and name not in claims.limits.models:
        why = "A client secret may use agents, and the models of its limits.models."
        raise AuthError(why, code="model_not_allowed", status=403)
    if claims.limits.spend_usd is not None and unpriced:
        why = f"This client secret has a limit on spending, and the price of {unpriced} is not known here."
        raise AuthError(why, code="price_unknown", status=403)


class TokenSession(Struct, frozen=True):
    """The session that a client secret would start, for a request without a session."""

    session: SessionConfig
    config: Mapping[str, Any]
    """The session config of the secret itself."""

    claims: Claims

    def is_locked(self, *path: str) -> bool:
        """Return whether the field at these steps, a parent or a child of it is locked."""
        return any(lock.path[: len(path)] == path[: len(lock.path)] for lock in self.claims.locks)

    def check_model(self, requested: str) -> None:
        """Check that the session's own model is requested if that model is locked.

        Raises:
            ProtocolError: another model was requested.
        """
        if self.is_locked("model") and requested != self.config.get("model", requested):
            raise field_locked("model")


async def token_session(claims: Claims, name: str, agent: str | None, context: ServerContext) -> TokenSession:
    """Return the session that a client secret would start with the model `name`.

    Raises:
        AuthError: the secret's session settings are no longer stored.
    """
    config = await token_config(claims, context) or {}
    grant = SessionGrant(
        session_id=f"sess_{secrets.token_urlsafe(18)}",
        project=claims.project,
        agent=agent or "default",
        model=name,
        identity=None,
        config=None,
        expires_at=claims.expires_at_s,
    )
    return TokenSession(context.token_issuer.start_config(grant).merged(config), config, claims)


def field_locked(field: str) -> ProtocolError:
    """Return the error for a field that the client secret locks."""
    return ProtocolError("The client secret locks the field: leave it out.", field=field, code="field_locked")
