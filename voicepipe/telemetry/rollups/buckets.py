"""The time bucket for which figures are summed up, and the buckets that make up a range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from voicepipe.telemetry.store.port import MINUTE_MS

QUARTER_MS: Final = 15 * MINUTE_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

LEVELS: Final = (MINUTE_MS, QUARTER_MS, HOUR_MS, DAY_MS)
"""Lengths, shortest first; each holds whole ones of the one before. They begin at multiples of their length, UTC."""


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A time bucket of one level."""

    from_ms: int
    level_ms: int

    @property
    def until_ms(self) -> int:
        """Return its end, which is no part of it."""
        return self.from_ms + self.level_ms


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The data to read for a range: figures of whole buckets, and single turns of the rest."""

    buckets: tuple[Bucket, ...]
    gaps: tuple[tuple[int, int], ...]
    """(from_ms, until_ms)."""


def at(instant_ms: int, level_ms: int) -> Bucket:
    """Return the bucket of a level that contains an instant."""
    return Bucket(instant_ms - instant_ms % level_ms, level_ms)


def buckets_around(instant_ms: int) -> tuple[Bucket, ...]:
    """Return the buckets of all levels that contain an instant, shortest first."""
    return tuple(at(instant_ms, level_ms) for level_ms in LEVELS)


def coarsest(step_ms: int) -> int:
    """Return the longest level of which a step holds whole ones."""
    return max(level_ms for level_ms in LEVELS if step_ms % level_ms == 0)


def joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return the same ranges, with adjacent ones joined."""
    last: tuple[int, int] | None = None
    for begin_ms, end_ms in ranges:
        if last is not None and last[1] == begin_ms:
            last = last[0], end_ms
            continue
        if last is not None:
            yield last
        last = begin_ms, end_ms
    if last is not None:
        yield last
