"""The text of `/metrics`: turns as they end, and the server's present state, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from voicepipe.telemetry.event_loop import CPU_EDGES_MS, LAG_EDGES_MS, EventLoopFigures
from voicepipe.telemetry.metrics.catalog import BY_NAME, NOW, Names, Sample
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.turn.record.attribution import UNATTRIBUTED_LIMIT_MS
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetLimits

EDGES_MS: Final = (10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_250, 1_500, 2_000, 3_000, 5_000, 10_000)
"""Upper edges of buckets, beside the configured limits: whether a limit was met must be exact."""

REST_EDGES_S: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)

MORE_AGENTS: Final = 10
MORE_PROVIDERS: Final = 50
MORE_ACTIONS: Final = 20
"""Label values beside those of the settings; a request may name models of its own."""

OWNERS: Final = frozenset({"settings", "client", "server"})
"""The possible owners of a stage beside the providers."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts in a registry of its own: two servers in one process don't share it."""

    def __init__(self, limits: BudgetLimits, *, agents: frozenset[str], providers: frozenset[str]) -> None:
        """`agents` and `providers` come from the settings: these names always have a series."""
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._limits = {name.removesuffix("_ms"): getattr(limits, name) / 1_000 for name in limits.__slots__}
        edges_s = tuple(sorted({*(ms / 1_000 for ms in EDGES_MS), *self._limits.values()}))
        self._turn_latency, self._stage = (
            self._histogram("turn_latency_seconds", edges_s),
            self._histogram("stage_seconds", edges_s),
        )
        self._rest = self._histogram("http_request_duration_seconds", REST_EDGES_S)
        self._counters = {
            family.name: Counter(family.full_name, family.help, family.labels, registry=self._registry)
            for family in BY_NAME.values()
            if family.kind == "counter" and family not in NOW
        }
        self._agents, self._providers = Names(agents, more=MORE_AGENTS), Names(providers | OWNERS, more=MORE_PROVIDERS)
        self._actions = Names(more=MORE_ACTIONS)

    def _histogram(self, name: str, edges_s: tuple[float, ...]) -> Histogram:
        family = BY_NAME[name]
        return Histogram(family.full_name, family.help, family.labels, buckets=edges_s, registry=self._registry)

    # --- counting -----------------------------------------------------------------------------

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Count a turn that has ended. Call it once for each turn, as `EndedTurns` does."""
        record, agent = turn.record, self._agents.of(turn.agent)
        self._add("turns_total", 1, agent, record.cause, record.outcome or "")
        if record.total_ms is not None:
            self._turn_latency.labels(agent).observe(max(0, record.total_ms) / 1_000)
            self._add("turns_over_limit_total", record.total_verdict == "over", agent)
        self._add("turns_unattributed_total", record.unattributed_ms > UNATTRIBUTED_LIMIT_MS)
        for action in record.actions:
            self._add("actions_total", 1, self._actions.of(action))
        self._count_stages(record)
        self._count_calls(record)
        self._count_cost(record, agent)

    def count_answer(self, kind: str, outcome: str, lasted_ms: int) -> None:
        """Count an answer over REST."""
        self._rest.labels(kind, outcome).observe(lasted_ms / 1_000)

    def _count_stages(self, record: TurnRecord) -> None:
        for span in record.stages:
            labels = (span.stage, self._providers.of(span.owner))
            self._stage.labels(*labels).observe(max(0, span.duration_ms) / 1_000)
            self._add("stage_over_limit_total", span.verdict == "over", *labels)

    def _count_calls(self, record: TurnRecord) -> None:
        for attempt in record.attempts:
            provider = self._providers.of(attempt.provider)
            self._add("model_attempts_total", 1, provider, attempt.role, attempt.outcome)
            self._add("provider_calls_total", 1, "llm", provider)
        for stage, spec in record.providers:
            if stage != "llm" or not record.attempts:
                self._add("provider_calls_total", 1, stage, self._providers.of(spec))

    def _count_cost(self, record: TurnRecord, agent: str) -> None:
        model, cost, early = self._providers.of(dict(record.providers).get("llm", "")), record.cost, record.speculation
        for kind in ("input", "output", "cached"):
            self._add("tokens_total", getattr(record.tokens, kind), model, kind)
        for part in ("answer", "hedge", "speculation", "tts", "stt"):
            self._add("cost_usd_total", getattr(cost, f"{part}_usd"), agent, part)
        for result, count in (("started", early.starts), ("used", early.used), ("refused", early.refused)):
            self._add("speculation_total", count, result)
        self._add("speculation_saved_seconds_total", max(0, early.saved_ms) / 1_000)
        self._add("speculation_wasted_tokens_total", early.wasted_input_tokens, "input")
        self._add("speculation_wasted_tokens_total", early.wasted_output_tokens, "output")

    def _add(self, name: str, amount: float, *labels: str) -> None:
        """Add to a counter; also 0, so that a series exists before its first event and `rate` counts that event."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(amount)

    # --- exposition ---------------------------------------------------------------------------

    def limits(self) -> Iterator[Sample]:
        """Return the budget's limits."""
        for stage, limit_s in self._limits.items():
            yield Sample("limit_seconds", limit_s, (stage,))

    def text(self, now: Iterable[Sample], loop: EventLoopFigures | None = None) -> bytes:
        """Return the whole text as Prometheus reads it (`CONTENT_TYPE`). Takes milliseconds: call it from a worker
        thread.

        Args:
            now: the present values, each of a family of `NOW`; providers beyond the bound are left out.
            loop: the event loop's figures, or None where it is not measured.
        """
        return generate_latest(_Both(self._registry, [*self._families((*self.limits(), *now)), *_of_loop(loop)]))

    def _families(self, now: Iterable[Sample]) -> Iterator[Metric]:
        found: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in now:
            family = BY_NAME[sample.name]
            if "provider" in family.labels:
                at = family.labels.index("provider")
                if self._providers.of(sample.labels[at]) != sample.labels[at]:
                    continue
            if sample.name not in found:
                kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                found[sample.name] = kind(family.full_name, family.help, labels=family.labels)
            found[sample.name].add_metric(sample.labels, sample.value)
        return iter(found.values())


class _Both(CollectorRegistry):
    """The registry of counted values and present values."""

    def __init__(self, counted: CollectorRegistry, now: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._counted, self._now = counted, now

    def collect(self) -> Iterator[Metric]:
        for metric in self._counted.collect():
            # The creation time would be one more series for each; it is not used.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield from self._now


def _of_loop(loop: EventLoopFigures | None) -> Iterator[Metric]:
    if loop is None:
        return
    yield _histogram_of("event_loop_lag_seconds", LAG_EDGES_MS, loop.lag_counts, loop.lag_sum_ms)
    yield _histogram_of("event_loop_stall_cpu_seconds", CPU_EDGES_MS, loop.stall_cpu_counts, loop.stall_cpu_sum_ms)


def _histogram_of(name: str, edges_ms: tuple[int, ...], counts: tuple[int, ...], sum_ms: float) -> Metric:
    family = BY_NAME[name]
    edges = [*(str(ms / 1_000) for ms in edges_ms), "+Inf"]
    histogram = HistogramMetricFamily(family.full_name, family.help)
    histogram.add_metric([], list(zip(edges, accumulate(counts), strict=True)), sum_ms / 1_000)
    return histogram
