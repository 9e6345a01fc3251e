"""Add up the figures of a range: of whole spans from their sums, and of single turns where there is no sum yet."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from voicepipe.telemetry.counted import Counted
from voicepipe.telemetry.facets import ALL, MIX, Mix, facets_of, read_mix, wanted_by
from voicepipe.telemetry.figures import Figures, Gist, packed, total_of, unpacked, unpacked_by_name, unpacked_gist
from voicepipe.telemetry.spans import DAY_MS, HOUR_MS, LEVELS, QUARTER_MS, Reading, Span, coarsest, joined
from voicepipe.telemetry.stats import Stats
from voicepipe.telemetry.store import StatsQuery
from voicepipe.telemetry.summary import stats_of
from voicepipe.telemetry.turn_conditions import condition, projects
from voicepipe.telemetry.work import Row, Work, asked

TURNS_MOST: Final = 10_000
"""Turns of one session or user that are counted, the newest first."""

PARTED: Final = (HOUR_MS, DAY_MS)
"""Levels whose spans have figures for each name of each facet too."""

_LAST_MS: Final = 2**53
"""Later than everything."""

_MIXED: Final = "t.agent, t.route, t.language, t.outcome, t.cause, t.arm, t.late, t.stt, t.llm, t.tts"


def stats(project: str | None, query: StatsQuery) -> Work[Stats]:
    """Return the figures of the turns that match."""
    total, series = _Total(query), _Series(query)
    sheets: tuple[_Sheet, ...] = (total, series) if query.step_ms is not None else (total,)
    partial = False
    for each in (yield from projects(project)):
        if query.session is not None or query.user is not None or query.text is not None:
            partial |= yield from _of_few(each, query, sheets)
        else:
            for sheet in sheets:
                yield from _of_range(each, query, sheet)
    return stats_of(total.figures, series=series.points, groups=total.groups, partial=partial)


class _Sheet:
    """Adds up figures as they are read."""

    top_ms = DAY_MS
    """The longest spans that can be used."""

    by: str | None = None

    def __init__(self, query: StatsQuery) -> None:
        self.wanted = wanted_by(query)

    def facet(self, level_ms: int) -> tuple[str, str]:
        """Return (facet, name) of the spans' figures that match the whole filter; groups aside."""
        if not self.wanted and (self.by is None or level_ms in PARTED):
            return ALL, ""
        if len(self.wanted) == 1 and self.by is None and level_ms in PARTED:
            ((facet, name),) = self.wanted.items()
            return facet, name
        return MIX, ""

    def add(self, facet: str, from_ms: int, data: bytes) -> None:
        """Count the figures of a span, as they are stored."""
        if facet == MIX:
            for name, figures in unpacked_by_name(data, self._is_wanted):
                self.add_mix(read_mix(name), from_ms, figures)
        else:
            self.add_all(from_ms, data)

    def _is_wanted(self, mix: str) -> bool:
        return not self.wanted or read_mix(mix).matches(self.wanted)

    def add_all(self, from_ms: int, data: bytes) -> None:
        """Count figures that match as they are."""
        raise NotImplementedError

    def add_mix(self, mix: Mix, from_ms: int, figures: Figures) -> None:
        """Count figures of one mix, which matches."""
        raise NotImplementedError


class _Total(_Sheet):
    """All turns together, and by group."""

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


class _Series(_Sheet):
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


def _of_few(project: str, query: StatsQuery, sheets: tuple[_Sheet, ...]) -> Work[bool]:
    """Count turn by turn, for one session or user with few turns. Return whether there were more than are counted."""
    where, values = yield from condition(project, query)
    rows = yield from asked(turns_sql(where, f"ORDER BY t.started_at_ms DESC LIMIT {TURNS_MOST + 1}"), *values)
    for from_ms, mix, figures in turns_in(rows[:TURNS_MOST]):
        for sheet in sheets:
            sheet.add_mix(mix, from_ms, figures)
    return len(rows) > TURNS_MOST


def _of_range(project: str, query: StatsQuery, sheet: _Sheet) -> Work[None]:
    since_ms, until_ms = query.since_ms or 0, _LAST_MS if query.until_ms is None else query.until_ms
    reading = yield from _reading(project, since_ms, until_ms, sheet.top_ms)
    by_level: dict[int, set[int]] = defaultdict(set)
    for span in reading.spans:
        by_level[span.level_ms].add(span.from_ms)
    for level_ms, begins in by_level.items():
        facet, name = sheet.facet(level_ms)
        for from_ms, _, data in (yield from _figures(project, level_ms, facet, name, begins)):
            if from_ms in begins:
                sheet.add(facet, from_ms, data)
        if isinstance(sheet, _Total) and sheet.by is not None and facet == ALL:
            for from_ms, its, data in (yield from _figures(project, level_ms, sheet.by, None, begins)):
                if from_ms in begins:
                    sheet.add_group(its, data)
    for since_ms, until_ms in reading.gaps:
        sql = turns_sql("t.project = ? AND t.started_at_ms >= ? AND t.started_at_ms < ?")
        for from_ms, mix, figures in turns_in((yield from asked(sql, project, since_ms, until_ms))):
            if mix.matches(sheet.wanted):
                sheet.add_mix(mix, from_ms, figures)


