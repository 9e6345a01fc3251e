"""The result of authentication, before the session begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from voicepipe.auth.claims import Lock
from voicepipe.protocol.session_types import SessionKind

Dialect = Literal["ga", "beta"]


class SessionGrant(Struct, frozen=True, kw_only=True):
    """Which identity may use which agent, and until when."""

    session_id: str
    """Unique and unguessable, `sess_...`."""

    project: str
    """The project that owns the session; only this project can read its turns."""

    agent: str
    """The name of the agent in the settings."""

    model: str
    """The model's name as the client requested it, to be echoed; without one, the agent's name."""

    identity: str | None
    """The user's identity, as the token's issuer names it."""

    config: Mapping[str, object] | None
    """The session that the token starts with, as in `session.update`; None means the agent's own."""

    expires_at: int
    """Unix seconds at which the session ends, when its running turn is over."""

    length_s: int | None = None
    """Seconds from the grant to the end, as sent to the client. None: those that are left when the session begins."""

    metadata: tuple[tuple[str, str], ...] = ()
    """The metadata of the client's token: of its session, and its routing names and values, which win."""

    locks: tuple[Lock, ...] = ()
    """Settings that the client may not change or, for some locks, not see."""

    redacted: bool = False
    """Whether provider errors are sent to the client without the provider's text: the client holds a client secret."""

    kind: SessionKind = "realtime"
    """`transcription`: no reply is made, the user's speech is only transcribed (`session.update` may still change
    it)."""

    continues: bool = False
    """The client goes on with a call whose session is gone, in which the agent has spoken: it does not greet again."""

    dialect: Dialect = "ga"
    """The shape of the events that the client reads (`session.update` may still change it)."""
