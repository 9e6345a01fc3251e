"""Find one turn, or a page of the turns that match."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from voicepipe.telemetry.record_json import record_from_json
from voicepipe.telemetry.rollups.buckets import HOUR_MS
from voicepipe.telemetry.store import turn_hours
from voicepipe.telemetry.store.filters import clean, condition, projects, within, without_time_index
from voicepipe.telemetry.store.port import (
    MAX_LIMIT,
    MAX_SEARCHED,
    Cursor,
    StoredTurn,
    TurnFilter,
    TurnOrder,
    TurnPage,
    TurnQuery,
)
from voicepipe.telemetry.store.statements import Row, Work, fetch
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace

_FEW_HOURS_MS: Final = 24 * HOUR_MS
"""Hours whose turns are scanned for the slowest of a kind, rather than all turns in the order of latency."""

_FEW: Final = 7_000
"""Turns that are sorted rather than looked up in the order of their latency."""

_SELECT: Final = """
    SELECT r.record, t.project, t.agent, t.started_at_ms, t.user_id, t.language, t.route, t.arm, t.id, t.total_ms
    FROM turns t JOIN records r ON r.number = t.number
"""


def get(id: str, project: str | None) -> Work[StoredTurn | None]:
    """Return the turn of that id; without a project, the newest of any project."""
    found: list[StoredTurn] = []
    for each in (yield from projects(project)):
        rows = yield from fetch(f"{_SELECT} WHERE t.project = ? AND t.id = ?", each, clean(id))
        found += map(turn_of, rows)
    return max(found, key=lambda turn: turn.started_at_ms, default=None)


def page(project: str | None, query: TurnQuery) -> Work[TurnPage]:
    """Return the turns that match, of one project or of all."""
    if query.words is not None:
        return (yield from _with_words(project, query, query.words))
    rows = yield from _rows(project, query)
    turns = tuple(turn_of(row) for row in rows[: query.limit])
    return TurnPage(turns, _cursor(turns[-1], query.order) if len(rows) > query.limit else None)


def _with_words(project: str | None, query: TurnQuery, words: str) -> Work[TurnPage]:
    """Return the turns of up to `MAX_SEARCHED` in which this was said."""
    found: list[StoredTurn] = []
    part = replace(query, words=None, limit=MAX_LIMIT)
    for _ in range(MAX_SEARCHED // MAX_LIMIT):
        rows = yield from _rows(project, part)
        looked_at = rows[:MAX_LIMIT]
        for i, row in enumerate(looked_at):
            if (turn := _turn_with(words, row)) is not None:
                found.append(turn)
                if len(found) == query.limit:
                    is_last = i + 1 == len(rows)
                    return TurnPage(tuple(found), None if is_last else _cursor(turn, query.order))
        if len(rows) <= MAX_LIMIT:
            return TurnPage(tuple(found), None)
        part = replace(part, before=_cursor(turn_of(looked_at[-1]), query.order))
    return TurnPage(tuple(found), part.before)


def _turn_with(words: str, row: Row) -> StoredTurn | None:
    """Return the row's turn if these words were said in it. Most rows are left out before they are decoded."""
    searched = clean(words).lower()
    written = msgspec.json.encode(searched)[1:-1].decode()
    if written not in zlib.decompress(row[0]).decode().lower():
        return None
    turn = turn_of(row)
    texts = (turn.record.user_text, turn.record.agent_text, turn.record.filler)
    return turn if any(searched in text.lower() for text in texts) else None


def _rows(project: str | None, query: TurnQuery) -> Work[list[Row]]:
    """Return the rows of a page, in order, and one more of each project if there is a next page."""
    rows: list[Row] = []
    for each in (yield from projects(project)):
        rows += yield from _page(each, query)
    newest = query.order == "newest"
    rows.sort(key=lambda row: (row[3] if newest else row[9], row[8]), reverse=True)
    return rows


def _page(project: str, query: TurnQuery) -> Work[Sequence[Row]]:
    where, values, is_by_session = yield from condition(project, query)
    if is_by_session:
        # The turns of named sessions are few: they are looked up by session, and sorted.
        measured = " AND t.total_ms IS NOT NULL" if query.order == "slowest" else ""
        order = "+t.total_ms" if measured else "+t.started_at_ms"
        return (yield from _in_order(without_time_index(where) + measured, values, order, query, query.limit + 1))
    ranges = yield from turn_hours.candidate_ranges(project, query)
    if query.order == "slowest":
        where += " AND t.total_ms IS NOT NULL"
        if ranges is not None and sum(until_ms - from_ms for from_ms, until_ms in ranges) <= _FEW_HOURS_MS:
            return (yield from _of_ranges(ranges, where, values, "+t.total_ms", query))
        if (yield from _are_few(project, query)):
            return (yield from _in_order(where, values, "+t.total_ms", query, query.limit + 1))
        by_latency = without_time_index(where)
        return (yield from _in_order(by_latency, values, "t.total_ms", query, query.limit + 1))
    if ranges is None:
        return (yield from _in_order(where, values, "t.started_at_ms", query, query.limit + 1))
    return (yield from _of_ranges(ranges, where, values, "t.started_at_ms", query))


def _of_ranges(
    ranges: Sequence[tuple[int, int]], where: str, values: Sequence[object], order: str, query: TurnQuery
) -> Work[Sequence[Row]]:
    """Return the first rows in this order that a page needs: of all ranges, or of the newest where that is the
    order."""
    rows: list[Row] = []
    inside = f"{where} AND t.started_at_ms >= ? AND t.started_at_ms < ?"
    for range_ in ranges:
        rows += yield from _in_order(inside, [*values, *range_], order, query, query.limit + 1)
        if len(rows) > query.limit and query.order == "newest":
            break
    return rows


def _in_order(where: str, values: Sequence[object], order: str, query: TurnQuery, limit: int) -> Work[Sequence[Row]]:
    """Return one row more than a page holds: it shows whether there is a next page."""
    if query.before is not None:
        where, values = f"{where} AND ({order}, t.id) < (?, ?)", [*values, *query.before]
    # The turns are found in narrow rows, before any record is read.
    found = f"SELECT t.number FROM turns t WHERE {where} ORDER BY {order} DESC, t.id DESC LIMIT ?"
    sql = f"{_SELECT} WHERE t.number IN ({found}) ORDER BY {order} DESC, t.id DESC"
    return (yield from fetch(sql, *values, limit))


def _are_few(project: str, query: TurnFilter) -> Work[bool]:
    """Return whether sorting all matches is quicker than scanning the project's slowest turns until some match.

    A plus before a column makes both databases ignore its index.
    """
    if query.session is not None or query.user is not None:
        return True
    if query.since_ms is None and query.until_ms is None:
        return False
    where, values = within(query)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM turns t WHERE t.project = ?{where} LIMIT {_FEW + 1}) c"
    ((count,),) = yield from fetch(sql, project, *values)
    return bool(count <= _FEW)


def _cursor(turn: StoredTurn, order: TurnOrder) -> Cursor:
    """Return the position of a page that ends with this turn."""
    if order == "newest":
        return Cursor(turn.started_at_ms, turn.record.id)
    return Cursor(turn.record.total_ms or 0, turn.record.id)  # a turn without one is on no page by latency


def turn_of(row: Row) -> StoredTurn:
    """Return the turn of a row that `_SELECT` gave."""
    record, project, agent, started_at_ms, user_id, language, route, arm = row[:8]
    return StoredTurn(
        record_from_json(zlib.decompress(record)),
        project,
        agent,
        started_at_ms,
        user=user_id,
        language=language,
        route=route,
        arm=Arm.read(arm),
    )
