"""The sessions that are open now in this process, with the counts of their turns so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from voicepipe.session.grant import SessionGrant
from voicepipe.turn.record.values import TurnRecord

TURNS_KNOWN: Final = 64
"""Turns whose records may still be renewed."""


@dataclass(frozen=True, slots=True)
class _TurnFigures:
    """Figures of one turn that are added up."""

    over: bool
    failed: bool
    total_ms: int | None


class OpenSession:
    """A session: its user, its start, and figures of its closed turns."""

    def __init__(self, grant: SessionGrant, *, began_unix_ms: int) -> None:
        self.grant, self.began_unix_ms = grant, began_unix_ms
        self.turns = self.over = self.failed = 0
        self.slowest_ms: int | None = None
        self.cost_usd = 0.0
        self._known: OrderedDict[str, _TurnFigures] = OrderedDict()  # full: the oldest can no longer be renewed

    def note(self, record: TurnRecord) -> None:
        """Count a turn's record, new or renewed; a turn whose reply is still playing is not counted yet."""
        if record.outcome is None:
            return
        before = self._known.pop(record.id, None)
        now = _TurnFigures(record.total_verdict == "over", record.outcome == "failed", record.total_ms)
        self._known[record.id] = now
        if len(self._known) > TURNS_KNOWN:
            self._known.popitem(last=False)
        self.turns += before is None
        self.over += now.over - (before is not None and before.over)
        self.failed += now.failed - (before is not None and before.failed)
        if now.total_ms is not None:
            self.slowest_ms = max(self.slowest_ms or 0, now.total_ms)
        self.cost_usd = max(self.cost_usd, record.session_cost.usd)

    def plain(self) -> dict[str, Any]:
        """Return the session as the API and webhooks show it."""
        return {
            "object": "voicepipe.session",
            "id": self.grant.session_id,
            "project": self.grant.project,
            "agent": self.grant.agent,
            "user": self.grant.identity or "",
            "started_at": iso(self.began_unix_ms),
            "turns": self.turns,
            "over": self.over,
            "failed": self.failed,
            "slowest_ms": self.slowest_ms,
            "cost_usd": self.cost_usd,
        }


class OpenSessions:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, OpenSession] = {}  # bounded: the limit of sessions

    @contextmanager
    def running(self, session: OpenSession) -> Iterator[None]:
        """List the session while the block runs."""
        self._open[session.grant.session_id] = session
        try:
            yield
        finally:
            del self._open[session.grant.session_id]

    def find(self, session_id: str) -> OpenSession | None:
        """Return the session of that ID, if it is open."""
        return self._open.get(session_id)

    def of(self, project: str | None) -> list[OpenSession]:
        """Return the sessions of a project, or of all projects, newest first."""
        its = (each for each in self._open.values() if project is None or each.grant.project == project)
        return sorted(its, key=lambda each: each.began_unix_ms, reverse=True)


def iso(unix_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC, with ms."""
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
