"""Sum up the figures of a time range: from the sums of whole buckets, and from single turns of other times."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from voicepipe.telemetry.rollups.aggregates import BasicFigures, Figures, sum_of
from voicepipe.telemetry.rollups.buckets import (
    DAY_MS,
    HOUR_MS,
    LEVELS,
    QUARTER_MS,
    Bucket,
    ReadPlan,
    joined,
    longest_level,
)
from voicepipe.telemetry.rollups.dimensions import ALL, MIX, Mix, dimensions_of, filters_of, read_mix
from voicepipe.telemetry.rollups.record_figures import RecordFigures
from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.telemetry.rollups.stored_figures import packed, unpacked, unpacked_basic, unpacked_by_name
from voicepipe.telemetry.rollups.summary import stats_of
from voicepipe.telemetry.store.filters import condition, projects, without_time_index
from voicepipe.telemetry.store.port import StatsQuery
from voicepipe.telemetry.store.statements import Row, Work, fetch

MAX_TURNS: Final = 10_000
"""Maximum number of turns of one session or user that are counted: the newest."""

SPLIT_LEVELS: Final = (HOUR_MS, DAY_MS)
"""Levels whose buckets also have figures for each name of each dimension."""

_LAST_MS: Final = 2**53
"""Later than any turn."""

_MIX_COLUMNS: Final = "t.agent, t.route, t.language, t.outcome, t.cause, t.arm, t.late, t.stt, t.llm, t.tts"


def stats(project: str | None, query: StatsQuery) -> Work[Stats]:
    """Return the figures of the turns that match."""
    total, series = _TotalAccumulator(query), _SeriesAccumulator(query)
    accumulators: tuple[_Accumulator, ...] = (total, series) if query.step_ms is not None else (total,)
    partial = False
    for each in (yield from projects(project)):
        if query.session is not None or query.user is not None or query.text is not None:
            partial |= yield from _add_turns(each, query, accumulators)
        else:
            for accumulator in accumulators:
                yield from _add_range(each, query, accumulator)
    return stats_of(total.figures, series=series.points, groups=total.groups, partial=partial)


class _Accumulator(ABC):
    """Sums up figures as they are read."""

    max_level_ms = DAY_MS
    """The longest level of buckets that can be used."""

    by: str | None = None

    def __init__(self, query: StatsQuery) -> None:
        self.filters = filters_of(query)

    def dimension(self, level_ms: int) -> tuple[str, str]:
        """Return (dimension, name) of the buckets' figures that match all filters, without groups."""
        if not self.filters and (self.by is None or level_ms in SPLIT_LEVELS):
            return ALL, ""
        if len(self.filters) == 1 and self.by is None and level_ms in SPLIT_LEVELS:
            ((dimension, name),) = self.filters.items()
            return dimension, name
        return MIX, ""

    def add(self, dimension: str, from_ms: int, data: bytes) -> None:
        """Add the stored figures of a bucket."""
        if dimension == MIX:
            for name, figures in unpacked_by_name(data, self._matches):
                self.add_mix(read_mix(name), from_ms, figures)
        else:
            self.add_all(from_ms, data)

    def _matches(self, mix: str) -> bool:
        return not self.filters or read_mix(mix).matches(self.filters)

    @abstractmethod
    def add_all(self, from_ms: int, data: bytes) -> None:
        """Add packed figures that match completely."""

    @abstractmethod
    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        """Add figures of one mix that matches."""


class _TotalAccumulator(_Accumulator):
    """Sums up the figures of all turns, and by group."""

    def __init__(self, query: StatsQuery) -> None:
        super().__init__(query)
        self.by = query.by
        self.figures = Figures()
        self.groups: dict[str, BasicFigures] = defaultdict(BasicFigures)

    def add_all(self, from_ms: int, data: bytes) -> None:
        self.figures.add(unpacked(data))

    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        self.figures.add(figures)
        if self.by is not None:
            for name in mix.names(self.by):
                self.groups[name].add_basic(figures)

    def add_group(self, name: str, data: bytes) -> None:
        """Add packed figures of one group. The total includes them already."""
        self.groups[name].add_basic(unpacked_basic(data))


