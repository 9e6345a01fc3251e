"""What `/metrics` says parses, is complete, judges limits exactly, and stays bounded whatever clients call things."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import voicepipe
from voicepipe.telemetry.event_loop import CPU_EDGES_MS, LAG_EDGES_MS, EventLoopFigures
from voicepipe.telemetry.metrics.catalog import COUNTED, CURRENT, FAMILIES, MAX_NAME_CHARS, OTHER, PREFIX, Names, Sample
from voicepipe.telemetry.metrics.prometheus import MAX_OTHER_ACTIONS, MAX_OTHER_AGENTS, MAX_OTHER_PROVIDERS, Metrics
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.values import ModelAttempt, Speculation, TurnCost
from voicepipe.turn.settings import BudgetLimits

LOOP = EventLoopFigures(
    lag_p50_ms=0.4,
    lag_p99_ms=12.0,
    lag_max_ms=140.0,
    lag_counts=(90, 5, 2, 1, 0, 1, 0, 1, 0, 0, 1),
    lag_sum_ms=2_345.0,
    stall_cpu_counts=(97, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1),
    stall_cpu_sum_ms=6_250.0,
    n_stalls=1,
    last_stall=None,
    gc_pauses=(7, 2, 1),
    gc_pause_ms=(0.7, 1.4, 12.5),
    gc_longest_ms=12.5,
)


def metrics(limits: BudgetLimits | None = None) -> Metrics:
    known = frozenset({"fake-stt", "fake-llm", "fake-tts"})
    return Metrics(limits or BudgetLimits(), agents=frozenset({"default"}), providers=known)


def stored_turn(n: int = 1, agent: str = "default", **changes: Any) -> StoredTurn:
    return StoredTurn(turn_record(id=f"turn_{n}", **changes), "acme", agent, 1_700_000_000_000)


def parsed(counted: Metrics, *now: Sample, loop: EventLoopFigures | None = None) -> dict[str, Metric]:
    """By name; a counter's without `_total`, as the parser has it."""
    return {family.name: family for family in text_string_to_metric_families(counted.text(now, loop).decode())}


def values(counted: Metrics, name: str, *now: Sample) -> dict[tuple[str, ...], float]:
    """Label values, in the order of the family, -> value of the samples of that very name."""
    samples = (sample for family in parsed(counted, *now).values() for sample in family.samples)
    found = [sample for sample in samples if sample.name == f"{PREFIX}{name}"]
    labels = next(each.labels for each in FAMILIES if name.startswith(each.name))
    order = (*labels, "le") if name.endswith("_bucket") else labels
    return {tuple(sample.labels[label] for label in order): sample.value for sample in found}


def test_a_turn_is_counted_with_all_of_its_record() -> None:
    counted = metrics()
    attempts = (
        ModelAttempt(provider="fake-llm", role="primary", outcome="lost", began_ms=0, first_ms=None),
        ModelAttempt(provider="b/m", role="hedge", outcome="spoke", began_ms=300, first_ms=90),
    )
    counted.on_turn_end(
        stored_turn(
            actions=("hedge", "short_clause"),
            attempts=attempts,
            cost=TurnCost(usd=0.75, answer_usd=0.5, hedge_usd=0.25),
            speculation=Speculation(starts=2, used=1, saved_ms=400, wasted_input_tokens=120),
        )
    )
    assert values(counted, "turns_total") == {("default", "vad", "completed"): 1}
    assert values(counted, "turn_latency_seconds_count") == {("default",): 1}
    assert values(counted, "turn_latency_seconds_sum")["default",] == pytest.approx(0.983)
    assert values(counted, "turns_over_limit_total") == {("default",): 0}
    assert values(counted, "actions_total") == {("hedge",): 1, ("short_clause",): 1}
    assert values(counted, "model_attempts_total") == {("fake-llm", "primary", "lost"): 1, ("b/m", "hedge", "spoke"): 1}
    calls = {("stt", "fake-stt"): 1, ("tts", "fake-tts"): 1, ("llm", "fake-llm"): 1, ("llm", "b/m"): 1}
    assert values(counted, "provider_calls_total") == calls
    assert values(counted, "tokens_total")["fake-llm", "cached"] == 96
    assert values(counted, "cost_usd_total")["default", "hedge"] == 0.25
    assert values(counted, "speculation_total") == {("started",): 2, ("used",): 1, ("refused",): 0}
    assert values(counted, "speculation_saved_seconds_total") == {(): 0.4}
    assert values(counted, "stage_seconds_count")["llm_ttft", "fake-llm"] == 1
    assert values(counted, "stage_over_limit_total")["silence", "settings"] == 0
    assert values(counted, "stage_over_limit_total")["llm_ttft", "fake-llm"] == 0


