"""Decide one request up to its first speakable token: events in, orders out, `now_ms` passed in.

No I/O, no task, no clock: `llm.request` carries the orders out against real providers, `simulation` against drawn
latencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from voicepipe.router.candidate import Candidate

MAX_IN_FLIGHT: Final = 2
"""Calls of a request, beside one replacement; a race over more was configured by name."""

AttemptState = Literal["running", "ready", "spoke", "lost", "failed"]

AttemptRole = Literal["primary", "hedge", "replacement", "continuation", "probe", "judge"]
"""A probe and a judge take no part in the race: the one checks whether a model answers again, the other
judges how hard the question is."""


class Later(Struct, frozen=True):
    """Start this model too if none has answered by then."""

    candidate: Candidate
    after_ms: float


class RacePlan(Struct, frozen=True, kw_only=True):
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
    role: AttemptRole
    began_ms: float
    state: AttemptState = "running"
    first_ms: float | None = None
    """Time from its start to its first speakable token."""

    ended_ms: float | None = None
    timed_out: bool = False
    is_better: bool = False
    """Started because the question turned out to be harder: no hedge, so that no cap counts it."""


# Orders are not frozen: a frozen one takes three times as long to make, and each request makes some.


@dataclass(slots=True)
class Start:
    """Call this model now."""

    attempt: Attempt


@dataclass(slots=True)
class Close:
    """Close this call: another one answers, or its time is over."""

    attempt: Attempt


@dataclass(slots=True)
class Speak:
    """Release this call's answer."""

    attempt: Attempt


@dataclass(slots=True)
class GiveUp:
    """Order to fail the request: no model is left to start."""


RaceCommand = Start | Close | Speak | GiveUp


