"""The rows of the load bench, stored one by one: a run that was ended goes on with the rows that are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from voicepipe.bench.load.concurrent_users import LoadRun
from voicepipe.errors import ConfigError

FILE: Final = "load.jsonl"


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """The figures of one server with a number of users. Times are ms from the last voiced sample to the first audible
    one, at the client."""

    server: str
    users: int
    turns: int
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None
    minimum_ms: int | None
    """The least latency that the providers' delays and the silence allow; None: not known."""

    gap_share: float
    """Share of turns with a gap in their audio."""

    cpu_pct: float | None
    """CPU of one session, in percent of a core, while all are in their turns."""

    open_cpu_ms: float | None
    """CPU to open one session."""

    rss_base_mib: float | None
    rss_session_mib: float | None
    n_errors: int
    late_p95_ms: float
    """Delay of the bench's own frames: the machine's share of every figure."""


def row_of(loads: Sequence[LoadRun], minimum_ms: int | None) -> Row:
    """Return the row of one or more runs of the same server and number of users."""
    first, turns = loads[0], [turn for load in loads for turn in load.turns]
    waited = [ms for turn in turns if (ms := turn.latency_ms) is not None]
    p50, p95, most = (float(x) for x in np.percentile(waited, (50, 95, 100))) if waited else (None, None, None)
    costs = [load.cost for load in loads if load.cost is not None]
    n = first.n_users
    base = min((cost.rss_before_mib for cost in costs), default=0.0)
    return Row(
        server=first.target,
        users=n,
        turns=len(turns),
        p50_ms=p50,
        p95_ms=p95,
        max_ms=most,
        minimum_ms=minimum_ms,
        gap_share=sum(bool(turn.gaps_ms) for turn in turns) / max(1, len(turns)),
        cpu_pct=sum(cost.cpu_pct for cost in costs) / len(costs) / n if costs else None,
        open_cpu_ms=sum(cost.open_cpu_ms for cost in costs) / len(costs) if costs else None,
        rss_base_mib=base if costs else None,
        rss_session_mib=(max(cost.rss_mib for cost in costs) - base) / n if costs else None,
        n_errors=sum(len(load.errors) + sum(bool(turn.error) for turn in load.turns) for load in loads),
        late_p95_ms=max(load.late_p95_ms for load in loads),
    )


class RowFile:
    """The rows of a folder."""

    def __init__(self, folder: Path | None) -> None:
        """Read the rows of an earlier run; without a folder there are none, and none are stored.

        Raises:
            ConfigError: a line is no row.
        """
        self._path = folder / FILE if folder is not None else None
        self.rows: list[Row] = []
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._read(self._path.read_bytes())

    def _read(self, text: bytes) -> None:
        try:
            self.rows = [msgspec.json.decode(line, type=Row) for line in text.splitlines() if line]
        except msgspec.MsgspecError as why:
            raise ConfigError(f"{self._path}: expected a row of the load bench on each line: {why}") from why

    def has(self, server: str, users: int) -> bool:
        """Return whether there is a row."""
        return any((row.server, row.users) == (server, users) for row in self.rows)

    def add(self, row: Row) -> None:
        """Store a row."""
        self.rows.append(row)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")
