"""The facts about what carries a session: its line, and the event loop. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopHeld:
    """Our own event loop was held up: what came meanwhile is told late, and the facts' instants don't show it."""

    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class LineLost:
    """The line is down, and the client may come back: until it does, nobody can be heard and nothing can be sent."""


@dataclass(frozen=True, slots=True)
class LineResumed:
    """The client is back on another line."""

    missed: tuple[tuple[int, int], ...] = ()
    """(turn, ms of its sound): what was sent and had not arrived. It has been sent once more."""
