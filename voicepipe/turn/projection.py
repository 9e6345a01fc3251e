"""Predict when the user will hear the answer, from the marks so far and from the usual duration of each stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from voicepipe.turn.record import attribution
from voicepipe.turn.record.marks import tool_rounds
from voicepipe.turn.settings import BudgetLimits

STAGES: Final = (
    ("llm_ttft", attribution.LLM_REQUESTED, attribution.FIRST_DELTA),
    ("first_clause", attribution.FIRST_DELTA, attribution.FIRST_CLAUSE),
    ("tts_ttfb", attribution.FIRST_CLAUSE, attribution.FIRST_SOUND),
    ("overhead", attribution.FIRST_SOUND, attribution.FIRST_SENT),
    ("playback", attribution.FIRST_SENT, attribution.FIRST_AUDIBLE),
)
"""(stage, the mark that begins it, the mark that ends it), in the order of a spoken answer."""

MARKS: Final = tuple(end for _, _, end in STAGES[:-1])
"""At each of these marks, and at the LLM request, the projection is stored."""

REMEMBERED: Final = 8
"""Number of the latest turns whose median is a stage's usual duration."""

PRIOR_SHARE: Final = 0.5
"""Share of its limit that a stage is expected to take before it was ever measured: most stay well within it."""

LATE_FACTOR: Final = 4 / 3
"""Expected total of a late stage: this factor times its duration so far, in all. Of times with a long tail (a
lognormal of sigma 0.5, past its median) that is about the median of the rest.
"""

MIN_LEFT_MS: Final = 300
"""Few LLMs answer sooner: where less is left, hedging would only cost money."""

STEP_MS: Final = 100
"""Step to which deadlines are rounded, in ms: routers keep a plan for each deadline, and these are few."""


class UsualTimes:
    """The durations of the stages in this session."""

    def __init__(self, limits: BudgetLimits) -> None:
        self._limits = limits
        # Bounded: the oldest turn is dropped.
        self._seen: dict[str, deque[int]] = {
            stage: deque(maxlen=REMEMBERED) for stage in (*(stage for stage, _, _ in STAGES), attribution.TOOL)
        }

    def record(self, marks: Mapping[str, int]) -> None:
        """Record the marks of an answer that was played."""
        for stage, start, end in STAGES:
            if start in marks and end in marks:
                from_ms = marks.get(attribution.EARLIER_AUDIO_ENDED, 0) if stage == attribution.PLAYBACK else 0
                self._seen[stage].append(max(0, marks[end] - max(marks[start], from_ms)))
        for each in tool_rounds(marks) if attribution.FIRST_CALLED in marks else ():
            self._seen[attribution.TOOL].append(marks[each.returned] - marks[each.called])

    def usual_ms(self, stage: str) -> int:
        """Return how long the stage is expected to take, in ms."""
        seen = sorted(self._seen[stage])
        return seen[(len(seen) - 1) // 2] if seen else round(attribution.limit_of(self._limits, stage) * PRIOR_SHARE)

    def first_audible_ms(self, marks: Mapping[str, int], now_ms: int) -> int:
        """Return the session time at which a requested answer is expected to be audible, as of now."""
        at_ms = marks.get(attribution.LLM_REQUESTED, now_ms)
        for stage, _, end in STAGES:
            at_ms = marks[end] if end in marks else self._end_ms(stage, at_ms, now_ms)
        return at_ms

    def first_audible_after_tool_ms(self, called_ms: int, now_ms: int) -> int:
        """Return the session time at which an answer to function calls is expected to be audible.

        The calls were sent to the client at `called_ms`.
        """
        return self._end_ms(attribution.TOOL, called_ms, now_ms) + self._answer_ms()

    def late_after_tool_from_ms(self, called_ms: int, audible_by_ms: int) -> int:
        """Return when, without a result, `first_audible_after_tool_ms` becomes later than `audible_by_ms`."""
        return self._late_ms(attribution.TOOL, called_ms, audible_by_ms - self._answer_ms() - called_ms)

    def late_from_ms(self, marks: Mapping[str, int], audible_by_ms: int) -> int:
        """Return when, without a further mark, `first_audible_ms` becomes later than `audible_by_ms`."""
        start_ms, later_ms = marks.get(attribution.LLM_REQUESTED, 0), 0
        awaited = ""
        for stage, _, end in STAGES:
            if awaited:
                later_ms += self.usual_ms(stage)
            elif end in marks:
                start_ms = marks[end]
            else:
                awaited = stage
        return self._late_ms(awaited, start_ms, audible_by_ms - later_ms - start_ms) if awaited else start_ms

    def left_ms(self, marks: Mapping[str, int], now_ms: int) -> int | None:
        """Return how long an LLM request sent now may take, in ms, if the total limit is to be met.

        None: the usual limit applies, or the total is missed already.
        """
        later_ms = sum(self.usual_ms(stage) for stage, _, _ in STAGES[1:])
        left_ms = marks.get(attribution.VOICED_LAST, now_ms) + self._limits.total_ms - now_ms - later_ms
        steps_ms = left_ms // STEP_MS * STEP_MS
        return steps_ms if MIN_LEFT_MS <= steps_ms < self._limits.llm_ttft_ms else None

    def _answer_ms(self) -> int:
        """Return how long an answer is expected to take, from the LLM request until it is audible."""
        return sum(self.usual_ms(stage) for stage, _, _ in STAGES)

    def _late_ms(self, stage: str, start_ms: int, spare_ms: int) -> int:
        """Return when a stage that began at `start_ms` and goes on is expected to take longer than `spare_ms`."""
        return start_ms if spare_ms < self.usual_ms(stage) else start_ms + int(spare_ms / LATE_FACTOR) + 1

    def _end_ms(self, stage: str, start_ms: int, now_ms: int) -> int:
        return start_ms + max(self.usual_ms(stage), round((now_ms - start_ms) * LATE_FACTOR))
