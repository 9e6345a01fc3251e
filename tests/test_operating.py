"""The docs for operators are true: every metric and every line of the log is in it, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import voicepipe
from tests import docs
from tests.docs import section
from voicepipe.server.gateway.exchange import KINDS
from voicepipe.telemetry.metrics.catalog import FAMILIES


def rows(text: str) -> list[tuple[str, ...]]:
    """The cells of all tables' lines below their heads."""
    lines = re.findall(r"^\|(.*)\|\n", text.partition("| --- |")[2], re.MULTILINE)
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def metrics() -> str:
    """The table of the metrics, in the order of the catalog."""
    lines = []
    for each in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in each.labels) or "-"
        lines.append(f"| `{each.full_name}` | {each.kind} | {labels} | {each.help} |")
    return "\n".join(["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *lines]) + "\n"


GENERATED: docs.Generated = {"metrics": metrics}
"""Compared with the page, and renewed, as all generated blocks (`tests/docs.py`)."""


LEVELS = {"info", "warning", "error"}


LogCall = tuple[tuple[str, ...], set[str], set[str], bool]
"""(events, levels, fields, whether it has fields that don't stand in the source) of a `log_event`."""


@cache
def log_calls() -> tuple[LogCall, ...]:
    """Every `log_event` of the package, read once."""
    sources = (path.read_text(encoding="utf-8") for path in Path(voicepipe.__file__).parent.rglob("*.py"))
    return tuple(call for source in sources if "log_event(" in source for call in _log_calls(source))


def _log_calls(source: str) -> Iterator[LogCall]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Name("log_event"), [name, *_], keywords):
                level = next((ast.unparse(each.value) for each in keywords if each.arg == "level"), "logging.INFO")
                levels = {found.lower() for found in re.findall(r"logging\.(\w+)", level)}
                fields = {each.arg for each in keywords if each.arg not in (None, "level")}
                more = any(each.arg is None for each in keywords)
                yield events(name), levels, {each for each in fields if each}, more


def events(name: ast.expr) -> tuple[str, ...]:
    """`f"{self._kind}_closed"` stands for one event of each kind."""
    match name:
        case ast.Constant(str(text)):
            return (text,)
        case ast.JoinedStr([ast.FormattedValue(), ast.Constant(str(ending))]):
            return tuple(f"{kind}{ending}" for kind in KINDS.values())
    raise AssertionError(f"an event's name can't be read: {ast.unparse(name)}")


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_every_log_event_is_documented() -> None:
    """With its fields, and its level where that stands in the source."""
    documented = {event: row for row in rows(section("Logs")) for event in names(row[0])}
    by_hand = {"crashed", "log_lines_dropped"}  # these two have no `log_event`
    assert {event for its in log_calls() for event in its[0]} | by_hand == set(documented)
    for logged, levels, fields, _ in log_calls():
        for event in logged:
            _, level, its_fields, _ = documented[event]
            assert set(level.split(", ")) <= LEVELS, event
            assert not levels or levels == set(level.split(", ")), event
            assert fields <= names(its_fields), event


def test_every_documented_field_is_logged() -> None:
    """Where all of an event's fields stand in the source."""
    sets: dict[str, set[str]] = {}
    open_ended = {"crashed", "log_lines_dropped"}
    for logged, _, fields, more in log_calls():
        for event in logged:
            sets.setdefault(event, set()).update(fields)
            open_ended |= {event} if more else set()
    for row in rows(section("Logs")):
        closed = names(row[0]) - open_ended
        if closed:
            assert names(row[2]) == set().union(*(sets[event] for event in closed)), row[0]
