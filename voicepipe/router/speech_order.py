"""Choose the STT or TTS provider, and the order: the first healthy one, and for a session the one it used before.

Pure: instants are passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.policies import Candidates
from voicepipe.router.pool import SharedStats
from voicepipe.router.race import Later, RacePlan

HEDGE_QUANTILE: Final = 0.95
"""The second is started when the first is later than this share of its own answers: 1 more call in 20."""

MIN_HEDGE_MS: Final = 100
"""The shortest delay before a hedge."""


class SpeechOrder:
    """The candidates of one stage, best first."""

    def __init__(self, candidates: Candidates, options: RouterOptions, stats: SharedStats) -> None:
        self.candidates, self.options, self.stats = candidates, options, stats

    def order(self, session: str, now_ms: float) -> Candidates:
        """Return the healthy candidates first, then the rest as a last resort.

        A session stays with the provider it used before while that provider is healthy: a voice that changes between
        two turns sounds like another person.
        """
        known = self.stats.affinity.of(session).last
        return tuple(sorted(self.candidates, key=lambda each: (not self._is_usable(each, now_ms), each.spec != known)))

    def plan(self, session: str, now_ms: float) -> RacePlan:
        """Return when to start which candidate, for something that a user waits for."""
        first, *rest = self.order(session, now_ms)
        options, usable = self.options, tuple(each for each in rest if self._is_usable(each, now_ms))
        left = tuple(each for each in rest if each not in usable)
        begin = _plan_of(first, options)
        match options.policy:
            case "single":
                return begin((), (*usable, *left), True)
            case "fallback":
                waits = tuple(Later(each, options.fallback_after_ms * (i + 1)) for i, each in enumerate(usable))
                return begin(waits, left, True)
            case "race":
                n = options.race_width - 1
                return begin(tuple(Later(each, 0.0) for each in usable[:n]), (*usable[n:], *left), False)
            case "hedge":
                after_ms = self.stats.latency.quantile_ms(first, HEDGE_QUANTILE, now_ms)
                after_ms = min(max(after_ms, MIN_HEDGE_MS), options.fallback_after_ms)
                return begin(tuple(Later(each, after_ms) for each in usable[:1]), (*usable[1:], *left), False)

    def next_after(self, failed: set[str], session: str, now_ms: float) -> Candidate | None:
        """Return the candidate that continues in place of the failed ones."""
        return next((each for each in self.order(session, now_ms) if each.spec not in failed), None)

    def served(self, session: str, candidate: Candidate, now_ms: float) -> None:
        """Record that the session has this candidate's output."""
        self.stats.affinity.record(session, (candidate.spec,), candidate.spec, 0.0, now_ms)

    def succeeded(self, candidate: Candidate, *, began_ms: float) -> None:
        """Record that this candidate's provider has done its work, in a call that began at `began_ms`."""
        self.stats.breaker(candidate).succeeded(began_ms=began_ms)

    def _is_usable(self, candidate: Candidate, now_ms: float) -> bool:
        """Return whether it is healthy, or on trial by no other session: another candidate is ready if it fails."""
        state = self.stats.breaker(candidate).state(now_ms)
        return state == "closed" or (state == "half_open" and not self.stats.running.get(candidate.spec, 0))


def _plan_of(first: Candidate, options: RouterOptions) -> Callable[[tuple[Later, ...], Candidates, bool], RacePlan]:
    def plan(later: tuple[Later, ...], reserve: Candidates, one_at_a_time: bool) -> RacePlan:
        return RacePlan(
            first=first,
            later=later,
            reserve=reserve,
            one_at_a_time=one_at_a_time,
            deadline_ms=float(options.deadline_ms),
            attempt_timeout_ms=float(options.attempt_timeout_ms),
        )

    return plan
