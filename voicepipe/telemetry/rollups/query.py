"""Add up the figures of a range: of whole buckets from their sums, and of single turns where there is no sum yet."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from voicepipe.telemetry.rollups.aggregates import (
    Figures,
    Gist,
    packed,
    total_of,
    unpacked,
    unpacked_by_name,
    unpacked_gist,
)
from voicepipe.telemetry.rollups.buckets import DAY_MS, HOUR_MS, LEVELS, QUARTER_MS, Bucket, ReadPlan, coarsest, joined
from voicepipe.telemetry.rollups.dimensions import ALL, MIX, Mix, dimensions_of, filters_of, read_mix
from voicepipe.telemetry.rollups.record_figures import CountedRecord
from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.telemetry.rollups.summary import stats_of
from voicepipe.telemetry.store.filters import NAMED, condition, projects, without_time_index
from voicepipe.telemetry.store.port import StatsQuery
from voicepipe.telemetry.store.statements import Row, Work, fetch

MAX_TURNS: Final = 10_000
"""Turns of one session or user that are counted, the newest first."""

PARTED: Final = (HOUR_MS, DAY_MS)
"""Levels whose buckets have figures for each name of each dimension too."""

_LAST_MS: Final = 2**53
"""Later than everything."""

_MIXED: Final = "t.agent, t.route, t.language, t.outcome, t.cause, t.arm, t.late, t.stt, t.llm, t.tts"


def stats(project: str | None, query: StatsQuery) -> Work[Stats]:
    """Return the figures of the turns that match."""
    total, series = _Total(query), _Series(query)
    sheets: tuple[_Sum, ...] = (total, series) if query.step_ms is not None else (total,)
    partial = False
    for each in (yield from projects(project)):
        if query.session is not None or query.user is not None or query.text is not None:
            partial |= yield from _of_few(each, query, sheets)
        else:
            for sheet in sheets:
                yield from _of_range(each, query, sheet)
    return stats_of(total.figures, series=series.points, groups=total.groups, partial=partial)


class _Sum(ABC):
    """Adds up figures as they are read."""

    top_ms = DAY_MS
    """The longest buckets that can be used."""

    by: str | None = None

    def __init__(self, query: StatsQuery) -> None:
        self.filters = filters_of(query)

    def dimension(self, level_ms: int) -> tuple[str, str]:
        """Return (dimension, name) of the buckets' figures that match the whole filter; groups aside."""
        if not self.filters and (self.by is None or level_ms in PARTED):
            return ALL, ""
        if len(self.filters) == 1 and self.by is None and level_ms in PARTED:
            ((dimension, name),) = self.filters.items()
            return dimension, name
        return MIX, ""

    def add(self, dimension: str, from_ms: int, data: bytes) -> None:
        """Count the figures of a bucket, as they are stored."""
        if dimension == MIX:
            for name, figures in unpacked_by_name(data, self._matches):
                self.add_mix(read_mix(name), from_ms, figures)
        else:
            self.add_all(from_ms, data)

    def _matches(self, mix: str) -> bool:
        return not self.filters or read_mix(mix).matches(self.filters)

    @abstractmethod
    def add_all(self, from_ms: int, data: bytes) -> None:
        """Count figures that match as they are."""

    @abstractmethod
    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        """Count figures of one mix, which matches."""


class _Total(_Sum):
    """The figures of all turns together, and by group."""

    def __init__(self, query: StatsQuery) -> None:
        super().__init__(query)
        self.by = query.by
        self.figures = Figures()
        self.groups: dict[str, Gist] = defaultdict(Gist)

    def add_all(self, from_ms: int, data: bytes) -> None:
        self.figures.add(unpacked(data))

    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        self.figures.add(figures)
        if self.by is not None:
            for its in mix.names(self.by):
                self.groups[its].add_gist(figures)

    def add_group(self, name: str, data: bytes) -> None:
        """Count figures of one group, which are included in the total already."""
        self.groups[name].add_gist(unpacked_gist(data))


class _Series(_Sum):
    """Turns by the step in which they began."""

    def __init__(self, query: StatsQuery) -> None:
        super().__init__(query)
        self._step_ms = query.step_ms or DAY_MS
        self.top_ms = coarsest(self._step_ms)
        self.points: dict[int, Gist] = defaultdict(Gist)

    def add_all(self, from_ms: int, data: bytes) -> None:
        self.points[from_ms - from_ms % self._step_ms].add_gist(unpacked_gist(data))

    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        self.points[from_ms - from_ms % self._step_ms].add_gist(figures)


def _of_few(project: str, query: StatsQuery, sheets: tuple[_Sum, ...]) -> Work[bool]:
    """Count turn by turn, for one session or user with few turns. Return whether there were more than are counted."""
    where, values = yield from condition(project, query)
    order = "t.started_at_ms"
    if NAMED in where:
        where, order = without_time_index(where), "+t.started_at_ms"
    rows = yield from fetch(turns_sql(where, f"ORDER BY {order} DESC LIMIT {MAX_TURNS + 1}"), *values)
    for from_ms, mix, figures in turns_in(rows[:MAX_TURNS]):
        for sheet in sheets:
            sheet.add_mix(mix, from_ms, figures)
    return len(rows) > MAX_TURNS