@pytest.mark.parametrize("limit_ms", [983, 1_000, 1_234])
def test_every_limit_is_the_edge_of_a_bucket(limit_ms: int) -> None:
    """So the share of turns within a limit is exact: a turn that takes exactly the limit is within it."""
    counted = metrics(BudgetLimits(total_ms=limit_ms, llm_ttft_ms=235))
    counted.on_turn_end(stored_turn())
    counted.on_turn_end(stored_turn(2, marks=(*MARKS[:-1], ("first_audible", 5_000 + limit_ms))))
    counted.on_turn_end(stored_turn(3, marks=(*MARKS[:-1], ("first_audible", 5_001 + limit_ms))))
    within = {key[-1]: value for key, value in values(counted, "turn_latency_seconds_bucket").items()}
    assert within[str(limit_ms / 1_000)] == 2
    assert {"0.235", "0.15", "0.02"} <= within.keys()
    assert values(counted, "limit_seconds")["total",] == limit_ms / 1_000


def test_a_flood_of_names_makes_a_bounded_number_of_series() -> None:
    """Clients may ask for models by any name. Those of the settings keep their series, however late they come."""
    counted = metrics()
    for n in range(200):
        attempt = ModelAttempt(provider=f"flood/{n}", role="primary", outcome="spoke", began_ms=0, first_ms=9)
        flood = (("llm", f"flood/{n}"),)
        counted.on_turn_end(
            stored_turn(n, agent=f"agent-{n}", attempts=(attempt,), providers=flood, actions=(f"act-{n}",))
        )
    counted.on_turn_end(stored_turn(200))
    providers = {key[0] for key in values(counted, "model_attempts_total")}
    assert providers == {OTHER, *(f"flood/{n}" for n in range(MAX_OTHER_PROVIDERS))}
    assert "settings" in {key[1] for key in values(counted, "stage_seconds_count")}
    agents = {key[0] for key in values(counted, "turns_total")}
    assert agents == {"default", OTHER, *(f"agent-{n}" for n in range(MAX_OTHER_AGENTS))}
    assert values(counted, "turns_total")[OTHER, "vad", "completed"] == 200 - MAX_OTHER_AGENTS
    assert values(counted, "actions_total")["other",] == 200 - MAX_OTHER_ACTIONS


def test_a_long_name_and_none_at_all_are_names_too() -> None:
    names = Names(frozenset({"known"}), more=1)
    assert [names.of(each) for each in ("known", "", "x" * (MAX_NAME_CHARS + 1), "a", "b", "a")] == [
        *("known", "none", OTHER),
        *("a", OTHER, "a"),
    ]


def test_present_values_have_their_kind() -> None:
    counted = metrics()
    now = (
        Sample("sessions", 3),
        Sample("provider_state", 1, ("llm", "fake-llm", "open")),
        Sample("provider_errors_total", 7, ("llm", "fake-llm", "timeout")),
        Sample("build_info", 1, ('0.1"\n\\',)),
    )
    found = parsed(counted, *now)
    assert found["voicepipe_sessions"].type == "gauge"
    assert found["voicepipe_provider_errors"].type == "counter"
    assert values(counted, "provider_errors_total", *now) == {("llm", "fake-llm", "timeout"): 7}
    assert values(counted, "build_info", *now) == {('0.1"\n\\',): 1}
    with pytest.raises(KeyError):
        counted.text([Sample("not_declared", 1)])


