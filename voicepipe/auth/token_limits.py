"""Check a token's own limits: at the handshake, and while its session runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voicepipe.auth.claims import Claims, Limits, Lock
from voicepipe.errors import AuthError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The usage under one token so far."""

    turns: int = 0
    """Of all sessions of the token, this one included."""

    spend_usd: float = 0.0
    """Cost of all sessions of the token, likewise."""


def check_token_limits(claims: Claims, *, origin: str | None, model: str, agent: str) -> None:
    """Check a handshake against the token's limits on page, model and agent.

    `origin` is the `Origin` header, None when there is none (no browser). `model` is the requested name, empty without
    a request. `agent` is the agent that the session would get.

    Raises:
        AuthError: 403, naming what is allowed.
    """
    limits = claims.limits
    if limits.origins and origin not in limits.origins:
        came = repr(origin[:200]) if origin else "no page at all"
        raise _forbidden("origin_not_allowed", f"is for pages of {', '.join(limits.origins)}, and was used by {came}")
    if limits.models and model and model not in limits.models:
        raise _forbidden("model_not_allowed", f"is for the models {', '.join(limits.models)}, not for {model[:64]!r}")
    if limits.agents and agent not in limits.agents:
        raise _forbidden("agent_not_allowed", f"is for the agents {', '.join(limits.agents)}, not for {agent[:64]!r}")


def limit_reached(limits: Limits, usage: TokenUsage) -> str | None:
    """Return which limit the sessions of a token have used up, as text for the close reason; None while none is.

    Short enough for a WebSocket close frame (123 bytes, RFC 6455 5.5).
    """
    if limits.turns is not None and usage.turns >= limits.turns:
        return f"turn limit of this client secret reached: {limits.turns} turns"
    if limits.spend_usd is not None and usage.spend_usd >= limits.spend_usd:
        return f"spend limit of this client secret reached: {limits.spend_usd:g} USD"
    return None


def broken_locks(before: Mapping[str, Any], after: Mapping[str, Any], locks: tuple[Lock, ...]) -> tuple[str, ...]:
    """Return the locked fields that differ between two whole session objects, before and after an update.

    It compares results, not requests: this finds a change whatever shape an update has, and whatever it replaces.
    """
    return tuple(lock.field for lock in locks if _at(before, lock.path) != _at(after, lock.path))


def _at(session: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = session
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _forbidden(code: str, why: str) -> AuthError:
    return AuthError(f"This client secret {why}. Let your backend mint one that fits.", code=code, status=403)
