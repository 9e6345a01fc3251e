"""The page for operators is true: every metric is in it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from voicepipe.telemetry.families import FAMILIES

PAGE = (Path(__file__).parents[1] / "web" / "docs" / "operating.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading of the second rank, up to the next."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {title}"
    return found[1]


def rows(text: str) -> list[tuple[str, ...]]:
    """The cells of all tables' lines below their heads."""
    lines = re.findall(r"^\|(.*)\|\n", text.partition("| --- |")[2], re.MULTILINE)
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def test_every_metric_is_told_and_no_other() -> None:
    """With its kind, its labels and what it says."""
    told = rows(section("Metrics"))
    assert told == [
        (f"`{each.full_name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels) or "-", each.help)
        for each in FAMILIES
    ]
