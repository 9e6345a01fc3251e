"""The claims of a client secret: the user, the lifetime, the limits, and the locked fields."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from voicepipe.auth.scopes import TOKEN_DEFAULT

Positive = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(max_length=256)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of one token. None, or an empty tuple: no limit. An unknown limit is refused."""

    max_sessions: Positive | None = None
    """Maximum number of sessions started with it; 1 is single use."""

    session_seconds: Positive | None = None
    """Length of each session, in seconds."""

    turns: Positive | None = None
    """Turns of all its sessions together."""

    spend_usd: Annotated[float, Meta(gt=0)] | None = None
    """Cost of LLM and TTS for all its sessions together, at the prices in the settings."""

    origins: tuple[Name, ...] = ()
    """Pages that may use it, as browsers send them: `https://shop.example`."""

    models: tuple[Name, ...] = ()
    """Names that may be requested in `?model=`."""

    agents: tuple[Name, ...] = ()


class Lock(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of the session that a later `session.update` may not change."""

    field: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_]+(\.[a-zA-Z0-9_]+)*$")]
    """Dotted path inside the session in its GA shape: `instructions`, `audio.output.voice`."""

    hidden: bool = False
    """It is empty in the `session.created` and `session.updated` that the client gets."""

    @property
    def path(self) -> tuple[str, ...]:
        """Return the steps of the field's path."""
        return tuple(self.field.split("."))


class Claims(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "issuer": "iss",
        "audience": "aud",
        "subject": "sub",
        "issued_at_s": "iat",
        "not_before_s": "nbf",
        "expires_at_s": "exp",
        "token_id": "jti",
        "config_id": "cfg",
        "key_id": "key",
        "reserved_until_s": "rsv",
    },
):
    """The claims of a token. In the token itself the registered claims have their short names (RFC 7519, 4.1). Times
    are unix seconds.
    """

    issuer: str
    audience: str
    subject: Name
    """The user, as the customer names the user; revocation by `sub` refers to it. May be empty."""

    issued_at_s: int
    not_before_s: int
    expires_at_s: int
    """A session that runs at this time goes on."""

    token_id: Annotated[str, Meta(min_length=1, max_length=128)]
    project: Annotated[str, Meta(min_length=1, max_length=64)]
    identity: Name = ""
    """A human-readable name, in records and on the dashboard."""

    scopes: tuple[str, ...] = TOKEN_DEFAULT
    limits: Limits = Limits()
    routing: dict[Annotated[str, Meta(max_length=64)], Name] = msgspec.field(default_factory=dict)
    """Free names and values that routing rules may read: `{"tier": "gold"}`."""

    locks: tuple[Lock, ...] = ()
    key_id: Annotated[str, Meta(max_length=128)] = ""
    """The ID of the API key that minted it, whose quotas its sessions count for; empty without one."""

    reserved_until_s: int = 0
    """Until when a slot is reserved for its first session; 0: none is."""

    config_id: Annotated[str, Meta(max_length=128)] = ""
    """The key of the starting session config in the cluster's store; empty when it is inlined, or there is none."""

    session: dict[str, Any] = msgspec.field(default_factory=dict)
    """The starting session config itself, when it is small and without instructions: the token's holder can read a
    JWT.
    """
