"""Sum up finished buckets, and delete old data, in short steps: other work never waits long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from voicepipe.telemetry.rollups.aggregates import Figures
from voicepipe.telemetry.rollups.buckets import DAY_MS, HOUR_MS, LEVELS, QUARTER_MS, Bucket, bucket_at
from voicepipe.telemetry.rollups.dimensions import ALL, DIMENSIONS, MIX, Mix, read_mix
from voicepipe.telemetry.rollups.query import figure_rows, figures_of_rows, sum_by_mix, turns_sql
from voicepipe.telemetry.rollups.stored_figures import unpacked_by_name
from voicepipe.telemetry.store.filters import PROJECTS
from voicepipe.telemetry.store.port import MINUTE_MS
from voicepipe.telemetry.store.statements import Work, execute, fetch
from voicepipe.telemetry.store.write import delete_numbers

SUM_DELAY_MS: Final = 30_000
"""Delay from the end of a bucket until it is summed up: most of its turns are closed by then."""

KEEP_MINUTES_MS: Final = 2 * DAY_MS
"""Time for which figures of single minutes are stored; older figures are by quarters of an hour."""

_DIMENSION: Final = "project = ? AND level_ms = ? AND dimension = ?"  # as the index has it

MAX_DELETED: Final = 200
"""Maximum number of turns that one step deletes."""


class BucketSum(Struct, frozen=True):
    """The figures of a bucket, valid while the bucket has this stamp."""

    project: str
    bucket: Bucket
    stamp: int
    rows: Sequence[tuple[str, str, bytes]]
    """(dimension, name, figures)."""


def sum_up(now_ms: int) -> Work[BucketSum | None]:
    """Return the sum of the first finished bucket without a sum: short buckets first, since long ones are made of
    them."""
    sql = """
        SELECT project, level_ms, from_ms, stamp FROM buckets
        WHERE stamp IS NOT NULL AND from_ms + level_ms <= ? ORDER BY level_ms, from_ms LIMIT 1
    """
    due = yield from fetch(sql, now_ms - SUM_DELAY_MS)
    if not due:
        return None
    ((project, level_ms, from_ms, stamp),) = due
    bucket = Bucket(from_ms, level_ms)
    from_turns = level_ms == MINUTE_MS
    if level_ms == QUARTER_MS:
        ((pruned_ms,),) = yield from fetch("SELECT pruned_ms FROM projects WHERE project = ?", project)
        from_turns = from_ms < pruned_ms
    mixes = yield from (_sum_turns(project, bucket) if from_turns else _sum_buckets(project, bucket))
    return BucketSum(project, bucket, stamp, tuple(figure_rows(mixes, level_ms)))


def _sum_turns(project: str, bucket: Bucket) -> Work[dict[Mix, Figures]]:
    sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
    rows = yield from fetch(sql, project, bucket.from_ms, bucket.until_ms)
    return sum_by_mix((mix, figures) for _, mix, figures in figures_of_rows(rows))


def _sum_buckets(project: str, bucket: Bucket) -> Work[dict[Mix, Figures]]:
    shorter = LEVELS[LEVELS.index(bucket.level_ms) - 1]
    sql = f"SELECT figures FROM figures WHERE {_DIMENSION} AND from_ms >= ? AND from_ms < ?"
    rows = yield from fetch(sql, project, shorter, MIX, bucket.from_ms, bucket.until_ms)
    named = (each for (data,) in rows for each in unpacked_by_name(data, lambda name: True))
    return sum_by_mix((read_mix(name), figures) for name, figures in named)


def store_sum(bucket_sum: BucketSum) -> Work[None]:
    """Store a sum, unless a turn of the bucket was written or deleted since the turns were read."""
    key = (bucket_sum.project, bucket_sum.bucket.level_ms, bucket_sum.bucket.from_ms)
    bucket_sql = "project = ? AND level_ms = ? AND from_ms = ?"
    is_current = yield from fetch(
        f"UPDATE buckets SET stamp = NULL WHERE {bucket_sql} AND stamp = ? RETURNING from_ms", *key, bucket_sum.stamp
    )
    if is_current:
        project, level_ms, from_ms = key
        yield from execute(
            f"DELETE FROM figures WHERE {_DIMENSION} AND from_ms = ?",
            [(project, level_ms, dimension, from_ms) for dimension in (ALL, MIX, *DIMENSIONS)],
        )
        yield from execute(
            "INSERT INTO figures (project, level_ms, from_ms, dimension, name, figures) VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, *row) for row in bucket_sum.rows],
        )


def prune(now_ms: int) -> Work[bool]:
    """Delete the minutes of one old day; return whether there were any.

    Minutes without a sum are deleted, too: quarters of an hour are then summed up from their turns.
    """
    before_ms = bucket_at(now_ms - KEEP_MINUTES_MS, HOUR_MS).from_ms
    for project, *_ in (yield from fetch(PROJECTS)):
        sql = "SELECT min(from_ms) FROM buckets WHERE project = ? AND level_ms = ?"
        ((from_ms,),) = yield from fetch(sql, project, MINUTE_MS)
        if from_ms is not None and from_ms < before_ms:
            yield from _prune(project, min(before_ms, bucket_at(from_ms, DAY_MS).until_ms))
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


def delete_turns_before(before_ms: int) -> Work[int]:
    """Delete up to `MAX_DELETED` turns of one project that began before a time; return their number."""
    for project, *_ in (yield from fetch(PROJECTS)):
        limit_ms = bucket_at(before_ms, QUARTER_MS).from_ms  # whole quarters: later ones are still summed up from turns
        unsummed_ms = yield from _first_unsummed(project)
        limit_ms = limit_ms if unsummed_ms is None else min(limit_ms, unsummed_ms)
        sql = "SELECT number FROM turns WHERE project = ? AND started_at_ms < ? ORDER BY started_at_ms LIMIT ?"
        numbers = [number for (number,) in (yield from fetch(sql, project, limit_ms, MAX_DELETED))]
        if numbers:
            yield from execute(
                "UPDATE projects SET trimmed_ms = ? WHERE project = ? AND trimmed_ms < ?",
                [(limit_ms, project, limit_ms)],
            )
            yield from delete_numbers(numbers)
            yield from execute("DELETE FROM sessions WHERE project = ? AND last_at_ms < ?", [(project, limit_ms)])
            return len(numbers)
    return 0


def end_of_oldest_turns() -> Work[int | None]:
    """Return the time before which the oldest turns can be deleted in one step; None: there are no turns."""
    oldest: list[tuple[int, int]] = []
    for project, *_ in (yield from fetch(PROJECTS)):
        sql = "SELECT started_at_ms FROM turns WHERE project = ? ORDER BY started_at_ms LIMIT ?"
        begins = [at_ms for (at_ms,) in (yield from fetch(sql, project, MAX_DELETED))]
        oldest += [(begins[0], begins[-1])] if begins else []
    return bucket_at(min(oldest)[1], QUARTER_MS).until_ms if oldest else None


def _first_unsummed(project: str) -> Work[int | None]:
    """Return the start of the first bucket that must still be summed up from turns; None: there is none."""
    sql = "SELECT min(from_ms) FROM buckets WHERE stamp IS NOT NULL AND project = ? AND level_ms <= ?"
    ((from_ms,),) = yield from fetch(sql, project, QUARTER_MS)
    return None if from_ms is None else int(from_ms)
