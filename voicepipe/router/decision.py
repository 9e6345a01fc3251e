"""The decision of a pool for one request: the plan, its options and its price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from voicepipe.router.candidate import Candidate
from voicepipe.router.policies import Candidates
from voicepipe.router.race import Later, RacePlan


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options that all plans of a pool have in common."""

    deadline_ms: float
    attempt_timeout_ms: float

    def plan(
        self,
        first: Candidate,
        *,
        later: tuple[Later, ...] = (),
        reserve: Candidates = (),
        one_at_a_time: bool = False,
        hold_until_ms: float | None = None,
        starts_late: bool = True,
    ) -> RacePlan:
        """Return a plan with these options."""
        return RacePlan(
            first=first,
            later=later,
            reserve=reserve,
            one_at_a_time=one_at_a_time,
            hold_until_ms=hold_until_ms,
            starts_late=starts_late,
            deadline_ms=self.deadline_ms,
            attempt_timeout_ms=self.attempt_timeout_ms,
        )


class PricedPlan(Struct, frozen=True):
    """A plan, and the most that it costs above the first choice alone, if no call fails."""

    plan: RacePlan
    read_usd: float
    """The part of it for input, of a usual turn."""

    written_usd: float
    warms_cache: bool
    """Whether it starts a model that has not read the session: its money comes back later in the session."""

    def worst_usd(self, input_share: float) -> float:
        """Return the most that it costs; `input_share`: the input, in multiples of the usual one."""
        return self.read_usd * input_share + self.written_usd


class RoutingDecision(NamedTuple):
    """A plan, and the request that it was made for: one is made for each request."""

    plan: RacePlan
    warm: frozenset[str]
    """The models that were assumed to have the session in their cache."""

    is_known: bool
    """Whether a model has answered in this session before."""

    turn: int = 0
    """Turns of the session before this one, `LAST_TURN` at most."""

    worst_usd: float = 0.0
    """Most that the turn costs above the first choice alone, if no call fails."""

    is_first_down: bool = False
    """Whether the first choice is not called first since its circuit breaker is open."""

    probe: Candidate | None = None
    """A model whose circuit breaker is half open: it gets the request too, and its answer is not used."""
