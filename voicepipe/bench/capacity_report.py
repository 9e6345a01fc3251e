"""Report the simulated capacity as a table and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicepipe.bench.capacity_fleet import FleetLoad, LoopCurve, latency_ms

COLUMNS: Final = ("users", "cores", "nodes", "sessions_p50", "sessions_p99", "cpu", "refused", "added_p50", "added_p95")


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """A number of users, and the fleet that it needs."""

    users: int
    load: FleetLoad
    cpu_share: float
    """Share of a core with the median number of sessions."""

    added_p50_ms: float
    added_p95_ms: float
    """Turn latency beyond the shortest possible one."""

    def cells(self) -> tuple[str, ...]:
        """Return the line's cells, in the order of `COLUMNS`."""
        fleet, load = self.load.fleet, self.load
        return (
            *(str(self.users), str(fleet.loops), str(fleet.nodes)),
            *(str(load.sessions_at(0.5)), str(load.sessions_at(0.99)), f"{self.cpu_share:.2f}", f"{load.refused:.4f}"),
            *(f"{self.added_p50_ms:.0f}", f"{self.added_p95_ms:.0f}"),
        )


def capacity_line(users: int, load: FleetLoad, curve: LoopCurve) -> CapacityLine:
    """Return the line of a simulated fleet."""
    least_ms = curve.talk.minimum_ms
    return CapacityLine(
        users,
        load,
        curve.cpu_share(load.sessions_at(0.5)),
        latency_ms(load, curve, 0.5) - least_ms,
        latency_ms(load, curve, 0.95) - least_ms,
    )


def capacity_table(lines: Iterable[CapacityLine]) -> Iterator[str]:
    """Yield the table in Markdown, a line at a time."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for line in lines:
        yield f"| {' | '.join(line.cells())} |"


def write_capacity_csv(path: Path, lines: Iterable[CapacityLine]) -> None:
    """Write the table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(line.cells() for line in lines)
