"""Turns as rows: how they are written, found again, and deleted."""

from __future__ import annotations

import re
import secrets
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from voicepipe.telemetry.facets import STAGES
from voicepipe.telemetry.record_json import record_from_json, record_json
from voicepipe.telemetry.spans import spans_around
from voicepipe.telemetry.store import (
    KeptTurn,
    SessionQuery,
    TurnFilter,
    TurnPage,
    TurnQuery,
    cursor,
    read_cursor,
)
from voicepipe.telemetry.work import Row, Work, any_of, asked, told

_DEFLATED: Final = 6  # level of zlib: 20 microseconds for a record, a third of its size left
_AT_ONCE: Final = 500
"""Values in one IN: SQLite takes at least 999 (SQLITE_MAX_VARIABLE_NUMBER in old versions)."""

_FEW: Final = 7_000
"""Turns that are sorted rather than looked up in the order of their latency."""

_SESSIONS_MOST: Final = 200
"""Sessions of which turns are looked up one by one; where more match, turns are looked through instead."""

COLUMNS: Final = (
    *("project", "id", "started_at_ms", "session", "agent", "caller", "language", "route", "arm"),
    *("cause", "outcome", "total_ms", "late", "stt", "llm", "tts", "usd"),
)
_REPLACED: Final = [column for column in COLUMNS if column not in ("project", "id", "started_at_ms")]

_KEEP: Final = f"""
    INSERT INTO turns ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
    ON CONFLICT (project, id) DO UPDATE SET {", ".join(f"{column} = excluded.{column}" for column in _REPLACED)}
"""
_KEEP_RECORD: Final = """
    INSERT INTO records (number, record) SELECT number, ? FROM turns WHERE project = ? AND id = ?
    ON CONFLICT (number) DO UPDATE SET record = excluded.record
"""
_KEEP_SESSION: Final = """
    INSERT INTO sessions (project, session, agent, caller, started_at_ms, last_at_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (project, session) DO UPDATE SET
        agent = excluded.agent, caller = excluded.caller,
        started_at_ms = CASE WHEN excluded.started_at_ms < sessions.started_at_ms
            THEN excluded.started_at_ms ELSE sessions.started_at_ms END,
        last_at_ms = CASE WHEN excluded.last_at_ms > sessions.last_at_ms
            THEN excluded.last_at_ms ELSE sessions.last_at_ms END
"""
_MARK: Final = """
    INSERT INTO spans (project, level_ms, from_ms, stamp) VALUES (?, ?, ?, ?)
    ON CONFLICT (project, level_ms, from_ms) DO UPDATE SET stamp = excluded.stamp
"""
_SELECT: Final = """
    SELECT r.record, t.project, t.agent, t.started_at_ms, t.caller, t.language, t.route, t.arm, t.id, t.total_ms
    FROM turns t JOIN records r ON r.number = t.number
"""


def keep(turns: Sequence[KeptTurn]) -> Work[None]:
    """Write turns, new ones and those that replace others."""
    rows = [_row(turn) for turn in turns]
    records = [(deflated(record_json(turn.record)), row[0], row[1]) for turn, row in zip(turns, rows, strict=True)]
    yield from told(
        "INSERT INTO projects (project, trimmed_ms, pruned_ms) VALUES (?, 0, 0) ON CONFLICT (project) DO NOTHING",
        [(project,) for project in sorted({row[0] for row in rows})],
    )
    began = yield from _began(rows)
    yield from told(_KEEP, rows)
    yield from told(_KEEP_RECORD, records)
    yield from told(_KEEP_SESSION, _session_rows(rows, began))
    yield from mark((row[0], began[row[0], row[1]]) for row in rows)


def mark(instants: Iterable[tuple[str, int]]) -> Work[None]:
    """Note that what is summed up of these (project, instant) is no longer true.

    What is before the turns that are still kept stays as it is: it could not be summed up again.
    """
    wanted = set(instants)
    limits = {project: (trimmed, pruned) for project, trimmed, pruned in (yield from asked(_PROJECTS))}
    rows: set[tuple[str, int, int]] = set()
    for project, at_ms in wanted:
        trimmed_ms, pruned_ms = limits.get(project, (0, 0))
        if at_ms >= trimmed_ms:
            spans = spans_around(at_ms)
            rows.update((project, each.level_ms, each.from_ms) for each in spans[int(at_ms < pruned_ms) :])
    # In one order, so that two writers never wait for one another in a circle. A new stamp each time tells whoever
    # sums up a span whether it changed meanwhile.
    yield from told(_MARK, [(*row, secrets.randbits(62)) for row in sorted(rows)])


