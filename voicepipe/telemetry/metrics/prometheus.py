"""Write `/metrics` in Prometheus' text format: counts of turns, and the present state of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from voicepipe.telemetry.event_loop import CPU_EDGES_MS, LAG_EDGES_MS, EventLoopFigures
from voicepipe.telemetry.metrics.catalog import BY_NAME, CURRENT, Names, Sample
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.turn.record.attribution import UNATTRIBUTED_LIMIT_MS
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetLimits

EDGES_MS: Final = (10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_250, 1_500, 2_000, 3_000, 5_000, 10_000)
"""Upper edges of buckets. The configured limits are edges, too, so that the share within a limit is exact."""

REQUEST_EDGES_S: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)

MAX_OTHER_AGENTS: Final = 10
MAX_OTHER_PROVIDERS: Final = 50
MAX_OTHER_ACTIONS: Final = 20
"""Maximum number of label values beside those of the settings: a request may name other models."""

OWNERS: Final = frozenset({"settings", "client", "server"})
"""The possible owners of a stage beside the providers."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server, in a registry of its own: two servers in one process have two."""

    def __init__(self, limits: BudgetLimits, *, agents: frozenset[str], providers: frozenset[str]) -> None:
        """`agents`, `providers`: the names of the settings, which always have a series."""
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._limits = {name.removesuffix("_ms"): getattr(limits, name) / 1_000 for name in limits.__slots__}
        edges_s = tuple(sorted({*(ms / 1_000 for ms in EDGES_MS), *self._limits.values()}))
        self._turn_latency, self._stage = (
            self._histogram("turn_latency_seconds", edges_s),
            self._histogram("stage_seconds", edges_s),
        )
        self._request_duration = self._histogram("http_request_duration_seconds", REQUEST_EDGES_S)
        self._counters = {
            family.name: Counter(family.full_name, family.help, family.labels, registry=self._registry)
            for family in BY_NAME.values()
            if family.kind == "counter" and family not in CURRENT
        }
        self._agents, self._providers = (
            Names(agents, more=MAX_OTHER_AGENTS),
            Names(providers | OWNERS, more=MAX_OTHER_PROVIDERS),
        )
        self._actions = Names(more=MAX_OTHER_ACTIONS)

    def _histogram(self, name: str, edges_s: tuple[float, ...]) -> Histogram:
        family = BY_NAME[name]
        return Histogram(family.full_name, family.help, family.labels, buckets=edges_s, registry=self._registry)

    # --- counting -----------------------------------------------------------------------------

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Count a turn that has ended. Call it once a turn, as `EndedTurns` does."""
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
        """Record the duration of a REST request."""
        self._request_duration.labels(kind, outcome).observe(lasted_ms / 1_000)

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
        model, cost = self._providers.of(dict(record.providers).get("llm", "")), record.cost
        speculation = record.speculation
        for kind in ("input", "output", "cached"):
            self._add("tokens_total", getattr(record.tokens, kind), model, kind)
        for part in ("answer", "hedge", "speculation", "tts", "stt"):
            self._add("cost_usd_total", getattr(cost, f"{part}_usd"), agent, part)
        for result, count in (
            ("started", speculation.starts),
            ("used", speculation.used),
            ("refused", speculation.refused),
        ):
            self._add("speculation_total", count, result)
        self._add("speculation_saved_seconds_total", max(0, speculation.saved_ms) / 1_000)
        self._add("speculation_wasted_tokens_total", speculation.wasted_input_tokens, "input")
        self._add("speculation_wasted_tokens_total", speculation.wasted_output_tokens, "output")

    def _add(self, name: str, amount: float, *labels: str) -> None:
        """Add to a counter. Adding 0 creates the series, so that `rate` counts the first event."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(amount)

    # --- exposition ---------------------------------------------------------------------------

    def limits(self) -> Iterator[Sample]:
        """Yield the limits of the budget."""
        for stage, limit_s in self._limits.items():
            yield Sample("limit_seconds", limit_s, (stage,))

    def text(self, current: Iterable[Sample], loop: EventLoopFigures | None = None) -> bytes:
        """Return the text for Prometheus (`CONTENT_TYPE`). Takes milliseconds: call it from a worker thread.

        Args:
            current: the present values of families of `CURRENT`; providers beyond the limit are left out.
            loop: the figures of the event loop; None: it is not measured.
        """
        return generate_latest(
            _CombinedRegistry(self._registry, [*self._families((*self.limits(), *current)), *_event_loop_metrics(loop)])
        )

    def _families(self, current: Iterable[Sample]) -> Iterator[Metric]:
        found: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in current:
            family = BY_NAME[sample.name]
            if "provider" in family.labels:
                provider = sample.labels[family.labels.index("provider")]
                if self._providers.of(provider) != provider:
                    continue
            if sample.name not in found:
                kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                found[sample.name] = kind(family.full_name, family.help, labels=family.labels)
            found[sample.name].add_metric(sample.labels, sample.value)
        return iter(found.values())


class _CombinedRegistry(CollectorRegistry):
    """The registry of counted values and present values."""

    def __init__(self, counted: CollectorRegistry, current: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._counted, self._current = counted, current

    def collect(self) -> Iterator[Metric]:
        for metric in self._counted.collect():
            # Creation times would double the series, and are not used.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield from self._current


def _event_loop_metrics(loop: EventLoopFigures | None) -> Iterator[Metric]:
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
