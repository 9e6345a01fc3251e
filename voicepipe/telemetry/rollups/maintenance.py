"""Sum up finished buckets, and delete old data. Each piece of work is short, so that nothing waits long for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from voicepipe.telemetry.rollups.aggregates import Figures, unpacked_by_name
from voicepipe.telemetry.rollups.buckets import DAY_MS, HOUR_MS, LEVELS, QUARTER_MS, Bucket, at
from voicepipe.telemetry.rollups.dimensions import ALL, DIMENSIONS, MIX, Mix, read_mix
from voicepipe.telemetry.rollups.query import stored, summed, turns_in, turns_sql
from voicepipe.telemetry.store.filters import PROJECTS
from voicepipe.telemetry.store.port import MINUTE_MS
from voicepipe.telemetry.store.statements import Work, execute, fetch
from voicepipe.telemetry.store.write import delete_numbers

SETTLE_MS: Final = 30_000
"""Delay after a bucket's end until it is summed up: most of its turns are over then."""

MINUTES_MS: Final = 2 * DAY_MS
"""Time for which figures of single minutes are stored; older ones are by quarters of an hour."""

_DIMENSION: Final = "project = ? AND level_ms = ? AND dimension = ?"  # as the index has it

PIECE: Final = 200
"""Turns that are deleted at once."""


@dataclass(frozen=True, slots=True)
class BucketSum:
    """The sum of a bucket, valid while the bucket has this stamp."""

    project: str
    bucket: Bucket
    stamp: int
    rows: Sequence[tuple[str, str, bytes]]
    """(dimension, name, figures)."""


def sum_up(now_ms: int) -> Work[BucketSum | None]:
    """Sum up the first bucket that is over and not summed up: the short ones first, of which the long ones are made."""
    sql = """
        SELECT project, level_ms, from_ms, stamp FROM buckets
        WHERE stamp IS NOT NULL AND from_ms + level_ms <= ? ORDER BY level_ms, from_ms LIMIT 1
    """
    due = yield from fetch(sql, now_ms - SETTLE_MS)
    if not due:
        return None
    ((project, level_ms, from_ms, stamp),) = due
    bucket = Bucket(from_ms, level_ms)
    of_turns = level_ms == MINUTE_MS
    if level_ms == QUARTER_MS:
        ((pruned_ms,),) = yield from fetch("SELECT pruned_ms FROM projects WHERE project = ?", project)
        of_turns = from_ms < pruned_ms
    mixes = yield from (_of_turns(project, bucket) if of_turns else _of_buckets(project, bucket))
    return BucketSum(project, bucket, stamp, tuple(stored(mixes, level_ms)))


def _of_turns(project: str, bucket: Bucket) -> Work[dict[Mix, Figures]]:
    sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
    rows = yield from fetch(sql, project, bucket.from_ms, bucket.until_ms)
    return summed((mix, figures) for _, mix, figures in turns_in(rows))


def _of_buckets(project: str, bucket: Bucket) -> Work[dict[Mix, Figures]]:
    shorter = LEVELS[LEVELS.index(bucket.level_ms) - 1]
    sql = f"SELECT figures FROM figures WHERE {_DIMENSION} AND from_ms >= ? AND from_ms < ?"
    rows = yield from fetch(sql, project, shorter, MIX, bucket.from_ms, bucket.until_ms)
    named = (each for (data,) in rows for each in unpacked_by_name(data, lambda name: True))
    return summed((read_mix(name), figures) for name, figures in named)


