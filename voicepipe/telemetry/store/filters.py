"""Translate a filter of turns to SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from voicepipe.telemetry.rollups.dimensions import STAGES
from voicepipe.telemetry.store.port import SessionQuery, TurnFilter
from voicepipe.telemetry.store.statements import Work, any_of, fetch

PROJECTS: Final = "SELECT project, trimmed_ms, pruned_ms FROM projects"

_MAX_SESSIONS: Final = 2_000
"""Sessions whose turns are looked up one by one; where more match, a page is soon found among all turns."""


def projects(project: str | None) -> Work[list[str]]:
    """Return that project, or all there are."""
    if project is not None:
        return [clean(project)]
    return [name for name, *_ in (yield from fetch(PROJECTS))]


class Condition(NamedTuple):
    """A condition on `turns t`, and its values."""

    where: str
    values: list[object]
    is_by_session: bool
    """Whether it names sessions: a query of its own looks their turns up, whatever the other conditions are."""


def without_time_index(where: str) -> str:
    """Return the condition so that no database looks up its turns by their time: a plus before a column makes both
    ignore its index."""
    return where.replace("t.started_at_ms", "+t.started_at_ms")


def condition(project: str, query: TurnFilter) -> Work[Condition]:
    """Return the condition for a filter."""
    where, values, is_by_session = yield from _of_project(project, query.text)
    inside, inside_values = within(query)
    where, values = where + inside, [*values, *inside_values]
    for column, value in _plain(query):
        where += f" AND t.{column} = ?"
        values.append(value)
    if query.arm:
        where += " AND t.arm <> ''"  # so that the database uses the index of only these turns
    if query.user:
        where += " AND t.user_id <> ''"
    if query.model is not None:
        where += " AND ? IN (t.stt, t.llm, t.tts)"
        values.append(clean(query.model))
    if query.provider is not None:
        where += " AND (" + " OR ".join(f"substr(t.{stage}, 1, ?) = ?" for stage in STAGES) + ")"
        values += (len(query.provider) + 1, f"{clean(query.provider)}/") * len(STAGES)
    return Condition(where, values, is_by_session)


def _plain(query: TurnFilter) -> Iterator[tuple[str, object]]:
    columns = {"session": query.session, "agent": query.agent, "route": query.route, "language": query.language}
    columns |= {"outcome": query.outcome, "cause": query.cause, "user_id": query.user}
    columns["arm"] = None if query.arm is None else str(query.arm)
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


def _of_project(project: str, text: str | None) -> Work[Condition]:
    """Return the condition that turns are of the project, and of sessions whose id contains the text, if there is one.

    Named sessions are of the project: without a condition on the turns' own, no index of all its turns is used.
    """
    if text is None:
        return Condition("t.project = ?", [project], is_by_session=False)
    like = like_part(text)
    sql = f"SELECT t.session FROM sessions t WHERE t.project = ? AND {LIKE} LIMIT {_MAX_SESSIONS + 1}"
    found = [session for (session,) in (yield from fetch(sql, project, like))]
    if len(found) > _MAX_SESSIONS:
        return Condition(f"t.project = ? AND {LIKE}", [project, like], is_by_session=False)
    if not found:
        return Condition("1 = 0", [], is_by_session=False)
    numbers = f"SELECT s.number FROM turns s WHERE s.project = ? AND {any_of('s.session', len(found))}"
    return Condition(f"t.number IN ({numbers})", [project, *found], is_by_session=True)


LIKE: Final = "lower(t.session) LIKE ? ESCAPE '!'"
"""Condition that a session's id contains a text, for `turns t` or `sessions t`."""


def like_part(text: str) -> str:
    """Return the LIKE pattern for texts that contain this part."""
    return "%" + re.sub(r"([%_!])", r"!\1", clean(text).lower()) + "%"


def clean(text: str) -> str:
    """Return the text with the characters replaced that no database takes: NUL, and half a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
