"""Decide one request up to its first speakable token: events in, orders out, `now_ms` passed in.

No I/O, no task, no clock: `llm.request` carries the orders out against real providers, `simulation` against drawn
latencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.router.candidate import Candidate

MOST_IN_FLIGHT: Final = 2
"""Calls of a request, beside one replacement; a race over more was configured by name."""

State = Literal["running", "ready", "spoke", "lost", "failed"]

Role = Literal["primary", "hedge", "replacement", "continuation", "probe"]
"""A probe takes no part in the race: it asks whether a model answers again."""


@dataclass(frozen=True, slots=True)
class Later:
    """Start this model too if none has answered by then."""

    candidate: Candidate
    after_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The schedule of one request, in ms after its beginning: made by the policies and the planner, carried out by the
    race."""

    first: Candidate
    later: tuple[Later, ...] = ()
    """Ordered by time."""

    reserve: tuple[Candidate, ...] = ()
    """Models that replace a failed one, in that order."""

    one_at_a_time: bool = False
    """Close the former when the next is started."""

    hold_until_ms: float | None = None
    """Until then models other than `first` only get ready: `first` answers if it can by then. None: the earliest
    model answers."""

    starts_late: bool = True
    """Whether a third model starts at the deadline if none has answered by then, and replaces a failed one while
    another still runs. False: that money is not there. A model that is alone needs none: it gets a replacement."""

    deadline_ms: float = 600.0
    attempt_timeout_ms: float = 8_000.0
    """How long one attempt may stay silent before it has failed."""


@dataclass(slots=True)
class Attempt:
    """A call to one model."""

    number: int
    candidate: Candidate
    role: Role
    began_ms: float
    state: State = "running"
    first_ms: float | None = None
    """Time from its start to its first speakable token."""

    ended_ms: float | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Call this model now."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Close:
    """Close this call: another one answers, or its time is over."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Speak:
    """Release this call's answer."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Order to fail the request: no model is left to start."""


Order = Start | Close | Speak | GiveUp