def test_providers_beyond_the_bound_are_left_out_of_what_is_true_now() -> None:
    """Two of them under one name would be two values of one series."""
    counted = metrics()
    now = [Sample("provider_in_flight", n, ("llm", f"flood/{n}")) for n in range(200)]
    assert len(values(counted, "provider_in_flight", *now)) == MAX_OTHER_PROVIDERS


def test_the_loops_lag_is_a_histogram() -> None:
    found = parsed(metrics(), loop=LOOP)["voicepipe_event_loop_lag_seconds"]
    by_edge = {sample.labels["le"]: sample.value for sample in found.samples if sample.name.endswith("_bucket")}
    assert found.type == "histogram"
    assert len(by_edge) == len(LAG_EDGES_MS) + 1
    assert (by_edge["0.001"], by_edge["0.05"], by_edge["+Inf"]) == (90, 99, 101)
    assert [sample.value for sample in found.samples if sample.name.endswith("_sum")] == [2.345]


def test_the_cpu_time_of_holds_is_a_histogram() -> None:
    found = parsed(metrics(), loop=LOOP)["voicepipe_event_loop_stall_cpu_seconds"]
    by_edge = {sample.labels["le"]: sample.value for sample in found.samples if sample.name.endswith("_bucket")}
    assert found.type == "histogram"
    assert len(by_edge) == len(CPU_EDGES_MS) + 1
    assert (by_edge["0.001"], by_edge["0.05"], by_edge["0.1"], by_edge["+Inf"]) == (97, 99, 100, 101)
    assert [sample.value for sample in found.samples if sample.name.endswith("_sum")] == [6.25]


def everything() -> Iterator[Sample]:
    """A sample of each family."""
    for family in CURRENT:
        if family.kind != "histogram":
            yield Sample(family.name, 1.0, tuple("x" for _ in family.labels))


def test_declared_metrics_are_exported() -> None:
    """Each family has its kind, its help and its labels; beside them there is only the process."""
    counted = metrics()
    attempt = ModelAttempt(provider="a/m", role="primary", outcome="spoke", began_ms=0, first_ms=9)
    counted.on_turn_end(stored_turn(actions=("hedge",), attempts=(attempt,)))
    counted.count_answer("chat", "completed", 1_200)
    found = parsed(counted, *everything(), loop=LOOP)
    ours = {name: family for name, family in found.items() if name.startswith(PREFIX)}
    assert ours.keys() == {family.full_name.removesuffix("_total") for family in FAMILIES}
    assert all(name.startswith("process_") for name in found.keys() - ours.keys())
    for family in FAMILIES:
        family_samples = ours[family.full_name.removesuffix("_total")]
        labels = set().union(*(sample.labels for sample in family_samples.samples)) - {"le"}
        assert (family_samples.type, family_samples.documentation, labels) == (
            family.kind,
            family.help,
            set(family.labels),
        )


def test_each_current_metric_is_sampled_by_a_component() -> None:
    """A row of the catalog alone has no value. The two histograms of the event loop come with its figures."""
    sampled: set[str] = set()
    for path in Path(voicepipe.__file__).parent.rglob("*.py"):
        sampled |= set(re.findall(r'Sample\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    declared = {family.name for family in CURRENT if family.kind != "histogram"}
    assert sampled == declared, f"declared and never sampled: {declared - sampled}; unknown: {sampled - declared}"


def test_names_say_their_kind_and_their_unit() -> None:
    """As Prometheus' own conventions have it."""
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert "_ms" not in family.name
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) == len(COUNTED) + len(CURRENT)
