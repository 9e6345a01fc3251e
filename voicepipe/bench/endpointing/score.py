"""Score a rule on the trace of a labelled turn: what the user waits for, and how often the rule answers too soon.

`ready` is how long an answer takes from the last word if work on it begins after `START_MS` of silence. One that begins
later is ready as much later. The answer is audible when it is ready and the wait is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from voicepipe.bench.endpointing.traces import Pause, PauseStep, Trace
from voicepipe.turn.endpointing.strategy import Decision

REVERSIBLE_MS: Final = 1_000
"""A user who goes on within this time of the first audible sample is overlapped; later, the turn is broken."""

START_MS: Final = 180
"""The silence after which work on an answer usually begins at the soonest: a pause was noticed, and its words came."""

MISSED_MS: Final = 2_000
"""An answer that begins later than this after the user's last word counts as missed."""


def work_ms(ready_ms: int) -> int:
    """Return how long the work on an answer takes, from its start to the first sample."""
    return ready_ms - START_MS


class EndpointRule(Protocol):
    """Decides on the pauses of one turn, in order."""

    def decide(self, pause: Pause, step: PauseStep) -> Decision:
        """Return when each step is due, from what is known of the pause after `step.silence_ms`."""
        ...

    def resumed(self, pause: Pause) -> None:
        """Record that the user went on after this pause."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScore:
    """One turn. Times are counted from the labelled end of its last word; None: no answer began in time."""

    latency_ms: int | None
    """The turn latency: to the first audible sample."""

    begun_ms: int | None
    """The start of the work that was audible."""

    overlapped: bool
    """The user went on within `REVERSIBLE_MS` of an audible answer."""

    broken: bool
    """The user went on later than that."""

    wasted_starts: int
    """Number of starts of work on an answer that was discarded."""

    @property
    def missed(self) -> bool:
        """Whether no answer began in time."""
        return self.latency_ms is None


@dataclass(frozen=True, slots=True)
class _Answer:
    begun_at_ms: int | None
    audible_at_ms: int | None


def score(trace: Trace, rule: EndpointRule, end_ms: int, ready_ms: int) -> TurnScore:
    """Score the trace of a turn whose last word ends at position `end_ms`."""
    latency_ms: int | None = None
    begun_ms: int | None = None
    overlapped = broken = False
    n_wasted = 0
    for pause in trace.pauses:
        answer = _answer(pause, rule, ready_ms)
        resumed = pause.onset_ms is not None and pause.onset_ms < end_ms
        if resumed and pause.onset_ms is not None:
            n_wasted += answer.begun_at_ms is not None
            if answer.audible_at_ms is not None:
                is_late = pause.onset_ms - answer.audible_at_ms > REVERSIBLE_MS
                broken, overlapped = broken or is_late, overlapped or not is_late
            rule.resumed(pause)
        elif answer.audible_at_ms is not None and answer.audible_at_ms - end_ms <= MISSED_MS:
            latency_ms = max(ready_ms, answer.audible_at_ms - end_ms)
            begun_ms = None if answer.begun_at_ms is None else answer.begun_at_ms - end_ms
            break
    return TurnScore(
        latency_ms=latency_ms, begun_ms=begun_ms, overlapped=overlapped, broken=broken, wasted_starts=n_wasted
    )


def _answer(pause: Pause, rule: EndpointRule, ready_ms: int) -> _Answer:
    begun_at_ms: int | None = None
    for step in pause.steps:
        decision = rule.decide(pause, step)
        if begun_at_ms is None and step.silence_ms >= decision.start_ms:
            begun_at_ms = step.at_ms
        if begun_at_ms is not None and step.silence_ms >= decision.audible_ms:
            ready_at_ms = begun_at_ms + work_ms(ready_ms)
            audible_at_ms = max(step.at_ms, ready_at_ms, pause.voiced_ms + ready_ms)
            is_soon_enough = pause.resumed_at_ms is None or audible_at_ms < pause.resumed_at_ms
            return _Answer(begun_at_ms, audible_at_ms if is_soon_enough else None)
    return _Answer(begun_at_ms, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """Many turns. Pairs are p50 and p90, in ms; shares in percent of the turns. An empty set has None."""

    n_turns: int
    latency_ms: tuple[float, float] | None
    begun_ms: tuple[float, float] | None
    overlapped: float
    broken: float
    missed: float
    wasted_starts: float
    """A turn."""


def summary(scores: Sequence[TurnScore]) -> ScoreSummary:
    """Sum up a set of turns."""
    n = max(1, len(scores))
    return ScoreSummary(
        n_turns=len(scores),
        latency_ms=_middle_and_tail([each.latency_ms for each in scores]),
        begun_ms=_middle_and_tail([each.begun_ms for each in scores]),
        overlapped=100 * sum(each.overlapped for each in scores) / n,
        broken=100 * sum(each.broken for each in scores) / n,
        missed=100 * sum(each.missed for each in scores) / n,
        wasted_starts=sum(each.wasted_starts for each in scores) / n,
    )


def _middle_and_tail(values: Sequence[int | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    middle, tail = np.percentile(known, (50, 90))
    return float(middle), float(tail)
