"""Work on a database, independent of the database: generators that yield SQL and receive rows.

The same work runs in SQLite's thread and over a socket to Postgres, so each operation of a store is written once. Its
SQL is valid for both; values are `?` in it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]


class Fetch(Struct, frozen=True):
    """A statement that returns rows."""

    sql: str
    values: Sequence[object] = ()


class Execute(Struct, frozen=True):
    """A statement that is run for each of several rows of values; it returns no rows."""

    sql: str
    rows: Sequence[Sequence[object]]


Work: TypeAlias = Generator[Fetch | Execute, Sequence[Row], T]
"""Runs within one transaction: its reads are of one instant, and its writes are complete or not made at all."""


def fetch(sql: str, *values: object) -> Work[Sequence[Row]]:
    """Run one statement and return its rows."""
    return (yield Fetch(sql, values))


def execute(sql: str, rows: Sequence[Sequence[object]]) -> Work[None]:
    """Run one statement for each of these rows; without rows, nothing happens."""
    if rows:
        yield Execute(sql, rows)


def any_of(column: str, n_values: int) -> str:
    """Return `column IN (?, ?)`: the condition that it has one of this number of values."""
    return f"{column} IN ({', '.join('?' * n_values)})"
