"""Whom to start when, for one request: what the policies and the planner decide, and the race carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.router.candidate import Candidate

Role = Literal["primary", "hedge", "replacement", "continuation"]


@dataclass(frozen=True, slots=True)
class Later:
    """Start this one too if nobody has spoken by then."""

    candidate: Candidate
    after_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One request's schedule, in ms after its beginning."""

    first: Candidate
    later: tuple[Later, ...] = ()
    """In the order of their instants."""

    reserve: tuple[Candidate, ...] = ()
    """Who steps in, in that order, for one that failed, and at the deadline if nobody has spoken by then."""

    one_at_a_time: bool = False
    """Close the former when the next is started."""

    hold_until_ms: float | None = None
    """Until then others than `first` only get ready: it speaks if it can by then. None: whoever is first speaks."""

    deadline_ms: float = 600.0
    patience_ms: float = 8_000.0
    """How long one attempt may stay silent before it has failed."""
