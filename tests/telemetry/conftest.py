"""A stand-in for an OpenTelemetry collector, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from voicepipe.testing.waiting import eventually


@dataclass(frozen=True)
class Received:
    """A span as it came. Ids are hexadecimal; times are ms since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    began_ms: int
    ended_ms: int
    about: dict[str, Any]
    is_error: bool
    service: str


@dataclass
class Collector:
    """What came, and how the next requests are answered."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    figures: set[str] = field(default_factory=set)
    status: int = 200
    stuck: asyncio.Event | None = None
    """Requests wait for it, if there is one."""
    n_requests: int = 0

    async def take_spans(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.n_requests += 1
        if self.stuck is not None:
            await self.stuck.wait()
        if self.status == 200:
            self.spans += spans_in(body)
        return web.Response(status=self.status)

    async def take_figures(self, request: web.Request) -> web.Response:
        sent = ExportMetricsServiceRequest.FromString(await request.read())
        scopes = (scope for resource in sent.resource_metrics for scope in resource.scope_metrics)
        self.figures |= {metric.name for scope in scopes for metric in scope.metrics}
        return web.Response()

    async def span(self, matches: Callable[[Received], bool]) -> Received:
        """The first that is so, when it has come."""

        async def found() -> Received | None:
            return next(filter(matches, self.spans), None)

        return await eventually(found)


def spans_in(body: bytes) -> list[Received]:
    sent = ExportTraceServiceRequest.FromString(body)
    return [
        Received(
            name=span.name,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            began_ms=span.start_time_unix_nano // 10**6,
            ended_ms=span.end_time_unix_nano // 10**6,
            about=plain(span.attributes),
            is_error=span.status.code == 2,
            service=plain(resource.resource.attributes)["service.name"],
        )
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """Answers where the environment says that the collector is."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take_spans)
    app.router.add_post("/v1/metrics", collector.take_figures)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    yield collector
    if collector.stuck is not None:
        collector.stuck.set()
    await runner.cleanup()
