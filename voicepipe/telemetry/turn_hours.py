"""Find the hours in which turns of a kind began, so that a list of rare turns need not scan all others.

A list by agent or outcome has an index. A list by provider or language, say, scans the turns in time order, which is
quick for frequent ones. For rare ones the figures show which hours to scan.
"""

from __future__ import annotations

from typing import Final

from voicepipe.telemetry.facets import wanted_by
from voicepipe.telemetry.spans import HOUR_MS, joined
from voicepipe.telemetry.store import TurnQuery
from voicepipe.telemetry.turn_conditions import clean
from voicepipe.telemetry.work import Work, asked

_LOOKED_THROUGH: Final = ("route", "provider", "model", "language", "cause")
"""Facets without an index of turns."""


def worthwhile(project: str, query: TurnQuery) -> Work[list[tuple[int, int]] | None]:
    """Return (from_ms, until_ms) of all times in which turns may match, newest first; None where an index serves
    better."""
    names = {facet: name for facet, name in wanted_by(query).items() if facet in _LOOKED_THROUGH}
    if not names or query.session is not None or query.user is not None:
        return None
    hours: set[int] | None = None
    for facet, name in names.items():
        sql = "SELECT from_ms FROM figures WHERE project = ? AND level_ms = ? AND facet = ? AND name = ?"
        found = {from_ms for (from_ms,) in (yield from asked(sql, project, HOUR_MS, facet, clean(name)))}
        hours = found if hours is None else hours & found
    unknown = yield from asked(
        "SELECT from_ms FROM spans WHERE project = ? AND level_ms = ? AND stamp IS NOT NULL", project, HOUR_MS
    )
    spoken = yield from asked(
        "SELECT DISTINCT started_at_ms - started_at_ms % ? FROM turns WHERE project = ? AND outcome IS NULL",
        *(HOUR_MS, project),
    )
    begins = sorted((hours or set()).union(from_ms for rows in (unknown, spoken) for (from_ms,) in rows))
    return list(joined((from_ms, from_ms + HOUR_MS) for from_ms in begins))[::-1]