class _SeriesAccumulator(_Accumulator):
    """Sums up the figures by the step in which the turns began."""

    def __init__(self, query: StatsQuery) -> None:
        super().__init__(query)
        self._step_ms = query.step_ms or DAY_MS
        self.max_level_ms = longest_level(self._step_ms)
        self.points: dict[int, BasicFigures] = defaultdict(BasicFigures)

    def add_all(self, from_ms: int, data: bytes) -> None:
        self.points[from_ms - from_ms % self._step_ms].add_basic(unpacked_basic(data))

    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        self.points[from_ms - from_ms % self._step_ms].add_basic(figures)


def _add_turns(project: str, query: StatsQuery, accumulators: tuple[_Accumulator, ...]) -> Work[bool]:
    """Add the turns of one session or user one by one. Return whether there are more than `MAX_TURNS`."""
    where, values, is_by_session = yield from condition(project, query)
    order = "t.started_at_ms"
    if is_by_session:
        where, order = without_time_index(where), "+t.started_at_ms"
    rows = yield from fetch(turns_sql(where, f"ORDER BY {order} DESC LIMIT {MAX_TURNS + 1}"), *values)
    for from_ms, mix, figures in figures_of_rows(rows[:MAX_TURNS]):
        for accumulator in accumulators:
            accumulator.add_mix(mix, from_ms, figures)
    return len(rows) > MAX_TURNS


def _add_range(project: str, query: StatsQuery, accumulator: _Accumulator) -> Work[None]:
    since_ms, until_ms = query.since_ms or 0, _LAST_MS if query.until_ms is None else query.until_ms
    plan = yield from _plan(project, since_ms, until_ms, accumulator.max_level_ms)
    by_level: dict[int, set[int]] = defaultdict(set)
    for bucket in plan.buckets:
        by_level[bucket.level_ms].add(bucket.from_ms)
    for level_ms, begins in by_level.items():
        dimension, name = accumulator.dimension(level_ms)
        for from_ms, _, data in (yield from _figures(project, level_ms, dimension, name, begins)):
            if from_ms in begins:
                accumulator.add(dimension, from_ms, data)
        if isinstance(accumulator, _TotalAccumulator) and accumulator.by is not None and dimension == ALL:
            for from_ms, group, data in (yield from _figures(project, level_ms, accumulator.by, None, begins)):
                if from_ms in begins:
                    accumulator.add_group(group, data)
    for since_ms, until_ms in plan.gaps:
        sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
        for from_ms, mix, figures in figures_of_rows((yield from fetch(sql, project, since_ms, until_ms))):
            if mix.matches(accumulator.filters):
                accumulator.add_mix(mix, from_ms, figures)


def _figures(project: str, level_ms: int, dimension: str, name: str | None, begins: set[int]) -> Work[Iterable[Row]]:
    name_sql, values = ("", ()) if name is None else (" AND name = ?", (name,))
    sql = f"""
        SELECT from_ms, name, figures FROM figures
        WHERE project = ? AND level_ms = ? AND dimension = ? AND from_ms >= ? AND from_ms <= ?{name_sql}
    """
    return (yield from fetch(sql, project, level_ms, dimension, min(begins), max(begins), *values))