def _of_range(project: str, query: StatsQuery, sheet: _Sum) -> Work[None]:
    since_ms, until_ms = query.since_ms or 0, _LAST_MS if query.until_ms is None else query.until_ms
    plan = yield from _plan(project, since_ms, until_ms, sheet.top_ms)
    by_level: dict[int, set[int]] = defaultdict(set)
    for bucket in plan.buckets:
        by_level[bucket.level_ms].add(bucket.from_ms)
    for level_ms, begins in by_level.items():
        dimension, name = sheet.dimension(level_ms)
        for from_ms, _, data in (yield from _figures(project, level_ms, dimension, name, begins)):
            if from_ms in begins:
                sheet.add(dimension, from_ms, data)
        if isinstance(sheet, _Total) and sheet.by is not None and dimension == ALL:
            for from_ms, its, data in (yield from _figures(project, level_ms, sheet.by, None, begins)):
                if from_ms in begins:
                    sheet.add_group(its, data)
    for since_ms, until_ms in plan.gaps:
        sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
        for from_ms, mix, figures in turns_in((yield from fetch(sql, project, since_ms, until_ms))):
            if mix.matches(sheet.filters):
                sheet.add_mix(mix, from_ms, figures)


def _figures(project: str, level_ms: int, dimension: str, name: str | None, begins: set[int]) -> Work[Iterable[Row]]:
    named, values = ("", ()) if name is None else (" AND name = ?", (name,))
    sql = f"""
        SELECT from_ms, name, figures FROM figures
        WHERE project = ? AND level_ms = ? AND dimension = ? AND from_ms >= ? AND from_ms <= ?{named}
    """
    return (yield from fetch(sql, project, level_ms, dimension, min(begins), max(begins), *values))


def _plan(project: str, since_ms: int, until_ms: int, top_ms: int) -> Work[ReadPlan]:
    """Return the data to read for a range, in the longest buckets that exist."""
    ((trimmed_ms, pruned_ms),) = (
        yield from fetch("SELECT trimmed_ms, pruned_ms FROM projects WHERE project = ?", project)
    ) or ((0, 0),)
    buckets: list[Bucket] = []
    gaps: list[tuple[int, int]] = []
    open_ranges = [(since_ms, until_ms)]
    # Quarters are read in any case: of old times there are no minutes.
    for level_ms in (each for each in reversed(LEVELS) if each <= max(top_ms, QUARTER_MS)):
        finer: list[tuple[int, int]] = []
        for from_ms, to_ms in open_ranges:
            for begin_ms, clean in (yield from _buckets(project, level_ms, from_ms, to_ms)):
                inside = max(from_ms, begin_ms), min(to_ms, begin_ms + level_ms)
                whole = inside == (begin_ms, begin_ms + level_ms)
                lowest = level_ms == LEVELS[0] or (level_ms == LEVELS[1] and begin_ms < pruned_ms)
                if clean and ((whole and level_ms <= top_ms) or (lowest and begin_ms < trimmed_ms)):
                    # Of deleted turns the bucket is all there is: it counts where it begins.
                    buckets += [Bucket(begin_ms, level_ms)] if inside[0] == begin_ms else []
                elif lowest:
                    gaps.append(inside)
                else:
                    finer.append(inside)
        open_ranges = list(joined(finer))
    return ReadPlan(tuple(buckets), tuple(joined(sorted(gaps))))


def _buckets(project: str, level_ms: int, from_ms: int, until_ms: int) -> Work[list[tuple[int, bool]]]:
    """Return (from_ms, whether it is summed up) of the buckets in which turns began."""
    sql = """
        SELECT from_ms, stamp FROM buckets
        WHERE project = ? AND level_ms = ? AND from_ms > ? AND from_ms < ? ORDER BY from_ms
    """
    rows = yield from fetch(sql, project, level_ms, from_ms - level_ms, until_ms)
    return [(begin_ms, stamp is None) for begin_ms, stamp in rows]


def turns_sql(where: str, more: str = "") -> str:
    """Return the SELECT for `turns_in`, of the closed turns that match. Nearly all are closed, so no database is to
    look them up by that."""
    return f"""
        SELECT t.started_at_ms, r.record, {_MIXED} FROM turns t JOIN records r ON r.number = t.number
        WHERE {where} AND coalesce(t.outcome, '') <> '' {more}
    """


def turns_in(rows: Iterable[Row]) -> Iterator[tuple[int, Mix, Figures]]:
    """Return (started_at_ms, mix, figures) of single turns; a turn whose record is damaged counts as none."""
    for started_at_ms, record, *mixed in rows:
        mixed[6] = bool(mixed[6])
        # A page that holds it fails with an error; the figures of a year must not.
        with suppress(ValueError, zlib.error):
            yield started_at_ms, Mix(*mixed), CountedRecord.read(zlib.decompress(record)).figures()


def summed(turns: Iterable[tuple[Mix, Figures]]) -> dict[Mix, Figures]:
    """Return the figures of each mix."""
    mixes: dict[Mix, list[Figures]] = defaultdict(list)
    for mix, figures in turns:
        mixes[mix].append(figures)
    return {mix: total_of(several) for mix, several in mixes.items()}


def stored(mixes: Mapping[Mix, Figures], level_ms: int) -> Iterator[tuple[str, str, bytes]]:
    """Return (dimension, name, figures) of a bucket: of all turns, of the mixes, and in long buckets of each name of
    each dimension.

    In short buckets there are hardly fewer mixes than turns, and names cost more than they save.
    """
    if not mixes:
        return
    yield ALL, "", packed(total_of(tuple(mixes.values())))
    yield MIX, "", packed({mix.name: figures for mix, figures in mixes.items()})
    parts: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for mix, figures in mixes.items():
        for part in dimensions_of(mix) if level_ms in PARTED else ():
            parts[part].append(figures)
    for (dimension, name), several in parts.items():
        yield dimension, name, packed(total_of(several))
