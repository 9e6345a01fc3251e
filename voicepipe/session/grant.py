"""What the door decided about a caller before the session begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from voicepipe.auth.claims import Lock
from voicepipe.protocol.session_parts import SessionKind

Dialect = Literal["ga", "beta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGrant:
    """Who may talk to which agent, and until when."""

    session_id: str
    """Unique and unguessable, `sess_...`."""

    project: str
    """Whom the session belongs to; its turns are read by this project only."""

    agent: str
    """The name of the agent in the settings."""

    model: str
    """The model's name as the client asked for it, to be echoed; the agent's name when it did not."""

    identity: str | None
    """Who is calling, as the token's maker names them."""

    config: Mapping[str, object] | None
    """The session that the token starts with, as in `session.update`; None means the agent's own."""

    expires_at: int
    """Unix seconds at which the session ends, when its running turn is over."""

    locks: tuple[Lock, ...] = ()
    """What the client may not change, or not even see."""

    veiled: bool = False
    """Whether the client is told that a provider failed and none of its words: it holds a client secret."""

    kind: SessionKind = "realtime"
    """`transcription`: nobody answers; the caller's words are written down (`session.update` may still change it)."""

    dialect: Dialect = "ga"
    """The shape of the events that the client understands (`session.update` may still change it)."""
