"""Send spans and figures to an OpenTelemetry collector: the only module that needs the extra `otel`.

A turn's spans are made from its record when it ends, so they are as exact as its marks and cost the turn nothing.
Names are those of the GenAI semantic conventions, v1.41, where there are some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from voicepipe import __version__
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.tracing.otel_export import SpanQueue
from voicepipe.telemetry.tracing.port import OUTGOING, REQUEST_TRACE, Answered
from voicepipe.telemetry.tracing.spans import PlainSpan, provider_of, spans_of
from voicepipe.turn.record import marks as m

NS_PER_MS: Final = 1_000_000
SCOPE: Final = "voicepipe"

SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
TOKENS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)

OPERATIONS: Final = {
    "chat": "chat",
    "speech": "generate_content",
    "transcription": "generate_content",
    "translation": "generate_content",
    "embedding": "embeddings",
}
"""The conventions' operation names for answers over REST; the conventions have no operation of their own for audio."""


class OtelTracing:
    """Makes spans and figures from sessions, answers and turns. Meets the port `Tracing`."""

    def __init__(self, traces: TracerProvider, queue: SpanQueue, figures: MeterProvider) -> None:
        self._tracer: Tracer = traces.get_tracer(SCOPE, __version__)
        self._queue = queue
        self._figures = _Figures(figures.get_meter(SCOPE, __version__))
        self._sessions: dict[str, Context] = {}  # bounded: as many as are connected

    @property
    def dropped(self) -> int:
        """Return the number of spans dropped because the queue was full."""
        return self._queue.dropped

    @property
    def lost(self) -> int:
        """Return the number of spans that the collector did not take."""
        return self._queue.lost

    @contextmanager
    def session(self, id_: str, *, project: str, agent: str, model: str) -> Iterator[None]:
        """Open the span of a session while the block runs: parent of its turns' spans, child of the client's span."""
        about = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": id_,
            "gen_ai.request.model": model,
            "voicepipe.project": project,
        }
        span = self._tracer.start_span(f"invoke_agent {agent}", _request_context(), SpanKind.SERVER, about)
        self._sessions[id_] = set_span_in_context(span, Context())
        OUTGOING.set(traceparent(span))
        try:
            yield
        finally:
            del self._sessions[id_]
            span.end()

    @contextmanager
    def answer(self, kind: str, id_: str, *, project: str, model: str) -> Iterator[Answered]:
        """Open the span of an answer over REST that is made in the block."""
        about = {"gen_ai.operation.name": OPERATIONS[kind], "gen_ai.request.model": model, "gen_ai.response.id": id_}
        about["gen_ai.output.type"] = "speech" if kind == "speech" else "text"
        about["voicepipe.project"] = project
        name = f"{OPERATIONS[kind]} {model}"
        span, answered = self._tracer.start_span(name, _request_context(), SpanKind.SERVER, about), Answered()
        OUTGOING.set(traceparent(span))
        try:
            yield answered
        finally:
            if answered.provider:
                span.set_attributes(provider_of(answered.provider))
            _judge(span, answered.outcome)
            span.end()

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Send the spans of an ended turn: its own, and below it one for each stage and each LLM request."""
        began_unix_ms = turn.started_at_ms - (turn.record.marks[0][1] if turn.record.marks else 0)
        whole, *parts = spans_of(turn)
        above = self._start(whole, self._sessions.get(turn.record.session, Context()), began_unix_ms)
        for part in parts:
            _end(self._start(part, set_span_in_context(above, Context()), began_unix_ms), part, began_unix_ms)
        _end(above, whole, began_unix_ms)
        self._figures.count(turn)

    def _start(self, plain: PlainSpan, above: Context, began_unix_ms: int) -> Span:
        start_ns = (began_unix_ms + plain.start_ms) * NS_PER_MS
        kind = SpanKind.CLIENT if plain.is_request else SpanKind.INTERNAL
        return self._tracer.start_span(plain.name, above, kind, dict(plain.about), start_time=start_ns)


def _end(span: Span, plain: PlainSpan, began_unix_ms: int) -> None:
    _judge(span, plain.outcome)
    span.end((began_unix_ms + plain.end_ms) * NS_PER_MS)


def _judge(span: Span, outcome: str) -> None:
    if outcome:
        span.set_attribute("voicepipe.outcome", outcome)
    if outcome == "failed":
        span.set_attribute("error.type", "failed")
        span.set_status(Status(StatusCode.ERROR))


def _request_context() -> Context:
    """Return the trace context of the request, or an empty one: then a new trace begins."""
    trace = REQUEST_TRACE.get()
    headers = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
    return TraceContextTextMapPropagator().extract({name: text for name, text in headers.items() if text}, Context())


def traceparent(span: Span) -> str:
    """Return a span as the header names it (W3C Trace Context, 3.2); empty when `OTEL_SDK_DISABLED` is set."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


class _Figures:
    """Histograms that are sent while sessions run, at the interval of `OTEL_METRIC_EXPORT_INTERVAL`."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, what: str) -> Histogram:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=SECONDS)

        self._duration = seconds("gen_ai.client.operation.duration", "Duration of LLM answers")
        self._first = seconds("gen_ai.client.operation.time_to_first_chunk", "Time from a request to its first output")
        self._turn_latency = seconds("voicepipe.turn_latency", "Turn latency: last voiced sample to first audible one")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of LLM answers", explicit_bucket_boundaries_advisory=TOKENS
        )

    def count(self, turn: StoredTurn) -> None:
        record, marks = turn.record, dict(turn.record.marks)
        if record.total_ms is not None:
            about = {"gen_ai.agent.name": turn.agent, "voicepipe.outcome": record.outcome or ""}
            self._turn_latency.record(max(0, record.total_ms) / 1_000, about)
        spec = dict(record.providers).get("llm", "")
        if not spec or m.LLM_REQUESTED not in marks:
            return
        model: Mapping[str, str] = {"gen_ai.operation.name": "chat", **provider_of(spec)}
        if m.FIRST_DELTA in marks:
            self._first.record(max(0, marks[m.FIRST_DELTA] - marks[m.LLM_REQUESTED]) / 1_000, model)
        if m.LAST_DELTA in marks:
            self._duration.record(max(0, marks[m.LAST_DELTA] - marks[m.LLM_REQUESTED]) / 1_000, model)
        for kind, count in (("input", record.tokens.input), ("output", record.tokens.output)):
            if count:
                self._tokens.record(count, {**model, "gen_ai.token.type": kind})
