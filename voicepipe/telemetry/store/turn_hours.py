"""Find the hours in which turns of a kind began, so that a list of rare turns need not scan all others.

A list by agent or outcome has an index. A list by provider or language scans the turns in time order, which is
quick for frequent ones. For rare ones the figures show which hours to scan.
"""

from __future__ import annotations

from typing import Final

from voicepipe.telemetry.rollups.buckets import HOUR_MS, joined
from voicepipe.telemetry.rollups.dimensions import filters_of
from voicepipe.telemetry.store.filters import clean
from voicepipe.telemetry.store.port import TurnQuery
from voicepipe.telemetry.store.statements import Work, fetch

_LOOKED_THROUGH: Final = ("route", "provider", "model", "language", "cause")
"""Facets without an index of turns."""


def candidate_ranges(project: str, query: TurnQuery) -> Work[list[tuple[int, int]] | None]:
    """Return (from_ms, until_ms) of all times in which turns may match, newest first; None where an index serves
    better."""
    names = {dimension: name for dimension, name in filters_of(query).items() if dimension in _LOOKED_THROUGH}
    if not names or query.session is not None or query.user is not None:
        return None
    hours: set[int] | None = None
    for dimension, name in names.items():
        sql = "SELECT from_ms FROM figures WHERE project = ? AND level_ms = ? AND dimension = ? AND name = ?"
        found = {from_ms for (from_ms,) in (yield from fetch(sql, project, HOUR_MS, dimension, clean(name)))}
        hours = found if hours is None else hours & found
    unknown = yield from fetch(
        "SELECT from_ms FROM buckets WHERE project = ? AND level_ms = ? AND stamp IS NOT NULL", project, HOUR_MS
    )
    spoken = yield from fetch(
        "SELECT DISTINCT started_at_ms - started_at_ms % ? FROM turns WHERE project = ? AND outcome IS NULL",
        *(HOUR_MS, project),
    )
    begins = sorted((hours or set()).union(from_ms for rows in (unknown, spoken) for (from_ms,) in rows))
    return list(joined((from_ms, from_ms + HOUR_MS) for from_ms in begins))[::-1]
