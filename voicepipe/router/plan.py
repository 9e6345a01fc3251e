"""The schedule of one request, which model to start when: made by the policies and the planner, carried out by the
race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.router.candidate import Candidate

Role = Literal["primary", "hedge", "replacement", "continuation"]


@dataclass(frozen=True, slots=True)
class Later:
    """Start this model too if none has answered by then."""

    candidate: Candidate
    after_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The schedule of one request, in ms after its beginning."""

    first: Candidate
    later: tuple[Later, ...] = ()
    """Ordered by time."""

    reserve: tuple[Candidate, ...] = ()
    """Models that replace a failed one, in that order, and that start at the deadline if none has answered by then."""

    one_at_a_time: bool = False
    """Close the former when the next is started."""

    hold_until_ms: float | None = None
    """Until this time `first` answers if it can; other models only get ready. None: the earliest model answers."""

    deadline_ms: float = 600.0
    attempt_timeout_ms: float = 8_000.0
    """Timeout of an attempt without output."""
