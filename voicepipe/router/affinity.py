"""Store for each session the provider of its last answer, and the providers that have it in their cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

WARM_MS: Final = 300_000
"""Time for which a provider caches an unused prompt: several document five minutes, some ten."""

MIN_CACHED_TOKENS: Final = 1_024
"""Most providers do not cache shorter prompts, and do not report this."""

MAX_SESSIONS: Final = 20_000
"""Full: the session that was inactive the longest is dropped, and counts as new."""

NO_SPECS: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class SessionAffinity:
    """The affinity of one session."""

    last: str = ""
    """The spec of the model that answered last."""

    n_turns: int = 0
    """Its turns so far."""

    read_ms: dict[str, float] = field(default_factory=dict)
    """Spec -> time of its last request."""


class Affinity:
    """The affinities of all sessions. Pure: instants are passed in."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, SessionAffinity] = OrderedDict()
        self._unknown = SessionAffinity()

    def of(self, session: str) -> SessionAffinity:
        """Return the affinity of a session; empty for a session without a name."""
        return self._sessions.get(session, self._unknown) if session else self._unknown

    def record(self, session: str, requested: tuple[str, ...], spoke: str, n_tokens: float, now_ms: float) -> None:
        """Record the models that got the request, and the model that answered (empty: none)."""
        if not session:
            return
        known = self._sessions.pop(session, None) or SessionAffinity()
        self._sessions[session] = known
        known.last = spoke or known.last
        known.n_turns += 1
        if n_tokens >= MIN_CACHED_TOKENS:
            known.read_ms.update(dict.fromkeys(requested, now_ms))
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)


def warm_specs(session: SessionAffinity, now_ms: float) -> frozenset[str]:
    """Return the models whose providers should have the session's earlier turns in their caches."""
    if not session.read_ms:
        return NO_SPECS
    return frozenset([spec for spec, read_ms in session.read_ms.items() if now_ms - read_ms < WARM_MS])
