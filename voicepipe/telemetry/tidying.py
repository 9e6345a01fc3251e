"""Sum up finished spans, and delete old data. Each piece of work is short, so that nothing waits long for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from voicepipe.telemetry.facets import ALL, FACETS, MIX, Mix, read_mix
from voicepipe.telemetry.figures import Figures, unpacked_by_name
from voicepipe.telemetry.spans import DAY_MS, HOUR_MS, LEVELS, QUARTER_MS, Span, at
from voicepipe.telemetry.store import MINUTE_MS
from voicepipe.telemetry.sums import stored, summed, turns_in, turns_sql
from voicepipe.telemetry.turn_conditions import PROJECTS
from voicepipe.telemetry.turn_rows import forget
from voicepipe.telemetry.work import Work, asked, told

SETTLE_MS: Final = 30_000
"""How long after its end a span is summed up: most turns that began in it are over then."""

MINUTES_MS: Final = 2 * DAY_MS
"""How long figures of single minutes are kept; those of quarters of an hour suffice for what is older."""

_FACET: Final = "project = ? AND level_ms = ? AND facet = ?"  # as the index has it

PIECE: Final = 200
"""Turns that are deleted at once."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a span, valid while the span has this stamp."""

    project: str
    span: Span
    stamp: int
    rows: Sequence[tuple[str, str, bytes]]
    """(facet, name, figures)."""


def sum_up(now_ms: int) -> Work[Sum | None]:
    """Sum up the first span that is over and not summed up: the short ones first, of which the long ones are made."""
    sql = """
        SELECT project, level_ms, from_ms, stamp FROM spans
        WHERE stamp IS NOT NULL AND from_ms + level_ms <= ? ORDER BY level_ms, from_ms LIMIT 1
    """
    due = yield from asked(sql, now_ms - SETTLE_MS)
    if not due:
        return None
    ((project, level_ms, from_ms, stamp),) = due
    span = Span(from_ms, level_ms)
    of_turns = level_ms == MINUTE_MS
    if level_ms == QUARTER_MS:
        ((pruned_ms,),) = yield from asked("SELECT pruned_ms FROM projects WHERE project = ?", project)
        of_turns = from_ms < pruned_ms
    mixes = yield from (_of_turns(project, span) if of_turns else _of_spans(project, span))
    return Sum(project, span, stamp, tuple(stored(mixes, level_ms)))


def _of_turns(project: str, span: Span) -> Work[dict[Mix, Figures]]:
    sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
    rows = yield from asked(sql, project, span.from_ms, span.until_ms)
    return summed((mix, figures) for _, mix, figures in turns_in(rows))


def _of_spans(project: str, span: Span) -> Work[dict[Mix, Figures]]:
    shorter = LEVELS[LEVELS.index(span.level_ms) - 1]
    sql = f"SELECT figures FROM figures WHERE {_FACET} AND from_ms >= ? AND from_ms < ?"
    rows = yield from asked(sql, project, shorter, MIX, span.from_ms, span.until_ms)
    named = (each for (data,) in rows for each in unpacked_by_name(data, lambda name: True))
    return summed((read_mix(name), figures) for name, figures in named)


def put_down(done: Sum) -> Work[None]:
    """Store a sum, unless a turn of its span was written or deleted since it was read: then it is outdated."""
    key = (done.project, done.span.level_ms, done.span.from_ms)
    which = "project = ? AND level_ms = ? AND from_ms = ?"
    fresh = yield from asked(
        f"UPDATE spans SET stamp = NULL WHERE {which} AND stamp = ? RETURNING from_ms", *key, done.stamp
    )
    if fresh:
        project, level_ms, from_ms = key
        yield from told(
            f"DELETE FROM figures WHERE {_FACET} AND from_ms = ?",
            [(project, level_ms, facet, from_ms) for facet in (ALL, MIX, *FACETS)],
        )
        yield from told(
            "INSERT INTO figures (project, level_ms, from_ms, facet, name, figures) VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, *row) for row in done.rows],
        )


def prune(now_ms: int) -> Work[bool]:
    """Delete the minutes of one old day; return whether there were any.

    Summed up or not: quarters of an hour are summed up from their turns where there are no minutes.
    """
    before_ms = at(now_ms - MINUTES_MS, HOUR_MS).from_ms
    for project, *_ in (yield from asked(PROJECTS)):
        sql = "SELECT min(from_ms) FROM spans WHERE project = ? AND level_ms = ?"
        ((from_ms,),) = yield from asked(sql, project, MINUTE_MS)
        if from_ms is not None and from_ms < before_ms:
            yield from _prune(project, min(before_ms, at(from_ms, DAY_MS).until_ms))
            return True
    return False


def _prune(project: str, until_ms: int) -> Work[None]:
    yield from told(
        "UPDATE projects SET pruned_ms = ? WHERE project = ? AND pruned_ms < ?", [(until_ms, project, until_ms)]
    )
    yield from told(
        f"DELETE FROM figures WHERE {_FACET} AND from_ms < ?",
        [(project, MINUTE_MS, facet, until_ms) for facet in (ALL, MIX)],
    )
    yield from told(
        "DELETE FROM spans WHERE project = ? AND level_ms = ? AND from_ms < ?", [(project, MINUTE_MS, until_ms)]
    )


def trim_before(before_ms: int) -> Work[int]:
    """Delete some of the turns that began before a time, in any project; return how many."""
    for project, *_ in (yield from asked(PROJECTS)):
        limit_ms = at(before_ms, QUARTER_MS).from_ms  # whole quarters: the others can still be summed up from turns
        dirty_ms = yield from _first_dirty(project)
        limit_ms = limit_ms if dirty_ms is None else min(limit_ms, dirty_ms)
        sql = "SELECT number FROM turns WHERE project = ? AND started_at_ms < ? ORDER BY started_at_ms LIMIT ?"
        numbers = [number for (number,) in (yield from asked(sql, project, limit_ms, PIECE))]
        if numbers:
            yield from told(
                "UPDATE projects SET trimmed_ms = ? WHERE project = ? AND trimmed_ms < ?",
                [(limit_ms, project, limit_ms)],
            )
            yield from forget(numbers)
            yield from told("DELETE FROM sessions WHERE project = ? AND last_at_ms < ?", [(project, limit_ms)])
            return len(numbers)
    return 0


def oldest_piece() -> Work[int | None]:
    """Return the time that bounds the next piece of oldest turns to delete; None without any turn."""
    oldest: list[tuple[int, int]] = []
    for project, *_ in (yield from asked(PROJECTS)):
        sql = "SELECT started_at_ms FROM turns WHERE project = ? ORDER BY started_at_ms LIMIT ?"
        begins = [at_ms for (at_ms,) in (yield from asked(sql, project, PIECE))]
        oldest += [(begins[0], begins[-1])] if begins else []
    return at(min(oldest)[1], QUARTER_MS).until_ms if oldest else None


def _first_dirty(project: str) -> Work[int | None]:
    """Return when the first span begins whose turns are still needed, to sum it up."""
    sql = "SELECT min(from_ms) FROM spans WHERE stamp IS NOT NULL AND project = ? AND level_ms <= ?"
    ((from_ms,),) = yield from asked(sql, project, QUARTER_MS)
    return None if from_ms is None else int(from_ms)