def _figures(project: str, level_ms: int, facet: str, name: str | None, begins: set[int]) -> Work[Iterable[Row]]:
    named, values = ("", ()) if name is None else (" AND name = ?", (name,))
    sql = f"""
        SELECT from_ms, name, figures FROM figures
        WHERE project = ? AND level_ms = ? AND facet = ? AND from_ms >= ? AND from_ms <= ?{named}
    """
    return (yield from asked(sql, project, level_ms, facet, min(begins), max(begins), *values))


def _reading(project: str, since_ms: int, until_ms: int, top_ms: int) -> Work[Reading]:
    """Return what has to be read for a range, in the longest spans that there are."""
    ((trimmed_ms, pruned_ms),) = (
        yield from asked("SELECT trimmed_ms, pruned_ms FROM projects WHERE project = ?", project)
    ) or ((0, 0),)
    spans: list[Span] = []
    gaps: list[tuple[int, int]] = []
    open_ranges = [(since_ms, until_ms)]
    # Quarters are read in any case: of old times there are no minutes.
    for level_ms in (each for each in reversed(LEVELS) if each <= max(top_ms, QUARTER_MS)):
        finer: list[tuple[int, int]] = []
        for from_ms, to_ms in open_ranges:
            for begin_ms, clean in (yield from _spans(project, level_ms, from_ms, to_ms)):
                inside = max(from_ms, begin_ms), min(to_ms, begin_ms + level_ms)
                whole = inside == (begin_ms, begin_ms + level_ms)
                lowest = level_ms == LEVELS[0] or (level_ms == LEVELS[1] and begin_ms < pruned_ms)
                if clean and ((whole and level_ms <= top_ms) or (lowest and begin_ms < trimmed_ms)):
                    # Of deleted turns the span is all there is: it counts where it begins.
                    spans += [Span(begin_ms, level_ms)] if inside[0] == begin_ms else []
                elif lowest:
                    gaps.append(inside)
                else:
                    finer.append(inside)
        open_ranges = list(joined(finer))
    return Reading(tuple(spans), tuple(joined(sorted(gaps))))


def _spans(project: str, level_ms: int, from_ms: int, until_ms: int) -> Work[list[tuple[int, bool]]]:
    """Return (from_ms, whether it is summed up) of the spans in which turns began."""
    sql = """
        SELECT from_ms, stamp FROM spans
        WHERE project = ? AND level_ms = ? AND from_ms > ? AND from_ms < ? ORDER BY from_ms
    """
    rows = yield from asked(sql, project, level_ms, from_ms - level_ms, until_ms)
    return [(begin_ms, stamp is None) for begin_ms, stamp in rows]


def turns_sql(where: str, more: str = "") -> str:
    """Return the SELECT for `turns_in`, of the closed turns that match."""
    return f"""
        SELECT t.started_at_ms, r.record, {_MIXED} FROM turns t JOIN records r ON r.number = t.number
        WHERE {where} AND t.outcome IS NOT NULL {more}
    """


def turns_in(rows: Iterable[Row]) -> Iterator[tuple[int, Mix, Figures]]:
    """Return (started_at_ms, mix, figures) of single turns; a turn whose record is damaged counts as none."""
    for started_at_ms, record, *mixed in rows:
        mixed[6] = bool(mixed[6])
        # A page that holds it fails with an error; the figures of a year must not.
        with suppress(ValueError, zlib.error):
            yield started_at_ms, Mix(*mixed), Counted.read(zlib.decompress(record)).figures()


def summed(turns: Iterable[tuple[Mix, Figures]]) -> dict[Mix, Figures]:
    """Return the figures of each mix."""
    mixes: dict[Mix, list[Figures]] = defaultdict(list)
    for mix, figures in turns:
        mixes[mix].append(figures)
    return {mix: total_of(several) for mix, several in mixes.items()}


def stored(mixes: Mapping[Mix, Figures], level_ms: int) -> Iterator[tuple[str, str, bytes]]:
    """Return (facet, name, figures) of a span: of all turns, of the mixes, and in long spans of each name of each
    facet.

    In short spans there are hardly fewer mixes than turns, and names cost more than they save.
    """
    if not mixes:
        return
    yield ALL, "", packed(total_of(tuple(mixes.values())))
    yield MIX, "", packed({mix.name: figures for mix, figures in mixes.items()})
    parts: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for mix, figures in mixes.items():
        for part in facets_of(mix) if level_ms in PARTED else ():
            parts[part].append(figures)
    for (facet, name), several in parts.items():
        yield facet, name, packed(total_of(several))
