"""Write and delete turns as rows."""

from __future__ import annotations

import secrets
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from voicepipe.telemetry.record_json import record_json
from voicepipe.telemetry.rollups.buckets import buckets_around
from voicepipe.telemetry.rollups.dimensions import STAGES
from voicepipe.telemetry.store.filters import PROJECTS, clean
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.store.statements import Row, Work, any_of, execute, fetch

_DEFLATED: Final = 6  # level of zlib: 20 microseconds for a record, a third of its size left
_AT_ONCE: Final = 500
"""Values in one IN: SQLite takes at least 999 (SQLITE_MAX_VARIABLE_NUMBER in old versions)."""

COLUMNS: Final = (
    *("project", "id", "started_at_ms", "session", "agent", "user_id", "language", "route", "arm"),
    *("cause", "outcome", "total_ms", "late", "stt", "llm", "tts", "usd"),
)
_REPLACED: Final = [column for column in COLUMNS if column not in ("project", "id", "started_at_ms")]

_STORE_TURN: Final = f"""
    INSERT INTO turns ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
    ON CONFLICT (project, id) DO UPDATE SET {", ".join(f"{column} = excluded.{column}" for column in _REPLACED)}
"""
_STORE_RECORD: Final = """
    INSERT INTO records (number, record) SELECT number, ? FROM turns WHERE project = ? AND id = ?
    ON CONFLICT (number) DO UPDATE SET record = excluded.record
"""
_STORE_SESSION: Final = """
    INSERT INTO sessions (project, session, agent, user_id, started_at_ms, last_at_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (project, session) DO UPDATE SET
        agent = excluded.agent, user_id = excluded.user_id,
        started_at_ms = CASE WHEN excluded.started_at_ms < sessions.started_at_ms
            THEN excluded.started_at_ms ELSE sessions.started_at_ms END,
        last_at_ms = CASE WHEN excluded.last_at_ms > sessions.last_at_ms
            THEN excluded.last_at_ms ELSE sessions.last_at_ms END
"""
_MARK: Final = """
    INSERT INTO buckets (project, level_ms, from_ms, stamp) VALUES (?, ?, ?, ?)
    ON CONFLICT (project, level_ms, from_ms) DO UPDATE SET stamp = excluded.stamp
"""


def store(turns: Sequence[StoredTurn]) -> Work[None]:
    """Write new turns and newer records of turns."""
    rows = [_row(turn) for turn in turns]
    records = [
        (deflated(record_json(turn.record, turn.agent)), row[0], row[1]) for turn, row in zip(turns, rows, strict=True)
    ]
    yield from execute(
        "INSERT INTO projects (project, trimmed_ms, pruned_ms) VALUES (?, 0, 0) ON CONFLICT (project) DO NOTHING",
        [(project,) for project in sorted({row[0] for row in rows})],
    )
    began = yield from _began(rows)
    yield from execute(_STORE_TURN, rows)
    yield from execute(_STORE_RECORD, records)
    yield from execute(_STORE_SESSION, _session_rows(rows, began))
    yield from mark((row[0], began[row[0], row[1]]) for row in rows)


def mark(instants: Iterable[tuple[str, int]]) -> Work[None]:
    """Mark the sums of these (project, instant) as outdated.

    Sums from before the oldest stored turn stay as they are: they could not be made again.
    """
    marked = set(instants)
    limits = {project: (trimmed, pruned) for project, trimmed, pruned in (yield from fetch(PROJECTS))}
    rows: set[tuple[str, int, int]] = set()
    for project, at_ms in marked:
        trimmed_ms, pruned_ms = limits.get(project, (0, 0))
        if at_ms >= trimmed_ms:
            buckets = buckets_around(at_ms)
            rows.update((project, each.level_ms, each.from_ms) for each in buckets[int(at_ms < pruned_ms) :])
    # In one order, so that two writers never deadlock. A new stamp each time shows whether a bucket changed while it
    # was being summed up.
    yield from execute(_MARK, [(*row, secrets.randbits(62)) for row in sorted(rows)])


def _began(rows: Sequence[Row]) -> Work[dict[tuple[str, str], int]]:
    """Return (project, id) -> when each turn began, for the turns of these rows that are stored already."""
    began: dict[tuple[str, str], int] = {}
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        began.setdefault((row[0], row[1]), row[2])
        ids[row[0]].append(row[1])
    for project, turn_ids in ids.items():
        for some in _chunks(turn_ids):
            sql = f"SELECT id, started_at_ms FROM turns WHERE project = ? AND {any_of('id', len(some))}"
            for id, started_at_ms in (yield from fetch(sql, project, *some)):
                began[project, id] = started_at_ms
    return began


def _session_rows(rows: Sequence[Row], began: dict[tuple[str, str], int]) -> list[tuple[object, ...]]:
    sessions: dict[tuple[str, str], tuple[str, str, int, int]] = {}
    for row in rows:
        key, at_ms = (row[0], row[3]), began[row[0], row[1]]
        _, _, first_ms, last_ms = sessions.get(key, ("", "", at_ms, at_ms))
        sessions[key] = (row[4], row[5], min(first_ms, at_ms), max(last_ms, at_ms))
    return [(*key, *sessions[key]) for key in sorted(sessions)]


def delete(project: str, column: Literal["session", "user_id"], value: str) -> Work[int]:
    """Delete the turns of one session or user, and mark their sums as outdated."""
    rows = yield from fetch(
        f"SELECT number, started_at_ms, session FROM turns WHERE project = ? AND {column} = ?", project, clean(value)
    )
    yield from delete_numbers([number for number, *_ in rows])
    yield from execute(f"DELETE FROM sessions WHERE project = ? AND {column} = ?", [(project, clean(value))])
    yield from mark((project, at_ms) for _, at_ms, _ in rows)
    return len(rows)


def delete_numbers(numbers: Sequence[int]) -> Work[None]:
    """Delete these turns, their records and their feedback; their sums stay."""
    yield from execute("DELETE FROM records WHERE number = ?", [(number,) for number in numbers])
    yield from execute("DELETE FROM feedback WHERE number = ?", [(number,) for number in numbers])
    yield from execute("DELETE FROM turns WHERE number = ?", [(number,) for number in numbers])


def deflated(record: bytes) -> bytes:
    """Return a record's JSON as it is stored."""
    return zlib.compress(record, _DEFLATED)


def _row(turn: StoredTurn) -> tuple[Any, ...]:
    record, served = turn.record, dict(turn.record.providers)
    return (
        *(clean(turn.project), clean(record.id), turn.started_at_ms, clean(record.session), clean(turn.agent)),
        *(clean(turn.user), clean(turn.language), clean(turn.route), clean(str(turn.arm))),
        *(record.cause, record.outcome, record.total_ms, int(record.total_verdict == "over")),
        *(clean(served.get(stage, "")) for stage in STAGES),
        record.cost.usd,
    )


def _chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
