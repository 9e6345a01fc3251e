"""When will the caller hear the answer? Reckoned from the marks so far and from how long each stage usually takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from voicepipe.turn import budget
from voicepipe.turn.settings import BudgetLimits

LEGS: Final = (
    ("llm_ttft", budget.ASKED, budget.FIRST_DELTA),
    ("first_clause", budget.FIRST_DELTA, budget.FIRST_CLAUSE),
    ("tts_ttfb", budget.FIRST_CLAUSE, budget.FIRST_SOUND),
    ("overhead", budget.FIRST_SOUND, budget.FIRST_SENT),
    ("playback", budget.FIRST_SENT, budget.HEARD),
)
"""(stage, the mark that begins it, the mark that ends it), in the order of a spoken answer."""

MARKS: Final = tuple(end for _, _, end in LEGS[:-1])
"""At each of these, and when the model is asked, the projection is put down."""

REMEMBERED: Final = 8
"""So many of the latest turns tell how long a stage usually takes: their median does."""

PRIOR_SHARE: Final = 0.5
"""Of its limit, that a stage is expected to take before it was ever seen: most are well within it."""

LATE_FACTOR: Final = 4 / 3
"""Whoever is late will take longer still: in all, so many times as long as already. Of times with a long tail (a
lognormal of sigma 0.5, past its median) that is about the median of what is to come."""

LEAST_LEFT_MS: Final = 300
"""Few models answer sooner: where less is left, haste would only cost money."""

STEP_MS: Final = 100
"""Routers keep a plan for each deadline; these are few."""


class UsualTimes:
    """How long each stage takes in this session."""

    def __init__(self, limits: BudgetLimits) -> None:
        self._limits = limits
        # Bounded: the oldest turn is forgotten.
        self._seen: dict[str, deque[int]] = {stage: deque(maxlen=REMEMBERED) for stage, _, _ in LEGS}

    def note(self, marks: Mapping[str, int]) -> None:
        """An answer was heard, by these marks."""
        for stage, start, end in LEGS:
            if start in marks and end in marks:
                self._seen[stage].append(max(0, marks[end] - marks[start]))

    def usual_ms(self, stage: str) -> int:
        """What the stage is expected to take."""
        seen = sorted(self._seen[stage])
        return seen[(len(seen) - 1) // 2] if seen else round(budget.limit_of(self._limits, stage) * PRIOR_SHARE)

    def heard_ms(self, marks: Mapping[str, int], now_ms: int) -> int:
        """The session time at which an answer that was asked for will be heard, as expected now."""
        at_ms = marks.get(budget.ASKED, now_ms)
        for stage, _, end in LEGS:
            at_ms = marks[end] if end in marks else self._end_ms(stage, at_ms, now_ms)
        return at_ms

    def late_from_ms(self, marks: Mapping[str, int], heard_by_ms: int) -> int:
        """From which session time on, if no further mark comes, `heard_ms` is later than `heard_by_ms`."""
        start_ms, later_ms = marks.get(budget.ASKED, 0), 0
        awaited = ""
        for stage, _, end in LEGS:
            if awaited:
                later_ms += self.usual_ms(stage)
            elif end in marks:
                start_ms = marks[end]
            else:
                awaited = stage
        spare_ms = heard_by_ms - later_ms - start_ms
        if not awaited or spare_ms < self.usual_ms(awaited):
            return start_ms
        return start_ms + int(spare_ms / LATE_FACTOR) + 1

    def left_ms(self, marks: Mapping[str, int], now_ms: int) -> int | None:
        """How long a model that is asked now may take, if the total is to be kept; None: as long as it always may, or
        the total is lost already."""
        later_ms = sum(self.usual_ms(stage) for stage, _, _ in LEGS[1:])
        left_ms = marks.get(budget.VOICED_LAST, now_ms) + self._limits.total_ms - now_ms - later_ms
        steps_ms = left_ms // STEP_MS * STEP_MS
        return steps_ms if LEAST_LEFT_MS <= steps_ms < self._limits.llm_ttft_ms else None

    def _end_ms(self, stage: str, start_ms: int, now_ms: int) -> int:
        return start_ms + max(self.usual_ms(stage), round((now_ms - start_ms) * LATE_FACTOR))
