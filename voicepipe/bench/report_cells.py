"""Helpers for the benches' reports: quantiles, cells, tables and CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

QUANTILES: Final = (50, 95, 99)


def quantiles(figures: Iterable[float | None]) -> list[float]:
    """Return p50, p95 and p99 of the known figures; empty if there are none."""
    known = [found for found in figures if found is not None]
    return [float(each) for each in np.percentile(known, QUANTILES)] if known else []


def total(figures: Iterable[float | None]) -> float | None:
    """Return the sum of the known figures; None if there are none."""
    known = [found for found in figures if found is not None]
    return sum(known) if known else None


def quantile_cell(figures: Sequence[float], *, digits: int = 0) -> str:
    """Format figures as one cell."""
    return "/".join(f"{figure:.{digits}f}" for figure in figures) or "-"


def money(usd: float | None) -> str:
    """Format an amount as a cell."""
    return "-" if usd is None else f"{usd:.6f}"


def markdown(columns: Sequence[str], lines: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a table, line by line."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + " --- |" * len(columns)
    for cells in lines:
        yield f"| {' | '.join(cells)} |"


def failures(what: str, errors: Iterable[str]) -> Iterator[str]:
    """Yield each kind of failure once; an empty error is none."""
    found = [error for error in errors if error]
    for why in dict.fromkeys(found):
        yield f"{what}: {found.count(why)} failed: {why}"


def write_csv(path: Path, columns: Sequence[str], lines: Iterable[Iterable[object]]) -> None:
    """Write a file with a line for each answer; None is an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(lines)


def plain(figure: float | None, *, digits: int = 2) -> str:
    """Format a figure as a CSV's cell."""
    return "" if figure is None else f"{figure:.{digits}f}"
