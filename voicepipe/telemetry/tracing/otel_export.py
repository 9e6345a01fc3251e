"""Export to the collector: a bounded queue of spans, a thread that sends them, and figures at an interval.

The `OTEL_*` environment variables set the address and the interval, as usual.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from voicepipe import __version__
from voicepipe.telemetry.log import log_event

CLOSE_S: Final = 3.0
"""Time limit of the shutdown for a collector that does not answer."""


class SpanQueue(SpanProcessor):
    """Takes spans at once and sends them from a thread of its own, many at a time."""

    def __init__(self, exporter: SpanExporter) -> None:
        """The sizes are the defaults of `OTEL_BSP_*`: queue 2048, batch 512, delay 5 s."""
        self._exporter = exporter
        self._batch = _number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)
        self._delay_s = _number("OTEL_BSP_SCHEDULE_DELAY", 5_000) / 1_000
        self._max_waiting = _number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048)
        # Full means that the collector is slow or down: a new span is dropped and counted.
        self._waiting: deque[ReadableSpan] = deque()
        self._due, self._closing = threading.Event(), threading.Event()
        self._failing = False
        self.dropped = 0
        """Spans dropped because the queue was full."""
        self.lost = 0
        """Spans that the collector did not take."""
        self._thread = threading.Thread(target=self._send_all, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing at a span's start."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended, if it was sampled."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if len(self._waiting) >= self._max_waiting or self._closing.is_set():
            self.dropped += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= self._batch:
            self._due.set()

    def shutdown(self) -> None:
        """Send queued spans, within `CLOSE_S`, and end the thread. Blocks."""
        self._closing.set()
        self._due.set()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()  # ends its tries; a request that hangs ends with the process
        self._thread.join(CLOSE_S / 10)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Start to send queued spans; doesn't wait for it."""
        self._due.set()
        return True

    def _send_all(self) -> None:
        while not self._closing.is_set() or self._waiting:
            self._due.wait(self._delay_s)
            self._due.clear()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))])

    def _send(self, spans: list[ReadableSpan]) -> None:
        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # any error of a collector, or of a span, is not worth a session
            taken = False
        if not taken:
            self.lost += len(spans)
            if not self._failing:
                log_event("spans_lost", level=logging.WARNING, count=len(spans))
        self._failing = not taken


@contextmanager
def exporting() -> Iterator[tuple[TracerProvider, SpanQueue, MeterProvider]]:
    """Open the export to the collector while the block runs. Leaving blocks until it has the queued spans."""
    # The exporters write a line for each failed try; lost spans are logged once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = _resource()
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    queue = SpanQueue(OTLPSpanExporter())
    if _is_exported("OTEL_TRACES_EXPORTER"):
        traces.add_span_processor(queue)
    readers: list[MetricReader] = []
    if _is_exported("OTEL_METRICS_EXPORTER"):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    figures = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    try:
        yield traces, queue, figures
    finally:
        queue.shutdown()
        figures.shutdown(timeout_millis=CLOSE_S * 1_000)


def _is_exported(variable: str) -> bool:
    return os.environ.get(variable, "otlp").strip().lower() != "none"


def _resource() -> Resource:
    """Return the sender: from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, else `voicepipe`."""
    named = Resource.create({SERVICE_VERSION: __version__})
    is_unknown = str(named.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return named.merge(Resource({SERVICE_NAME: "voicepipe"})) if is_unknown else named


def _number(variable: str, usual: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else usual