class Race:
    """The race of one request: which models start, and which answers. Each method returns the orders that follow from
    its event."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._later: list[Later] = list(plan.later)
        self._reserve: list[Candidate] = list(plan.reserve)
        self._most = max(MOST_IN_FLIGHT, 1 + len([each for each in plan.later if not each.after_ms]))
        self._began_ms = 0.0
        self._late = False
        self.attempts: list[Attempt] = []
        self.winner: Attempt | None = None
        self.over = False
        """Whether a model answers, or none will."""

    def begin(self, now_ms: float) -> list[Order]:
        """Begin the request."""
        self._began_ms = now_ms
        orders = [self._start(self._plan.first, "primary", now_ms)]
        return orders + self._start_due(now_ms)

    def spoke(self, attempt: Attempt, now_ms: float) -> list[Order]:
        """Handle an attempt's first speakable token."""
        if self.over or attempt.state != "running":
            return []
        attempt.first_ms = now_ms - attempt.began_ms
        if self._must_hold(attempt, now_ms):
            attempt.state = "ready"
            return []
        return self._win(attempt, now_ms)

    def failed(self, attempt: Attempt, now_ms: float) -> list[Order]:
        """Handle an attempt that refused, stalled or broke before its answer was released."""
        if self.over or attempt.state not in ("running", "ready"):
            return []
        attempt.state, attempt.ended_ms = "failed", now_ms
        ready = next((each for each in self.attempts if each.state == "ready"), None)
        if ready is not None and attempt is self.attempts[0]:
            return self._win(ready, now_ms)
        return self._replace(now_ms)

    def time_passed(self, now_ms: float) -> list[Order]:
        """Handle the passing of time; nothing happens before `wake_ms`."""
        if self.over:
            return []
        ready = next((each for each in self.attempts if each.state == "ready"), None)
        if ready is not None and not self._holding(now_ms):
            return self._win(ready, now_ms)
        return self._start_due(now_ms) + self._start_late(now_ms) + self._time_out(now_ms)

    def abandon(self, now_ms: float) -> list[Order]:
        """Abandon the request: its answer is no longer needed."""
        self.over = True
        return self._close_all_but(None, now_ms)

    def wake_ms(self) -> float | None:
        """Return when `time_passed` is due; None: never."""
        if self.over:
            return None
        due = [each.began_ms + self._plan.attempt_timeout_ms for each in self.attempts if each.state == "running"]
        if self._later and self._has_room():
            due.append(self._began_ms + self._later[0].after_ms)
        if not self._late and self._reserve and self._may_start_late():
            due.append(self._began_ms + self._plan.deadline_ms)
        if self._plan.hold_until_ms is not None and [each for each in self.attempts if each.state == "ready"]:
            due.append(self._began_ms + self._plan.hold_until_ms)
        return min(due, default=None)

    # --- helpers ------------------------------------------------------------------------------

    def _start(self, candidate: Candidate, role: Role, now_ms: float) -> Start:
        attempt = Attempt(len(self.attempts), candidate, role, now_ms)
        self.attempts.append(attempt)
        return Start(attempt)

    def _start_due(self, now_ms: float) -> list[Order]:
        orders: list[Order] = []
        while self._later and self._began_ms + self._later[0].after_ms <= now_ms and self._has_room():
            if self._plan.one_at_a_time:
                orders += self._close_all_but(None, now_ms)
            orders.append(self._start(self._later.pop(0).candidate, "hedge", now_ms))
        return orders

    def _start_late(self, now_ms: float) -> list[Order]:
        """Start one more model: the deadline has passed in silence."""
        if self._late or now_ms < self._began_ms + self._plan.deadline_ms or not self._may_start_late():
            return []
        self._late = True
        return [self._start(self._reserve.pop(0), "replacement", now_ms)] if self._reserve else []

    def _time_out(self, now_ms: float) -> list[Order]:
        orders: list[Order] = []
        for each in [each for each in self.attempts if each.state == "running"]:
            if now_ms >= each.began_ms + self._plan.attempt_timeout_ms:
                each.timed_out = True
                orders += [Close(each), *self.failed(each, now_ms)]
        return orders

    def _replace(self, now_ms: float) -> list[Order]:
        """Replace a failed attempt: by the next planned model at once, else by one of the reserve."""
        if self._later:
            return [self._start(self._later.pop(0).candidate, "replacement", now_ms)]
        n_running = self._n_running()
        if self._reserve and (not n_running or (self._plan.starts_late and n_running < self._most)):
            return [self._start(self._reserve.pop(0), "replacement", now_ms)]
        if n_running or any(each.state == "ready" for each in self.attempts):
            return []
        self.over = True
        return [GiveUp()]

    def _win(self, attempt: Attempt, now_ms: float) -> list[Order]:
        attempt.state, self.winner, self.over = "spoke", attempt, True
        return [Speak(attempt), *self._close_all_but(attempt, now_ms)]

    def _close_all_but(self, retained: Attempt | None, now_ms: float) -> list[Order]:
        closed: list[Order] = []
        for each in self.attempts:
            if each is not retained and each.state in ("running", "ready"):
                each.state, each.ended_ms = "lost", now_ms
                closed.append(Close(each))
        return closed

    def _must_hold(self, attempt: Attempt, now_ms: float) -> bool:
        preferred = self.attempts[0]
        return self._holding(now_ms) and attempt is not preferred and preferred.state == "running"

    def _holding(self, now_ms: float) -> bool:
        until_ms = self._plan.hold_until_ms
        return until_ms is not None and now_ms < self._began_ms + until_ms

    def _may_start_late(self) -> bool:
        return (self._plan.starts_late or self._is_alone()) and not self._plan.one_at_a_time

    def _is_alone(self) -> bool:
        """Return whether one call is running. Silent at the deadline, it counts as failed: the next one starts."""
        return self._n_running() == 1

    def _has_room(self) -> bool:
        return self._plan.one_at_a_time or self._n_running() < self._most

    def _n_running(self) -> int:
        return len([each for each in self.attempts if each.state == "running"])