class Race:
    """The race of one request: which models start, and which answers. Each method returns the orders that follow from
    its event."""

    def __init__(self, plan: RacePlan) -> None:
        self._plan = plan
        self._later, self._reserve = plan.later, plan.reserve
        """Those that were not started yet."""

        self._began_ms = 0.0
        self._hold_until_ms = plan.hold_until_ms
        self._preferred: Attempt | None = None
        """The attempt for which others are held; None: the first."""

        self._late = False
        self.attempts: list[Attempt] = []
        self.winner: Attempt | None = None
        self.over = False
        """Whether a model answers, or none will."""

    def begin(self, now_ms: float) -> list[RaceCommand]:
        """Begin the request."""
        self._began_ms = now_ms
        orders: list[RaceCommand] = [self._start(self._plan.first, "primary", now_ms)]
        if self._later:
            orders += self._start_due(now_ms)
        return orders

    def spoke(self, attempt: Attempt, now_ms: float) -> list[RaceCommand]:
        """Handle an attempt's first speakable token."""
        if self.over or attempt.state != "running":
            return []
        attempt.first_ms = now_ms - attempt.began_ms
        if self._must_hold(attempt, now_ms):
            attempt.state = "ready"
            return []
        return self._win(attempt, now_ms)

    def prefer(self, candidate: Candidate, until_ms: float, now_ms: float) -> list[RaceCommand]:
        """Start a better model for this request, and hold the others for it until `until_ms` after the beginning.
        Nothing happens once a model answers, or if that model was started already."""
        if self.over or any(each.candidate is candidate for each in self.attempts):
            return []
        started = self._start(candidate, "hedge", now_ms)
        started.attempt.is_better = True
        self._later = tuple(each for each in self._later if each.candidate is not candidate)
        self._reserve = tuple(each for each in self._reserve if each is not candidate)
        self._preferred, self._hold_until_ms = started.attempt, until_ms
        return [started]

    def failed(self, attempt: Attempt, now_ms: float) -> list[RaceCommand]:
        """Handle an attempt that refused, stalled or broke before its answer was released."""
        if self.over or attempt.state not in ("running", "ready"):
            return []
        attempt.state, attempt.ended_ms = "failed", now_ms
        ready = self._ready()
        if ready is not None and attempt is (self._preferred or self.attempts[0]):
            return self._win(ready, now_ms)
        return self._replace(now_ms)

    def time_passed(self, now_ms: float) -> list[RaceCommand]:
        """Handle the passing of time; nothing happens before `wake_ms`."""
        if self.over:
            return []
        ready = self._ready()
        if ready is not None and not self._holding(now_ms):
            return self._win(ready, now_ms)
        return self._start_due(now_ms) + self._start_late(now_ms) + self._time_out(now_ms)

    def abandon(self, now_ms: float) -> list[RaceCommand]:
        """Abandon the request: its answer is no longer needed."""
        self.over = True
        return self._close_all_but(None, now_ms)

    def wake_ms(self) -> float | None:
        """Return when `time_passed` is due; None: never."""
        if self.over:
            return None
        plan, due_ms, n_running = self._plan, math.inf, 0
        for each in self.attempts:
            if each.state == "running":
                n_running += 1
                due_ms = min(due_ms, each.began_ms + plan.attempt_timeout_ms)
            elif each.state == "ready" and self._hold_until_ms is not None:
                due_ms = min(due_ms, self._began_ms + self._hold_until_ms)
        if self._later and (n_running < MAX_IN_FLIGHT or self._may_start_another(n_running)):
            due_ms = min(due_ms, self._began_ms + self._later[0].after_ms)
        if self._reserve and not self._late and self._may_start_late(n_running):
            due_ms = min(due_ms, self._began_ms + plan.deadline_ms)
        return due_ms if due_ms < math.inf else None

    # --- helpers ------------------------------------------------------------------------------

    def _start(self, candidate: Candidate, role: AttemptRole, now_ms: float) -> Start:
        attempt = Attempt(len(self.attempts), candidate, role, now_ms)
        self.attempts.append(attempt)
        return Start(attempt)

    def _start_due(self, now_ms: float) -> list[RaceCommand]:
        orders: list[RaceCommand] = []
        while (
            self._later
            and self._began_ms + self._later[0].after_ms <= now_ms
            and self._may_start_another(self._n_running())
        ):
            if self._plan.one_at_a_time:
                orders += self._close_all_but(None, now_ms)
            orders.append(self._start_later("hedge", now_ms))
        return orders

    def _start_later(self, role: AttemptRole, now_ms: float) -> Start:
        following, *left = self._later
        self._later = tuple(left)
        return self._start(following.candidate, role, now_ms)

    def _start_reserve(self, now_ms: float) -> Start:
        following, *left = self._reserve
        self._reserve = tuple(left)
        return self._start(following, "replacement", now_ms)

    def _start_late(self, now_ms: float) -> list[RaceCommand]:
        """Start one more model: the deadline has passed in silence."""
        if self._late or now_ms < self._began_ms + self._plan.deadline_ms:
            return []
        if not self._may_start_late(self._n_running()):
            return []
        self._late = True
        return [self._start_reserve(now_ms)] if self._reserve else []

    def _time_out(self, now_ms: float) -> list[RaceCommand]:
        orders: list[RaceCommand] = []
        for each in [each for each in self.attempts if each.state == "running"]:
            if now_ms >= each.began_ms + self._plan.attempt_timeout_ms:
                each.timed_out = True
                orders += [Close(each), *self.failed(each, now_ms)]
        return orders

    def _replace(self, now_ms: float) -> list[RaceCommand]:
        """Replace a failed attempt: by the next planned model at once, else by one of the reserve."""
        if self._later:
            return [self._start_later("replacement", now_ms)]
        n_running = self._n_running()
        if self._reserve and (not n_running or (self._plan.starts_late and self._is_below_limit(n_running))):
            return [self._start_reserve(now_ms)]
        if n_running or self._ready() is not None:
            return []
        self.over = True
        return [GiveUp()]

    def _win(self, attempt: Attempt, now_ms: float) -> list[RaceCommand]:
        attempt.state, self.winner, self.over = "spoke", attempt, True
        orders: list[RaceCommand] = [Speak(attempt)]
        if len(self.attempts) > 1:
            orders += self._close_all_but(attempt, now_ms)
        return orders

    def _close_all_but(self, retained: Attempt | None, now_ms: float) -> list[RaceCommand]:
        closed: list[RaceCommand] = []
        for each in self.attempts:
            if each is not retained and each.state in ("running", "ready"):
                each.state, each.ended_ms = "lost", now_ms
                closed.append(Close(each))
        return closed

    def _must_hold(self, attempt: Attempt, now_ms: float) -> bool:
        preferred = self._preferred or self.attempts[0]
        return attempt is not preferred and preferred.state == "running" and self._holding(now_ms)

    def _holding(self, now_ms: float) -> bool:
        until_ms = self._hold_until_ms
        return until_ms is not None and now_ms < self._began_ms + until_ms

    def _ready(self) -> Attempt | None:
        """Return the attempt whose answer is held."""
        return next((each for each in self.attempts if each.state == "ready"), None)

    def _may_start_late(self, n_running: int) -> bool:
        # A model that is alone and silent at the deadline counts as failed: the next one starts.
        return (self._plan.starts_late or n_running == 1) and not self._plan.one_at_a_time

    def _may_start_another(self, n_running: int) -> bool:
        return self._plan.one_at_a_time or self._is_below_limit(n_running)

    def _is_below_limit(self, n_running: int) -> bool:
        if n_running < MAX_IN_FLIGHT:
            return True
        return n_running <= len([each for each in self._plan.later if not each.after_ms])

    def _n_running(self) -> int:
        return len([each for each in self.attempts if each.state == "running"])