def _plan(project: str, since_ms: int, until_ms: int, max_level_ms: int) -> Work[ReadPlan]:
    """Return the data to read for a range, in the longest buckets that exist."""
    ((trimmed_ms, pruned_ms),) = (
        yield from fetch("SELECT trimmed_ms, pruned_ms FROM projects WHERE project = ?", project)
    ) or ((0, 0),)
    buckets: list[Bucket] = []
    gaps: list[tuple[int, int]] = []
    open_ranges = [(since_ms, until_ms)]
    # Quarters are always read: old times have no minutes.
    for level_ms in (each for each in reversed(LEVELS) if each <= max(max_level_ms, QUARTER_MS)):
        finer: list[tuple[int, int]] = []
        for from_ms, to_ms in open_ranges:
            for begin_ms, is_summed in (yield from _buckets(project, level_ms, from_ms, to_ms)):
                overlap = max(from_ms, begin_ms), min(to_ms, begin_ms + level_ms)
                is_whole = overlap == (begin_ms, begin_ms + level_ms)
                is_finest = level_ms == LEVELS[0] or (level_ms == LEVELS[1] and begin_ms < pruned_ms)
                if is_summed and ((is_whole and level_ms <= max_level_ms) or (is_finest and begin_ms < trimmed_ms)):
                    # The turns are deleted, and only the bucket is left: it counts where it begins.
                    buckets += [Bucket(begin_ms, level_ms)] if overlap[0] == begin_ms else []
                elif is_finest:
                    gaps.append(overlap)
                else:
                    finer.append(overlap)
        open_ranges = list(joined(finer))
    return ReadPlan(tuple(buckets), tuple(joined(sorted(gaps))))


def _buckets(project: str, level_ms: int, from_ms: int, until_ms: int) -> Work[list[tuple[int, bool]]]:
    """Return (from_ms, whether the bucket is summed up) of the buckets in which turns began."""
    sql = """
        SELECT from_ms, stamp FROM buckets
        WHERE project = ? AND level_ms = ? AND from_ms > ? AND from_ms < ? ORDER BY from_ms
    """
    rows = yield from fetch(sql, project, level_ms, from_ms - level_ms, until_ms)
    return [(begin_ms, stamp is None) for begin_ms, stamp in rows]


def turns_sql(where: str, more: str = "") -> str:
    """Return the SELECT for `figures_of_rows`, of the closed turns that match. The condition on the outcome prevents
    the use of an index: nearly all turns are closed."""
    return f"""
        SELECT t.started_at_ms, r.record, {_MIX_COLUMNS} FROM turns t JOIN records r ON r.number = t.number
        WHERE {where} AND coalesce(t.outcome, '') <> '' {more}
    """


def figures_of_rows(rows: Iterable[Row]) -> Iterator[tuple[int, Mix, Figures]]:
    """Yield (started_at_ms, mix, figures) of each turn; turns with a damaged record are left out."""
    for started_at_ms, record, *columns in rows:
        columns[6] = bool(columns[6])
        # The page of the turn shows an error; the figures of a year must not fail.
        with suppress(ValueError, zlib.error):
            yield started_at_ms, Mix(*columns), RecordFigures.read(zlib.decompress(record)).figures()


def sum_by_mix(turns: Iterable[tuple[Mix, Figures]]) -> dict[Mix, Figures]:
    """Return the sum of the figures of each mix."""
    mixes: dict[Mix, list[Figures]] = defaultdict(list)
    for mix, figures in turns:
        mixes[mix].append(figures)
    return {mix: sum_of(figures_of_part) for mix, figures_of_part in mixes.items()}


def figure_rows(mixes: Mapping[Mix, Figures], level_ms: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield the rows (dimension, name, figures) of a bucket: of all turns, of the mixes, and for `SPLIT_LEVELS` of each
    name of each dimension.

    Short buckets have hardly fewer mixes than turns: rows for names would cost more than they save.
    """
    if not mixes:
        return
    yield ALL, "", packed(sum_of(tuple(mixes.values())))
    yield MIX, "", packed({mix.name: figures for mix, figures in mixes.items()})
    parts: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for mix, figures in mixes.items():
        for part in dimensions_of(mix) if level_ms in SPLIT_LEVELS else ():
            parts[part].append(figures)
    for (dimension, name), figures_of_part in parts.items():
        yield dimension, name, packed(sum_of(figures_of_part))