_PROJECTS: Final = "SELECT project, trimmed_ms, pruned_ms FROM projects"


def _began(rows: Sequence[Row]) -> Work[dict[tuple[str, str], int]]:
    """(project, id) -> when each turn began, where it is kept already by what is kept."""
    began: dict[tuple[str, str], int] = {}
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        began.setdefault((row[0], row[1]), row[2])
        ids[row[0]].append(row[1])
    for project, its in ids.items():
        for some in _chunks(its):
            sql = f"SELECT id, started_at_ms FROM turns WHERE project = ? AND {any_of('id', len(some))}"
            for id, started_at_ms in (yield from asked(sql, project, *some)):
                began[project, id] = started_at_ms
    return began


def _session_rows(rows: Sequence[Row], began: dict[tuple[str, str], int]) -> list[tuple[object, ...]]:
    sessions: dict[tuple[str, str], tuple[str, str, int, int]] = {}
    for row in rows:
        key, at_ms = (row[0], row[3]), began[row[0], row[1]]
        _, _, first_ms, last_ms = sessions.get(key, ("", "", at_ms, at_ms))
        sessions[key] = (row[4], row[5], min(first_ms, at_ms), max(last_ms, at_ms))
    return [(*key, *sessions[key]) for key in sorted(sessions)]


def get(id: str, project: str | None) -> Work[KeptTurn | None]:
    """The turn of that id; of any project's the newest, if none is named."""
    found: list[KeptTurn] = []
    for each in (yield from projects(project)):
        rows = yield from asked(f"{_SELECT} WHERE t.project = ? AND t.id = ?", each, clean(id))
        found += map(turn_of, rows)
    return max(found, key=lambda turn: turn.started_at_ms, default=None)


def page(project: str | None, query: TurnQuery) -> Work[TurnPage]:
    """The turns that match, of one project or of all."""
    rows: list[Row] = []
    for each in (yield from projects(project)):
        rows += yield from _page(each, query)
    newest = query.order == "newest"
    rows.sort(key=lambda row: (row[3] if newest else row[9], row[8]), reverse=True)
    turns = tuple(turn_of(row) for row in rows[: query.limit])
    return TurnPage(turns, cursor(turns[-1], query.order) if len(rows) > query.limit else None)


def _page(project: str, query: TurnQuery) -> Work[Sequence[Row]]:
    where, values = yield from condition(project, query)
    order = "t.started_at_ms"
    if query.order == "slowest":
        order = "+t.total_ms" if (yield from _are_few(project, query)) else "t.total_ms"
        where += " AND t.total_ms IS NOT NULL"
    if query.before is not None:
        where += f" AND ({order}, t.id) < (?, ?)"
        values += read_cursor(query.before)
    # One more than asked for: it tells whether there is a next page. Which turns, is found in narrow rows, before any
    # record is read.
    found = f"SELECT t.number FROM turns t WHERE {where} ORDER BY {order} DESC, t.id DESC LIMIT ?"
    sql = f"{_SELECT} WHERE t.number IN ({found}) ORDER BY {order} DESC, t.id DESC"
    return (yield from asked(sql, *values, query.limit + 1))


def _are_few(project: str, query: TurnFilter) -> Work[bool]:
    """Whether sorting all that match is quicker than to go through the project's slowest turns until some match.

    A plus before the column is how both databases are told not to take the index of it.
    """
    if query.session is not None or query.user is not None:
        return True
    if query.since_ms is None and query.until_ms is None:
        return False
    where, values = within(query)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM turns t WHERE t.project = ?{where} LIMIT {_FEW + 1}) c"
    ((count,),) = yield from asked(sql, project, *values)
    return bool(count <= _FEW)


