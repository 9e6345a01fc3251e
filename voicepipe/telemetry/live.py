"""How the last minutes went: quantiles and broken limits of each stage, over sliding windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from voicepipe.quantile import Sketch
from voicepipe.turn.record import TurnRecord

TOTAL: Final = "total"
"""The row of the heard latency, beside those of the stages."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time that ends now, counted in slots of equal length.

    The slot in progress and the whole ones before it are seen, so a window reaches back at least
    `(n_slots - 1) * slot_ms` and less than `n_slots * slot_ms`.
    """

    name: str
    slot_ms: int
    n_slots: int


WINDOWS: Final = (Window("1m", 10_000, 6), Window("15m", 60_000, 15), Window("24h", 3_600_000, 24))
"""Slots are a part of their window, not a minute for all: a day then merges 24 sketches, not 1440."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """One stage over one window. The quantiles are within 1 % (`voicepipe.quantile`)."""

    stage: str
    count: int
    over: int
    """How many broke their limit."""

    p50_ms: int
    p95_ms: int
    p99_ms: int


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """All stages over one window, in the order in which they were first seen; `total` leads."""

    window: str
    stages: tuple[StageFigures, ...]


@dataclass(slots=True)
class _Tally:
    durations: Sketch = field(default_factory=Sketch)
    over: int = 0

    def merge(self, other: _Tally) -> None:
        self.durations.merge(other.durations)
        self.over += other.over


@dataclass(frozen=True, slots=True)
class _Slot:
    number: int
    tallies: dict[str, _Tally] = field(default_factory=dict)


class LiveFigures:
    """Counts turns as they close. Time is passed in; any clock will do that never goes back."""

    def __init__(self, windows: tuple[Window, ...] = WINDOWS) -> None:
        # Bounded by each window's slots: the oldest falls out.
        self._slots = {window: deque[_Slot](maxlen=window.n_slots) for window in windows}

    def see(self, record: TurnRecord, now_ms: int) -> None:
        """Count a turn that is closed; one that is still spoken is not counted yet."""
        if record.outcome is None:
            return
        for window, slots in self._slots.items():
            number = now_ms // window.slot_ms
            if not slots or slots[-1].number < number:
                slots.append(_Slot(number))
            for stage, duration_ms, over in _durations(record):
                tally = slots[-1].tallies.setdefault(stage, _Tally())
                tally.durations.add(max(0, duration_ms))  # work may be done before t0: it cost the caller nothing
                tally.over += over

    def figures(self, now_ms: int) -> tuple[WindowFigures, ...]:
        """Every window as it ends now; stages that nothing was counted for are left out."""
        return tuple(
            WindowFigures(window.name, tuple(_figures(window, slots, now_ms))) for window, slots in self._slots.items()
        )


def _durations(record: TurnRecord) -> Iterator[tuple[str, int, bool]]:
    if record.total_ms is not None:
        yield TOTAL, record.total_ms, record.total_verdict == "over"
    for span in record.stages:
        yield span.stage, span.duration_ms, span.verdict == "over"


def _figures(window: Window, slots: deque[_Slot], now_ms: int) -> Iterator[StageFigures]:
    oldest = now_ms // window.slot_ms - window.n_slots + 1
    merged: dict[str, _Tally] = {TOTAL: _Tally()}
    for slot in slots:
        if slot.number >= oldest:
            for stage, tally in slot.tallies.items():
                merged.setdefault(stage, _Tally()).merge(tally)
    for stage, tally in merged.items():
        p50_ms, p95_ms, p99_ms = tally.durations.p50_ms, tally.durations.p95_ms, tally.durations.p99_ms
        if p50_ms is not None and p95_ms is not None and p99_ms is not None:
            yield StageFigures(stage, tally.durations.count, tally.over, round(p50_ms), round(p95_ms), round(p99_ms))
