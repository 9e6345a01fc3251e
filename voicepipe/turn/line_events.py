"""The events of the session's connection and of the event loop. `events` has them all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopHeld:
    """Our own event loop was blocked: events of that time are late, and their instants do not show it."""

    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class LineLost:
    """The connection is lost, and the client may resume. Until then no audio comes in and nothing can be sent."""


@dataclass(frozen=True, slots=True)
class LineResumed:
    """The client has resumed on another connection."""

    missed: tuple[tuple[int, int], ...] = ()
    """(turn, ms of its audio): what was sent and had not arrived. It has been sent again."""
