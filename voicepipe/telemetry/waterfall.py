"""Lay out one turn's milliseconds as rows: when each stage ran, and its part of the critical path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import (
    Breach,
    LatencySource,
    ModelAttempt,
    Speculation,
    StageSpan,
    TurnCost,
    TurnRecord,
    Verdict,
)

_ENDS: Final = {
    "silence": attribution.END_DUE,
    "endpoint": attribution.LLM_REQUESTED,
    "llm_ttft": attribution.FIRST_DELTA,
    "first_clause": attribution.FIRST_CLAUSE,
    "tts_ttfb": attribution.FIRST_SOUND,
    attribution.SPEECH: attribution.FIRST_SOUND,
    "overhead": attribution.FIRST_SENT,
    "earlier_audio": attribution.EARLIER_AUDIO_ENDED,
    "playback": attribution.FIRST_AUDIBLE,
}
"""The mark that ends each stage (design, the table of the budget). A stage began `duration_ms` before it, or with the
first piece of it that the user waited for."""


class Span(Struct, frozen=True):
    """A span of time, in ms from t0."""

    start_ms: int
    end_ms: int

    @property
    def duration_ms(self) -> int:
        """Return its length in ms."""
        return self.end_ms - self.start_ms


class WaterfallRow(Struct, frozen=True):
    """A stage: when it ran, and when the user waited for it."""

    stage: str
    span: Span
    critical: tuple[Span, ...]
    """The parts on the critical path, in time order; during the rest the stage ran hidden."""

    held: tuple[Span, ...]
    """Time after the stage's end in which the release gate was still closed."""

    duration_ms: int
    """The stage's time: its span, without the time in which the server's event loop was blocked. For the server's
    stage: that time and its own."""

    limit_ms: int
    verdict: Verdict
    owner: str


class Wait(Struct, frozen=True):
    """A link of the critical path. The links and the unattributed rest make the total."""

    stage: str
    span: Span


class Waterfall(Struct, frozen=True):
    """A turn laid out in time."""

    total_ms: int | None
    total_limit_ms: int
    total_verdict: Verdict | None
    latency_source: LatencySource
    ends_with: Literal["sound", "text"]
    """The end of the total: the first audible sample, or the first text of a reply without audio."""

    end_ms: int
    """The end of the last row."""

    rows: tuple[WaterfallRow, ...]
    waits: tuple[Wait, ...]
    unattributed_ms: int
    breach: Breach | None
    speculation: Speculation
    route: str
    attempts: tuple[ModelAttempt, ...]
    actions: tuple[str, ...]
    cost: TurnCost
    resumed: int
    """How often the user went on while an answer was audible that had begun softly."""

    taken_back_ms: int
    """How much the user had heard of these answers."""


def waterfall(record: TurnRecord) -> Waterfall:
    """Lay a turn out in time. A stage whose mark is missing has no row: its time is unknown."""
    marks = dict(record.marks)
    t0_ms = marks.get(attribution.VOICED_LAST, record.marks[0][1] if record.marks else 0)
    waits = tuple(
        Wait(part.stage, Span(marks[part.from_mark] - t0_ms, marks[part.to_mark] - t0_ms))
        for part in record.contributions
        if part.from_mark in marks and part.to_mark in marks
    )
    ends = _ENDS | _later_ends(record)
    rows = tuple(
        _row(stage, marks[ends[stage.stage]] - t0_ms, waits)
        for stage in record.stages
        if ends.get(stage.stage) in marks
    )
    return Waterfall(
        total_ms=record.total_ms,
        total_limit_ms=record.total_limit_ms,
        total_verdict=record.total_verdict,
        latency_source=record.latency_source,
        ends_with="sound" if attribution.FIRST_AUDIBLE in marks else "text",
        end_ms=max((span.end_ms for span in (*(r.span for r in rows), *(w.span for w in waits))), default=0),
        rows=rows,
        waits=waits,
        unattributed_ms=record.unattributed_ms,
        breach=record.breach,
        speculation=record.speculation,
        route=record.route,
        attempts=record.attempts,
        actions=record.actions,
        cost=record.cost,
        resumed=record.resumed,
        taken_back_ms=record.taken_back_ms,
    )


def _later_ends(record: TurnRecord) -> dict[str, str]:
    """Return the marks that end these stages in this turn: where the user waited for them, the last one of that wait. A
    record without the end of its silence keeps the LLM request as the end of `endpoint`.
    """
    names = ("endpoint", "tool", attribution.SPEECH)
    ends = {part.stage: part.to_mark for part in record.contributions if part.stage in names}
    silent = any(part.stage == "silence" for part in record.contributions)
    fixed = not silent and attribution.SPEECH not in ends
    return {stage: mark for stage, mark in ends.items() if not (fixed and stage == "endpoint")}


def _row(stage: StageSpan, end_ms: int, waits: tuple[Wait, ...]) -> WaterfallRow:
    own = tuple(wait.span for wait in waits if wait.stage == stage.stage)
    # Where the loop was blocked the stage's own time is in pieces, and so is the server's.
    span = Span(min(end_ms - stage.duration_ms, *(piece.start_ms for piece in own), end_ms), end_ms)
    critical = _lasting(Span(max(wait.start_ms, span.start_ms), min(wait.end_ms, span.end_ms)) for wait in own)
    held = _lasting(Span(max(wait.start_ms, span.end_ms), wait.end_ms) for wait in own)
    return WaterfallRow(
        stage.stage, span, critical, held, stage.duration_ms, stage.limit_ms, stage.verdict, stage.owner
    )


def _lasting(spans: Iterable[Span]) -> tuple[Span, ...]:
    return tuple(span for span in spans if span.duration_ms > 0)
