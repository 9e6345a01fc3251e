"""List sessions, from their stored turns."""

from __future__ import annotations

from collections.abc import Sequence

from voicepipe.telemetry.store.filters import LIKE, clean, like_part, projects, within
from voicepipe.telemetry.store.port import Cursor, SessionPage, SessionQuery, SessionSummary
from voicepipe.telemetry.store.statements import Row, Work, any_of, fetch


def page(project: str | None, query: SessionQuery) -> Work[SessionPage]:
    """Return the sessions that match, newest first, of one project or of all."""
    rows: list[Row] = []
    for each in (yield from projects(project)):
        rows += yield from _page(each, query)
    rows.sort(key=lambda row: (row[4], row[1]), reverse=True)
    newest = rows[: query.limit]
    sums = yield from _sums(newest)
    summaries = tuple(
        SessionSummary(row[1], row[0], *row[2:6], *sums.get((row[0], row[1]), _NOTHING)) for row in newest
    )
    last = Cursor(summaries[-1].started_at_ms, summaries[-1].session) if len(rows) > query.limit else None
    return SessionPage(summaries, last)


_NOTHING = (0, 0, 0, None, 0.0)


def _page(project: str, query: SessionQuery) -> Work[Sequence[Row]]:
    where, values = within(query)
    where, values = f"t.project = ?{where}", [project, *values]
    if query.agent is not None:
        where, values = f"{where} AND t.agent = ?", [*values, clean(query.agent)]
    if query.user is not None:
        where, values = f"{where} AND t.user_id = ?", [*values, clean(query.user)]
    if query.text is not None:
        where, values = f"{where} AND {LIKE}", [*values, like_part(query.text)]
    if query.before is not None:
        where, values = f"{where} AND (t.started_at_ms, t.session) < (?, ?)", [*values, *query.before]
    sql = f"""
        SELECT t.project, t.session, t.agent, t.user_id, t.started_at_ms, t.last_at_ms FROM sessions t
        WHERE {where} ORDER BY t.started_at_ms DESC, t.session DESC LIMIT ?
    """
    return (yield from fetch(sql, *values, query.limit + 1))


def _sums(rows: Sequence[Row]) -> Work[dict[tuple[str, str], Sequence[object]]]:
    """Return (project, session) -> turns, over, failed, slowest_ms, cost_usd."""
    sums: dict[tuple[str, str], Sequence[object]] = {}
    for project in {row[0] for row in rows}:
        sessions = [row[1] for row in rows if row[0] == project]
        sql = f"""
            SELECT session, count(*), sum(late), sum(CASE WHEN outcome = 'failed' THEN 1 ELSE 0 END),
                max(total_ms), sum(usd)
            FROM turns WHERE project = ? AND {any_of("session", len(sessions))} GROUP BY session
        """
        for session, *figures in (yield from fetch(sql, project, *sessions)):
            sums[project, session] = figures
    return sums


def store_summary(project: str, session: str, text: str) -> Work[bool]:
    """Store a session's summary; return whether the session has turns."""
    sql = "UPDATE sessions SET summary = ? WHERE project = ? AND session = ? RETURNING session"
    return bool((yield from fetch(sql, clean(text), clean(project), clean(session))))


def summary(project: str | None, session: str) -> Work[str]:
    """Return a session's summary, of one project or of any."""
    for each in (yield from projects(project)):
        sql = "SELECT summary FROM sessions WHERE project = ? AND session = ?"
        for (text,) in (yield from fetch(sql, each, clean(session))):
            return str(text)
    return ""
