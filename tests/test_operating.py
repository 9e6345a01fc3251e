"""The reference for operators is true: its tables are those of the catalogs, which have each event that is logged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import voicepipe
from tests import docs
from voicepipe.server.app import build_app
from voicepipe.server.context import ServerContext
from voicepipe.server.endpoints import ENDPOINTS
from voicepipe.server.gateway.exchange import STAGES
from voicepipe.telemetry.log_catalog import LOG_EVENTS
from voicepipe.telemetry.metrics.catalog import FAMILIES


def metrics() -> str:
    """The table of the metrics, in the order of the catalog."""
    head = ("metric", "kind", "labels", "meaning")
    return docs.table(head, ((f"`{each.full_name}`", each.kind, _codes(each.labels), each.help) for each in FAMILIES))


def log_events() -> str:
    """The table of the log events, in the order of the catalog."""
    head = ("event", "level", "fields", "what happened")
    rows = ((f"`{each.name}`", ", ".join(each.levels), _codes(each.fields), each.meaning) for each in LOG_EVENTS)
    return docs.table(head, rows)


def endpoints() -> str:
    """The table of the endpoints, in the order of their registration."""
    rows = []
    for each in ENDPOINTS:
        paths = ", ".join(f"`{path}`" for path in (f"{each.method} {each.documented_path}", *each.other_paths))
        rows.append((paths, f"`{each.scope}`" if each.scope else "-", each.meaning))
    return docs.table(("endpoint", "scope", "what it is"), rows)


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


GENERATED: docs.Generated = {"metrics": metrics, "log events": log_events, "endpoints": endpoints}
"""Compared with the page, and renewed, as all generated blocks (`tests/docs.py`)."""


CATALOG = {each.name: each for each in LOG_EVENTS}
WITHOUT_CALL = {"crashed", "log_lines_dropped"}
"""Events that are logged without `log_event`."""


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
            return tuple(f"{kind}{ending}" for kind in STAGES)
    raise AssertionError(f"an event's name can't be read: {ast.unparse(name)}")


def test_the_catalog_has_every_log_event() -> None:
    """With its fields, and its levels where they stand in the source."""
    assert {event for call in log_calls() for event in call[0]} | WITHOUT_CALL == set(CATALOG)
    assert len(CATALOG) == len(LOG_EVENTS)
    for logged, levels, fields, _ in log_calls():
        for event in logged:
            assert not levels or levels == set(CATALOG[event].levels), event
            assert fields <= set(CATALOG[event].fields), event


def test_every_field_of_the_catalog_is_logged() -> None:
    """Where all of an event's fields stand in the source."""
    sets: dict[str, set[str]] = {}
    open_ended = set(WITHOUT_CALL)
    for logged, _, fields, more in log_calls():
        for event in logged:
            sets.setdefault(event, set()).update(fields)
            open_ended |= {event} if more else set()
    assert sets.keys() - open_ended
    for event in sets.keys() - open_ended:
        assert set(CATALOG[event].fields) == sets[event], event


def test_every_further_field_of_the_catalog_is_in_the_source() -> None:
    """The fields that a call takes from elsewhere: at least their names are somewhere."""
    sources = (path for path in Path(voicepipe.__file__).parent.rglob("*.py") if path.name != "log_catalog.py")
    known = {name for path in sources for name in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert {field for each in LOG_EVENTS for field in each.fields} <= known


def test_every_route_is_that_of_an_endpoint() -> None:
    app = build_app(cast(ServerContext, object()))
    routes = {
        (route.method, route.resource.canonical.rstrip("/") or "/") for route in app.router.routes() if route.resource
    }
    declared = {(each.method, path) for each in ENDPOINTS for path in (each.documented_path, *each.other_paths)}
    assert {route for route in routes if route[0] != "HEAD"} == declared
