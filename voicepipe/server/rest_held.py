"""A client secret's say in what is asked over REST: whom it may ask, and what its session settings and locks hold."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voicepipe.auth.claims import Claims
from voicepipe.auth.entry import check_entry
from voicepipe.auth.handshake import Handshake
from voicepipe.errors import AuthError, ProtocolError
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.parts import Parts
from voicepipe.server.realtime import origin_of, token_config
from voicepipe.session.grant import SessionGrant


def check_may_reach(claims: Claims, name: str, agent: str | None, shown: Handshake, *, unpriced: str | None) -> None:
    """Hold a client secret against one route. It asks for agents; for a bare spec only if its limits name that.

    Args:
        claims: what the secret says.
        name: of the route.
        agent: whose it is; None for a bare spec or a pool.
        shown: the request.
        unpriced: who may answer, and nobody knows at what price; None if all prices are known.

    Raises:
        AuthError: 403, naming what is allowed.
    """
    check_entry(claims, origin=origin_of(shown), model=name, agent=agent or "")
    if agent is None and name not in claims.limits.models:
        why = "A client secret may ask for agents, and for what its limits.models names."
        raise AuthError(why, code="model_not_allowed", status=403)
    if claims.limits.spend_usd is not None and unpriced:
        why = f"This client secret has a limit on spending, and the price of {unpriced} is not known here."
        raise AuthError(why, code="price_unknown", status=403)


@dataclass(frozen=True, slots=True)
class HeldSession:
    """The session that a client secret would start, for what asks without one."""

    session: SessionConfig
    config: Mapping[str, Any]
    """The secret's own part of it."""

    claims: Claims

    def is_locked(self, path: str) -> bool:
        """Whether the field, or what it is part of, or a part of it, can't be changed."""
        return any(
            f"{path}.".startswith(f"{lock.field}.") or f"{lock.field}.".startswith(f"{path}.")
            for lock in self.claims.locks
        )

    def check_model(self, asked: str) -> None:
        """Demand the session's own model if that is locked.

        Raises:
            ProtocolError: another one was asked for.
        """
        if self.is_locked("model") and asked != self.config.get("model", asked):
            raise field_locked("model")


async def held_session(claims: Claims, name: str, agent: str | None, parts: Parts) -> HeldSession:
    """The session that `claims` would start when they ask for `name`.

    Raises:
        AuthError: the secret's session settings are gone.
    """
    config = await token_config(claims, parts) or {}
    grant = SessionGrant(
        session_id=f"sess_{secrets.token_urlsafe(18)}",
        project=claims.project,
        agent=agent or "default",
        model=name,
        identity=None,
        config=None,
        expires_at=claims.expires_at_s,
    )
    return HeldSession(parts.desk.start_config(grant).merged(config), config, claims)


def field_locked(field: str) -> ProtocolError:
    """The refusal of a field that the client secret locks."""
    return ProtocolError("The client secret locks the field: leave it out.", field=field, code="field_locked")
