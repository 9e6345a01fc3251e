"""Work on a database, apart from the database: generators that ask SQL and are given rows.

The same work runs in SQLite's thread and over a socket to Postgres, so each thing that a store does
is written once. Its SQL is what both understand; values stand in it as `?`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One statement, whose rows are wanted."""

    sql: str
    values: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Tell:
    """One statement, run for each of several rows of values; it gives no rows back."""

    sql: str
    rows: Sequence[Sequence[object]]


Work: TypeAlias = Generator[Ask | Tell, Sequence[Row], T]
"""Runs within one transaction: what it reads is of one instant, and what it writes is written whole or not at all."""


def asked(sql: str, *values: object) -> Work[Sequence[Row]]:
    """Ask one statement."""
    return (yield Ask(sql, values))


def told(sql: str, rows: Sequence[Sequence[object]]) -> Work[None]:
    """Run one statement for each of these rows; nothing happens without any."""
    if rows:
        yield Tell(sql, rows)


def any_of(column: str, n_values: int) -> str:
    """`column IN (?, ?)`: the condition that it has one of so many values."""
    return f"{column} IN ({', '.join('?' * n_values)})"