def condition(project: str, query: TurnFilter) -> Work[tuple[str, list[object]]]:
    """What of `turns t` matches: the condition, and its values."""
    where, values = within(query)
    where, values = f"t.project = ?{where}", [project, *values]
    for column, wanted in _plain(query):
        where += f" AND t.{column} = ?"
        values.append(wanted)
    if query.arm:
        where += " AND t.arm <> ''"  # tells the database that the index will do which has only these
    if query.user:
        where += " AND t.caller <> ''"
    if query.model is not None:
        where += " AND ? IN (t.stt, t.llm, t.tts)"
        values.append(clean(query.model))
    if query.provider is not None:
        where += " AND (" + " OR ".join(f"substr(t.{stage}, 1, ?) = ?" for stage in STAGES) + ")"
        values += (len(query.provider) + 1, f"{clean(query.provider)}/") * len(STAGES)
    if query.text is not None:
        more, its = yield from _text(project, query.text)
        where, values = f"{where} AND {more}", [*values, *its]
    return where, values


def _plain(query: TurnFilter) -> Iterator[tuple[str, object]]:
    columns = {"session": query.session, "agent": query.agent, "route": query.route, "language": query.language}
    columns |= {"outcome": query.outcome, "cause": query.cause, "arm": query.arm, "caller": query.user}
    yield from ((column, clean(value)) for column, value in columns.items() if value is not None)
    if query.over is not None:
        yield "late", int(query.over)


def within(query: TurnFilter | SessionQuery) -> tuple[str, list[object]]:
    where, values = "", list[object]()
    if query.since_ms is not None:
        where, values = " AND t.started_at_ms >= ?", [query.since_ms]
    if query.until_ms is not None:
        where, values = f"{where} AND t.started_at_ms < ?", [*values, query.until_ms]
    return where, values


def _text(project: str, text: str) -> Work[tuple[str, list[object]]]:
    like = like_part(text)
    sql = f"SELECT t.session FROM sessions t WHERE t.project = ? AND {LIKE} LIMIT {_SESSIONS_MOST + 1}"
    found = [session for (session,) in (yield from asked(sql, project, like))]
    if len(found) > _SESSIONS_MOST:
        return LIKE, [like]
    return (any_of("t.session", len(found)), list(found)) if found else ("1 = 0", [])


LIKE: Final = "lower(t.session) LIKE ? ESCAPE '!'"
"""Of `turns t` or `sessions t`."""


def like_part(text: str) -> str:
    """The pattern of all that has this part."""
    return "%" + re.sub(r"([%_!])", r"!\1", clean(text).lower()) + "%"


def delete(project: str, column: Literal["session", "caller"], value: str) -> Work[int]:
    """Delete the turns of one session or caller, and mark what was summed up of them."""
    rows = yield from asked(
        f"SELECT number, started_at_ms, session FROM turns WHERE project = ? AND {column} = ?", project, clean(value)
    )
    yield from forget([number for number, *_ in rows])
    yield from told(f"DELETE FROM sessions WHERE project = ? AND {column} = ?", [(project, clean(value))])
    yield from mark((project, at_ms) for _, at_ms, _ in rows)
    return len(rows)


def forget(numbers: Sequence[int]) -> Work[None]:
    """Delete these turns and their records; what was summed up of them stays."""
    yield from told("DELETE FROM records WHERE number = ?", [(number,) for number in numbers])
    yield from told("DELETE FROM turns WHERE number = ?", [(number,) for number in numbers])


def turn_of(row: Row) -> KeptTurn:
    """The turn of a row that `_SELECT` gave."""
    record, project, agent, started_at_ms, caller, language, route, arm = row[:8]
    return KeptTurn(
        record_from_json(zlib.decompress(record)),
        project,
        agent,
        started_at_ms,
        user=caller,
        language=language,
        route=route,
        arm=arm,
    )


def deflated(record: bytes) -> bytes:
    """A record's JSON as it is kept."""
    return zlib.compress(record, _DEFLATED)


def _row(turn: KeptTurn) -> tuple[Any, ...]:
    record, served = turn.record, dict(turn.record.providers)
    return (
        *(clean(turn.project), clean(record.id), turn.started_at_ms, clean(record.session), clean(turn.agent)),
        *(clean(turn.user), clean(turn.language), clean(turn.route), clean(turn.arm), record.cause, record.outcome),
        *(record.total_ms, int(record.total_verdict == "over")),
        *(clean(served.get(stage, "")) for stage in STAGES),
        record.cost.usd,
    )


def clean(text: str) -> str:
    """Without what no database takes: NUL and half a surrogate pair are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def projects(project: str | None) -> Work[list[str]]:
    """That one, or all there are."""
    if project is not None:
        return [clean(project)]
    return [name for name, *_ in (yield from asked(_PROJECTS))]
