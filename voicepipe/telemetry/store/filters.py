"""Translate a filter of turns to SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from voicepipe.telemetry.rollups.dimensions import STAGES
from voicepipe.telemetry.store.port import SessionQuery, TurnFilter
from voicepipe.telemetry.store.statements import Work, any_of, fetch

PROJECTS: Final = "SELECT project, trimmed_ms, pruned_ms FROM projects"

_SESSIONS_MOST: Final = 2_000
"""Sessions whose turns are looked up one by one; where more match, a page is soon found among all turns."""


def projects(project: str | None) -> Work[list[str]]:
    """Return that project, or all there are."""
    if project is not None:
        return [clean(project)]
    return [name for name, *_ in (yield from fetch(PROJECTS))]


def condition(project: str, query: TurnFilter) -> Work[tuple[str, list[object]]]:
    """Return the condition on `turns t` for a filter, and its values."""
    where, values = within(query)
    where, values = f"t.project = ?{where}", [project, *values]
    for column, value in _plain(query):
        where += f" AND t.{column} = ?"
        values.append(value)
    if query.arm:
        where += " AND t.arm <> ''"  # lets the database use the index of only these turns
    if query.user:
        where += " AND t.user_id <> ''"
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
    columns |= {"outcome": query.outcome, "cause": query.cause, "arm": query.arm, "user_id": query.user}
    yield from ((column, clean(value)) for column, value in columns.items() if value is not None)
    if query.over is not None:
        yield "late", int(query.over)


def within(query: TurnFilter | SessionQuery) -> tuple[str, list[object]]:
    """Return the condition on `turns t` or `sessions t` for the time range of a query."""
    where, values = "", list[object]()
    if query.since_ms is not None:
        where, values = " AND t.started_at_ms >= ?", [query.since_ms]
    if query.until_ms is not None:
        where, values = f"{where} AND t.started_at_ms < ?", [*values, query.until_ms]
    return where, values


def _text(project: str, text: str) -> Work[tuple[str, list[object]]]:
    like = like_part(text)
    sql = f"SELECT t.session FROM sessions t WHERE t.project = ? AND {LIKE} LIMIT {_SESSIONS_MOST + 1}"
    found = [session for (session,) in (yield from fetch(sql, project, like))]
    if len(found) > _SESSIONS_MOST:
        return LIKE, [like]
    return (any_of("t.session", len(found)), list(found)) if found else ("1 = 0", [])


LIKE: Final = "lower(t.session) LIKE ? ESCAPE '!'"
"""Condition that a session's id contains a text, for `turns t` or `sessions t`."""


def like_part(text: str) -> str:
    """Return the LIKE pattern for texts that contain this part."""
    return "%" + re.sub(r"([%_!])", r"!\1", clean(text).lower()) + "%"


def clean(text: str) -> str:
    """Return the text with what no database takes replaced: NUL and half a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