def store_sum(done: BucketSum) -> Work[None]:
    """Store a sum, unless a turn of its bucket was written or deleted since it was read: then it is outdated."""
    key = (done.project, done.bucket.level_ms, done.bucket.from_ms)
    which = "project = ? AND level_ms = ? AND from_ms = ?"
    fresh = yield from fetch(
        f"UPDATE buckets SET stamp = NULL WHERE {which} AND stamp = ? RETURNING from_ms", *key, done.stamp
    )
    if fresh:
        project, level_ms, from_ms = key
        yield from execute(
            f"DELETE FROM figures WHERE {_DIMENSION} AND from_ms = ?",
            [(project, level_ms, dimension, from_ms) for dimension in (ALL, MIX, *DIMENSIONS)],
        )
        yield from execute(
            "INSERT INTO figures (project, level_ms, from_ms, dimension, name, figures) VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, *row) for row in done.rows],
        )


def prune(now_ms: int) -> Work[bool]:
    """Delete the minutes of one old day; return whether there were any.

    Summed up or not: quarters of an hour are summed up from their turns where there are no minutes.
    """
    before_ms = at(now_ms - MINUTES_MS, HOUR_MS).from_ms
    for project, *_ in (yield from fetch(PROJECTS)):
        sql = "SELECT min(from_ms) FROM buckets WHERE project = ? AND level_ms = ?"
        ((from_ms,),) = yield from fetch(sql, project, MINUTE_MS)
        if from_ms is not None and from_ms < before_ms:
            yield from _prune(project, min(before_ms, at(from_ms, DAY_MS).until_ms))
            return True
    return False


def _prune(project: str, until_ms: int) -> Work[None]:
    yield from execute(
        "UPDATE projects SET pruned_ms = ? WHERE project = ? AND pruned_ms < ?", [(until_ms, project, until_ms)]
    )
    yield from execute(
        f"DELETE FROM figures WHERE {_DIMENSION} AND from_ms < ?",
        [(project, MINUTE_MS, dimension, until_ms) for dimension in (ALL, MIX)],
    )
    yield from execute(
        "DELETE FROM buckets WHERE project = ? AND level_ms = ? AND from_ms < ?", [(project, MINUTE_MS, until_ms)]
    )


def trim_before(before_ms: int) -> Work[int]:
    """Delete some of the turns that began before a time, in any project; return how many."""
    for project, *_ in (yield from fetch(PROJECTS)):
        limit_ms = at(before_ms, QUARTER_MS).from_ms  # whole quarters: the others can still be summed up from turns
        dirty_ms = yield from _first_dirty(project)
        limit_ms = limit_ms if dirty_ms is None else min(limit_ms, dirty_ms)
        sql = "SELECT number FROM turns WHERE project = ? AND started_at_ms < ? ORDER BY started_at_ms LIMIT ?"
        numbers = [number for (number,) in (yield from fetch(sql, project, limit_ms, PIECE))]
        if numbers:
            yield from execute(
                "UPDATE projects SET trimmed_ms = ? WHERE project = ? AND trimmed_ms < ?",
                [(limit_ms, project, limit_ms)],
            )
            yield from delete_numbers(numbers)
            yield from execute("DELETE FROM sessions WHERE project = ? AND last_at_ms < ?", [(project, limit_ms)])
            return len(numbers)
    return 0


def oldest_piece() -> Work[int | None]:
    """Return the time that bounds the next piece of oldest turns to delete; None without any turn."""
    oldest: list[tuple[int, int]] = []
    for project, *_ in (yield from fetch(PROJECTS)):
        sql = "SELECT started_at_ms FROM turns WHERE project = ? ORDER BY started_at_ms LIMIT ?"
        begins = [at_ms for (at_ms,) in (yield from fetch(sql, project, PIECE))]
        oldest += [(begins[0], begins[-1])] if begins else []
    return at(min(oldest)[1], QUARTER_MS).until_ms if oldest else None


def _first_dirty(project: str) -> Work[int | None]:
    """Return when the first bucket begins whose turns are still needed, to sum it up."""
    sql = "SELECT min(from_ms) FROM buckets WHERE stamp IS NOT NULL AND project = ? AND level_ms <= ?"
    ((from_ms,),) = yield from fetch(sql, project, QUARTER_MS)
    return None if from_ms is None else int(from_ms)
