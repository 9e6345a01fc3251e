"""Compute when a bench is due: at an interval, or at times of the day or the week, in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from voicepipe.errors import ConfigError

MINUTE_MS: Final = 60_000
DAY_MS: Final = 1_440 * MINUTE_MS
WEEK_MS: Final = 7 * DAY_MS

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

FIRST_MONDAY_MS: Final = 4 * DAY_MS
"""1970-01-01 was a Thursday; the weeks of a schedule begin on Monday."""

_TIME: Final = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun) )?([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of a bench: each `every_minutes`, or at `week_ms`, in ms since Monday 00:00 UTC, in order."""

    every_minutes: int | None = None
    week_ms: tuple[int, ...] = ()

    def next_ms(self, last_ms: int | None, since_ms: int) -> int:
        """Return when it is due, in ms since 1970 UTC; it may be over.

        Args:
            last_ms: when it was measured last; None: never.
            since_ms: when the schedule began. An interval begins with a run.
        """
        if self.every_minutes is not None:
            return since_ms if last_ms is None else last_ms + self.every_minutes * MINUTE_MS
        after_ms = since_ms if last_ms is None else last_ms
        week_began_ms = after_ms - (after_ms - FIRST_MONDAY_MS) % WEEK_MS
        candidates = (week_began_ms + week + at_ms for week in (0, WEEK_MS) for at_ms in self.week_ms)
        return next(at_ms for at_ms in candidates if at_ms > after_ms)


def parse_schedule(every_minutes: int | None, at: Sequence[str], *, key: str) -> Schedule:
    """Return the schedule of an interval or of times such as `03:00` and `sun 12:30`.

    Raises:
        ConfigError: both or none are given, or a text is no time; `key` is the bench's section.
    """
    if (every_minutes is None) == (not at):
        came = "neither" if every_minutes is None else "both"
        raise ConfigError(f"{key}.every_minutes: expected it or {key}.at, got {came}")
    if every_minutes is not None:
        return Schedule(every_minutes)
    return Schedule(week_ms=tuple(sorted({ms for text in at for ms in _times_of_week(text, key)})))


def _times_of_week(text: str, key: str) -> Iterator[int]:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ConfigError(f"{key}.at: expected times in UTC such as 03:00 or sun 12:30, got {text!r}")
    days = range(7) if found[1] is None else (WEEKDAYS.index(found[1]),)
    for day in days:
        yield day * DAY_MS + (60 * int(found[2]) + int(found[3])) * MINUTE_MS
