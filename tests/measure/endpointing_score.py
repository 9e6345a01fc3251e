"""Score a detector's decisions on labelled clips, turn by turn and over a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.measure.endpointing_detector import ANSWER_MS, Event, Kind
from voicepipe.bench.endpointing.speech_set import Clip

MISSED_MS: Final = 2_000
"""An end later than this after the user's counts as missed."""

CLIPPED_MS: Final = 400
"""An end that cuts off no more than this cuts the turn, but does not leave the user waiting: it is not missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One turn. Delays are counted from the labelled end of its last word; None: there was no end in time."""

    cut: bool
    """The turn was ended before it was over."""

    delay_ms: int | None
    tentative_ms: int | None
    """Detection time of the final pause."""

    begun_ms: int | None
    """Start of the work that was kept."""

    withdrawn: int
    """Number of discarded starts."""

    missed: bool

    @property
    def effective_ms(self) -> int | None:
        """Return the detector's share of the user's wait: audio is ready `ANSWER_MS` after the start."""
        if self.delay_ms is None or self.begun_ms is None:
            return None
        return max(self.begun_ms, self.delay_ms - ANSWER_MS)


def judge(clip: Clip, events: Sequence[Event]) -> Verdict:
    """Compare a detector's events with a clip's labels."""
    assert clip.start_ms is not None
    assert clip.end_ms is not None
    ends = [event.at_ms for event in events if event.kind is Kind.ENDED]
    early = [at_ms for at_ms in ends if clip.start_ms <= at_ms < clip.end_ms]
    late = [at_ms - clip.end_ms for at_ms in ends if at_ms >= clip.end_ms]
    delay_ms = late[0] if late and late[0] <= MISSED_MS else None
    withdrawn, tentative_ms, begun_ms = _work(clip.end_ms, events)
    return Verdict(
        cut=bool(early),
        delay_ms=delay_ms,
        tentative_ms=None if delay_ms is None or tentative_ms is None else tentative_ms - clip.end_ms,
        begun_ms=None if delay_ms is None or begun_ms is None else begun_ms - clip.end_ms,
        withdrawn=withdrawn,
        missed=delay_ms is None and not any(at_ms >= clip.end_ms - CLIPPED_MS for at_ms in early),
    )


def _work(end_ms: int, events: Sequence[Event]) -> tuple[int, int | None, int | None]:
    """Return the number of discarded starts before the true end, the detection time of the last pause, and the time
    of the last start."""
    withdrawn, tentative_ms, begun_ms = 0, None, None
    for event in events:
        match event.kind:
            case Kind.TENTATIVE:
                tentative_ms = event.at_ms
            case Kind.BEGUN:
                begun_ms = event.at_ms
            case Kind.WITHDRAWN:
                withdrawn, begun_ms = withdrawn + 1, None
            case Kind.ENDED if event.at_ms >= end_ms:
                break
            case Kind.ENDED:
                begun_ms = None
    return withdrawn, tentative_ms, begun_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Many turns. Pairs are p50 and p90, in ms; shares in percent of the turns."""

    turns: int
    tentative_ms: tuple[float, float]
    begun_ms: tuple[float, float]
    effective_ms: tuple[float, float]
    commit_ms: tuple[float, float]
    cut: float
    missed: float
    withdrawn_per_turn: float


def summary(verdicts: Sequence[Verdict]) -> Summary:
    """Sum up a set of turns; the figures of an empty set are nan."""
    n = len(verdicts)
    return Summary(
        turns=n,
        tentative_ms=_middle_and_tail([v.tentative_ms for v in verdicts]),
        begun_ms=_middle_and_tail([v.begun_ms for v in verdicts]),
        effective_ms=_middle_and_tail([v.effective_ms for v in verdicts]),
        commit_ms=_middle_and_tail([v.delay_ms for v in verdicts]),
        cut=100 * sum(v.cut for v in verdicts) / n if n else float("nan"),
        missed=100 * sum(v.missed for v in verdicts) / n if n else float("nan"),
        withdrawn_per_turn=sum(v.withdrawn for v in verdicts) / n if n else float("nan"),
    )


def _middle_and_tail(delays: Sequence[int | None]) -> tuple[float, float]:
    known = [delay for delay in delays if delay is not None]
    if not known:
        return float("nan"), float("nan")
    middle, tail = np.percentile(known, (50, 90))
    return float(middle), float(tail)
