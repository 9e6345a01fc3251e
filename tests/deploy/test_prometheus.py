"""The alerts and the dashboard ask for what `/metrics` has, and say what they should, by Prometheus' own tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from voicepipe.telemetry.metrics.catalog import FAMILIES
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.turn.settings import BudgetLimits

FUNCTIONS_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
FROM_PROMETHEUS = {"up", "ALERTS"}
TARGET = {"instance", "job"}
"""Labels that Prometheus gives every series of a target."""


def promtool(*arguments: str) -> None:
    """Run it; what it says goes into the failure."""
    tool = shutil.which("promtool")
    assert tool is not None, "promtool is not installed: deploy/up.py test does that, or `apt-get install prometheus`"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules(root: Path) -> None:
    promtool("check", "rules", str(root / "deploy" / "prometheus" / "alerts.yml"))


def test_the_scrape_job_is_one(root: Path) -> None:
    for job in ("prometheus.yml", "containers.yml"):
        promtool("check", "config", str(root / "deploy" / "prometheus" / job))


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_only_then(root: Path) -> None:
    """By series that stand for a day with failures, and one without."""
    promtool("test", "rules", str(root / "tests" / "deploy" / "alerts_test.yml"))


def test_every_alert_is_among_those_that_are_tried(root: Path) -> None:
    names = set(re.findall(r"alert: (\w+)", (root / "deploy" / "prometheus" / "alerts.yml").read_text()))
    tried = set(re.findall(r"Voicepipe\w+", (root / "tests" / "deploy" / "alerts_test.yml").read_text()))
    assert names == tried


@pytest.fixture
def board(root: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((root / "deploy" / "grafana" / "voicepipe.json").read_text())
    return dashboard


def expressions(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_every_panel_has_a_valid_query(board: dict[str, Any], tmp_path: Path) -> None:
    """Each expression as a rule, with Grafana's own variables filled in."""
    rules = [
        {"record": f"panel_{n}", "expr": expr.replace("$__rate_interval", "1m").replace("$", "")}
        for n, (_, expr) in enumerate(expressions(board))
    ]
    assert len(rules) > 30
    path = tmp_path / "panels.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))


def series() -> dict[str, set[str]]:
    """Name of a series -> its labels."""
    known: dict[str, set[str]] = {}
    for family in FAMILIES:
        if family.kind == "histogram":
            for ending in FUNCTIONS_OF_HISTOGRAMS:
                known[family.full_name + ending] = {*family.labels, "le"}
        else:
            known[family.full_name] = set(family.labels)
    process = Metrics(BudgetLimits(), agents=frozenset(), providers=frozenset()).text(()).decode()
    for found in text_string_to_metric_families(process):
        known |= {sample.name: set(sample.labels) for sample in found.samples if sample.name.startswith("process_")}
    return known


def queried(expr: str) -> Iterator[tuple[str, set[str]]]:
    """Each series that an expression names, with the labels that it is chosen by."""
    for name, chosen in re.findall(r"\b((?:voicepipe|process)_\w+|up)\b(?!:)(?:\{([^}]*)\})?", expr):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen))


def groupings(expr: str) -> set[str]:
    return {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expr) for label in labels.split(",")}


def all_expressions(root: Path, board: dict[str, Any]) -> list[tuple[str, str]]:
    alerts = (root / "deploy" / "prometheus" / "alerts.yml").read_text()
    rules = re.split(r"\n +- (?=record|alert)", alerts)[1:]
    found = [
        (rule.split()[1], re.sub(r"\s+", " ", rule.partition("expr:")[2].partition("labels:")[0])) for rule in rules
    ]
    return [*found, *expressions(board)]


def test_every_queried_series_exists_with_its_labels(root: Path, board: dict[str, Any]) -> None:
    """A metric that is renamed leaves no panel empty and no alert silent."""
    known, n_queried = series(), 0
    for where, expr in all_expressions(root, board):
        labels_there: set[str] = set()
        for name, labels in queried(expr):
            if name not in FROM_PROMETHEUS:
                assert name in known, f"{where} asks for {name}"
                assert labels <= known[name] | TARGET, f"{where} chooses {name} by {labels - known[name]}"
                labels_there |= known[name]
                n_queried += 1
        assert groupings(expr) <= labels_there | TARGET, f"{where} groups by {groupings(expr) - labels_there}"
    assert n_queried > 60


def test_the_dashboard_shows_or_an_alert_watches_whatever_is_counted(root: Path, board: dict[str, Any]) -> None:
    """A metric without panel or alert is one too many; the few exceptions are for questions that come up by
    themselves.
    """
    looked_at = {name for _, expr in all_expressions(root, board) for name, _ in queried(expr)}
    rarely = {
        "speculation_saved_seconds_total",
        "sessions_opened_total",
        "ready",
        "http_requests_limit",
        "http_request_duration_seconds",
    }
    rarely |= {"circuit_breaker_opened_total", "provider_in_flight", "gc_longest_pause_seconds", "build_info"}
    rarely |= {"stream_readers"}
    for family in FAMILIES:
        names = {family.full_name + ending for ending in ("", *FUNCTIONS_OF_HISTOGRAMS)}
        if family.name in rarely:
            assert not names & looked_at, f"{family.name} has a panel or an alert: it is no exception"
        else:
            assert names & looked_at, f"{family.name}: add a target in deploy/grafana/voicepipe.json, or an alert"


def test_the_dashboard_is_one_that_grafana_loads(board: dict[str, Any]) -> None:
    """Its panels have ids of their own, lie side by side, and ask the data source that the page chooses."""
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not own & cells, panel["title"]
        cells |= own
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("timeseries", "stat", "table"), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0, panel["title"]
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert set(variables) == {"datasource", "instance", "agent"}
    used = set(re.findall(r'"\$(\w+)"', " ".join(expr for _, expr in expressions(board))))
    assert used == {"instance", "agent"}
    assert (board["uid"], board["schemaVersion"] >= 36, board["id"]) == ("voicepipe", True, None)
