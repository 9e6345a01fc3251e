"""Store how good the answers of turns were, and read turns by the arms of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Final

from voicepipe.telemetry.rollups.arms import ArmTurn
from voicepipe.telemetry.store.filters import clean, condition, projects
from voicepipe.telemetry.store.port import TurnFilter
from voicepipe.telemetry.store.statements import Row, Work, any_of, execute, fetch
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace

MAX_TURNS: Final = 20_000
"""The newest turns that are compared; more would not change an interval, and take long to read."""

_AT_ONCE: Final = 500
"""Turns whose scores one statement reads: SQLite takes 999 values in older versions."""

_STORE: Final = """
    INSERT INTO feedback (number, source, score, at_ms) VALUES (?, ?, ?, ?)
    ON CONFLICT (number, source) DO UPDATE SET score = excluded.score, at_ms = excluded.at_ms
"""


def store(project: str | None, id: str, source: str, score: float, at_ms: int) -> Work[bool]:
    """Store a score of a turn's answer, in place of an earlier one of that source; return whether there is the turn."""
    for each in (yield from projects(project)):
        for (number,) in (yield from fetch("SELECT number FROM turns WHERE project = ? AND id = ?", each, clean(id))):
            yield from execute(_STORE, [(number, clean(source), score, at_ms)])
            return True
    return False


def by_arm(project: str | None, query: TurnFilter) -> Work[tuple[ArmTurn, ...]]:
    """Return the newest turns that match, with their arms and scores; newest first, at most `MAX_TURNS` in all."""
    turns: list[Row] = []
    for each in (yield from projects(project)):
        if len(turns) == MAX_TURNS:  # an older one has no room
            query = replace(query, since_ms=turns[-1][0])
        where, values, _ = yield from condition(each, query)
        columns = "t.started_at_ms, t.id, t.number, t.arm, t.total_ms, t.usd, t.outcome"
        newest = f"SELECT {columns} FROM turns t WHERE {where} ORDER BY t.started_at_ms DESC, t.id DESC LIMIT ?"
        found = yield from fetch(newest, *values, MAX_TURNS)
        turns = nlargest(MAX_TURNS, [*turns, *found], key=lambda row: (row[0], row[1]))
    scores = yield from _scores([row[2] for row in turns])
    return tuple(
        ArmTurn(Arm.read(arm), total_ms, usd, outcome == "failed", scores.get(number, {}))
        for _, _, number, arm, total_ms, usd, outcome in turns
    )


def _scores(numbers: Sequence[int]) -> Work[dict[int, dict[str, float]]]:
    """Return the scores of these turns by source."""
    scores: dict[int, dict[str, float]] = {}
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        sql = f"SELECT number, source, score FROM feedback WHERE {any_of('number', len(some))}"
        for number, source, score in (yield from fetch(sql, *some)):
            scores.setdefault(number, {})[source] = score
    return scores
