"""Spans arrive with the right parents and times while the call runs, and a collector that fails costs no call."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.client import connect
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.tracing.otel import OtelTracing
from voicepipe.telemetry.tracing.otel_export import exporting
from voicepipe.telemetry.tracing.port import OUTGOING, REQUEST_TRACE, NoTracing, TraceContext
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import eventually
from voicepipe.turn.record.values import ModelAttempt

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
BEGAN_MS = 1_700_000_000_000
"""When the session's clock was 0."""

WITH_OTEL = {"telemetry.otel": True}


@asynccontextmanager
async def sending() -> AsyncIterator[OtelTracing]:
    """The way to the collector, opened and closed as the server does it."""
    way = exporting()
    given = await asyncio.to_thread(way.__enter__)
    try:
        yield OtelTracing(*given)
    finally:
        await asyncio.to_thread(way.__exit__, None, None, None)


@contextmanager
def called_by(traceparent: str) -> Any:
    before = REQUEST_TRACE.set(TraceContext.of(traceparent, "vendor=1"))
    yield
    REQUEST_TRACE.reset(before)


def stored_turn(**changes: Any) -> StoredTurn:
    record = turn_record(**{"providers": (("stt", "a/ear"), ("llm", "groq/llama"), ("tts", "a/voice")), **changes})
    return StoredTurn(record, "acme", "default", BEGAN_MS + record.marks[0][1])


def session(tracing: OtelTracing, id_: str = "sess_1") -> Any:
    return tracing.session(id_, project="acme", agent="default", model="gpt-realtime")


async def test_a_turn_arrives_while_its_session_goes_on(collector: Any) -> None:
    """Session above turn above stages; each began and ended when the record's marks say, to the millisecond."""
    async with sending() as tracing:
        with session(tracing):
            tracing.on_turn_end(stored_turn())
            turn = await collector.span(lambda span: span.name == "turn")
            await collector.span(lambda span: span.name == "chat llama")
            assert not [span for span in collector.spans if span.name.startswith("invoke_agent")]
        above = await collector.span(lambda span: span.name == "invoke_agent default")
    below = {span.name: span for span in collector.spans if span.parent == turn.id}
    assert (turn.parent, turn.trace) == (above.id, above.trace)
    assert (turn.began_ms, turn.ended_ms) == (BEGAN_MS + 5_000, BEGAN_MS + 5_983 + 2_400)
    assert turn.about["voicepipe.turn_latency_ms"] == 983
    assert "voicepipe.breach" not in turn.about
    assert turn.about["gen_ai.conversation.id"] == above.about["gen_ai.conversation.id"] == "sess_1"
    times = {name: (span.began_ms - BEGAN_MS, span.ended_ms - BEGAN_MS) for name, span in below.items()}
    assert times == {
        "silence": (5_000, 5_500),
        "endpoint": (5_500, 5_525),
        "llm_ttft": (5_525, 5_760),
        "chat llama": (5_525, 5_983),
        "first_clause": (5_760, 5_820),
        "tts_ttfb": (5_820, 5_930),
        "overhead": (5_930, 5_933),
        "playback": (5_933, 5_983),
    }
    chat = below["chat llama"].about
    assert chat["gen_ai.operation.name"] == "chat"
    assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == ("groq", "llama")
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.cache_read.input_tokens"]) == (120, 96)
    assert chat["gen_ai.response.time_to_first_chunk"] == 0.235
    assert {span.service for span in collector.spans} == {"voicepipe"}
    text = json.dumps([span.about for span in collector.spans])
    assert "What time" not in text
    assert "noon" not in text


async def test_every_question_to_a_model_is_a_span_of_its_own(collector: Any) -> None:
    """A hedge that won, and the one that lost, until the other spoke."""
    attempts = (
        ModelAttempt(provider="slow/m", role="primary", outcome="lost", began_ms=0, first_ms=None),
        ModelAttempt(provider="groq/llama", role="hedge", outcome="spoke", began_ms=150, first_ms=85, cost_usd=0.002),
    )
    async with sending() as tracing:
        tracing.on_turn_end(stored_turn(attempts=attempts))
    lost, won = (next(span for span in collector.spans if span.name == f"chat {name}") for name in ("m", "llama"))
    assert (lost.began_ms - BEGAN_MS, lost.ended_ms - BEGAN_MS) == (5_525, 5_760)
    assert (won.began_ms - BEGAN_MS, won.ended_ms - BEGAN_MS) == (5_675, 5_983)
    assert "gen_ai.usage.input_tokens" not in lost.about
    assert (won.about["voicepipe.role"], won.about["gen_ai.usage.output_tokens"]) == ("hedge", 24)


async def test_a_failed_turn_is_an_error(collector: Any) -> None:
    marks = (("voiced_last", 100), ("ended", 600), ("llm_requested", 605))
    async with sending() as tracing:
        tracing.on_turn_end(stored_turn(marks=marks, outcome="failed", reason="llm: HTTP 503", spoken_ms=0))
    turn, chat = (next(span for span in collector.spans if span.name == name) for name in ("turn", "chat llama"))
    assert turn.is_error
    assert chat.is_error
    assert chat.about["error.type"] == "failed"
    assert turn.about["voicepipe.turn.reason"] == "llm: HTTP 503"


async def test_a_clients_trace_goes_on(collector: Any) -> None:
    """The trace is passed on to providers that are called meanwhile; a trace that the client does not sample is not
    sent.
    """
    async with sending() as tracing:
        with called_by(TRACEPARENT), session(tracing):
            version, trace, above, flags = OUTGOING.get().split("-")
        with called_by(f"00-{TRACE}-{SPAN}-00"), session(tracing, "sess_2"):
            pass
    (span,) = collector.spans
    assert (span.trace, span.parent) == (TRACE, SPAN)
    assert (version, trace, above, flags) == ("00", TRACE, span.id, "01")


async def test_the_usual_switches_switch_it_off(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Altogether, or spans or figures alone."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with sending() as tracing:
        with session(tracing):
            assert OUTGOING.get() == ""
            tracing.on_turn_end(stored_turn())
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    async with sending() as tracing:
        tracing.on_turn_end(stored_turn())
    assert collector.spans == []
    assert "voicepipe.turn_latency" in collector.figures
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    collector.figures.clear()
    async with sending() as tracing:
        tracing.on_turn_end(stored_turn())
    assert collector.figures == set()
    assert len(collector.spans) == 9


async def test_who_sends_is_as_the_environment_names_it(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "front-desk")
    async with sending() as tracing:
        tracing.on_turn_end(stored_turn())
    assert {span.service for span in collector.spans} == {"front-desk"}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        TRACEPARENT.upper(),
    ],
)
def test_a_malformed_header_counts_as_none(header: str) -> None:
    """As W3C Trace Context has it."""
    assert TraceContext.of(header, "a=1") == TraceContext()
    assert TraceContext.of(TRACEPARENT, "x" * 600) == TraceContext(TRACEPARENT, "")


async def test_figures_are_sent_while_calls_run(collector: Any) -> None:
    async with sending() as tracing:
        with session(tracing):
            tracing.on_turn_end(stored_turn(marks=(*stored_turn().record.marks, ("last_delta", 6_500))))

            async def came() -> bool | None:
                return {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} <= collector.figures or None

            await eventually(came)
    assert {"voicepipe.turn_latency", "gen_ai.client.operation.time_to_first_chunk"} <= collector.figures


async def test_a_collector_that_hangs_costs_spans_and_no_call(collector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans without room are dropped and counted; no call waits."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    collector.stuck = asyncio.Event()
    async with sending() as tracing:
        with session(tracing):

            async def requested() -> bool | None:
                return collector.n_requests > 0 or None

            tracing.on_turn_end(stored_turn())
            await eventually(requested)
            for n in range(5):
                tracing.on_turn_end(stored_turn(id=f"turn_{n}"))
            assert tracing.dropped >= 5 * 9 - 10
            collector.stuck.set()
    assert len(collector.spans) + tracing.dropped == 6 * 9 + 1
    assert tracing.lost == 0


async def test_spans_that_are_refused_are_lost_and_the_log_says_so_once(
    collector: Any, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    async with sending() as tracing:
        for n in range(3):
            tracing.on_turn_end(stored_turn(id=f"turn_{n}"))

            async def lost(n: int = n) -> bool | None:
                return tracing.lost >= 9 * (n + 1) or None

            await eventually(lost)
    assert tracing.lost == 27
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == ["spans_lost"]


async def test_a_port_without_a_collector_takes_everything() -> None:
    tracing = NoTracing()
    with tracing.session("s", project="p", agent="a", model="m"), tracing.answer("chat", "i", project="p", model="m"):
        tracing.on_turn_end(stored_turn())
    assert (tracing.dropped, tracing.lost) == (0, 0)


async def stored_record(http: aiohttp.ClientSession, url: str) -> Any:
    """The one turn, when the store has its end."""
    async with http.get(url) as text:
        (record,) = (await text.json())["data"]
    return record if record["outcome"] else None


@pytest.mark.slow
async def test_a_whole_server_sends_what_its_records_say(collector: Any, fake_server: Any, question: Path) -> None:
    """The user's trace, the session, the turn as `GET /v1/turns` has it; vendors get the id of the session's span."""
    async with fake_server(WITH_OTEL) as server, aiohttp.ClientSession() as http:
        async with connect(server.url) as call:
            await call.turn(read_sound(question, 24_000))
            turn = await collector.span(lambda span: span.name == "turn")
            record = await eventually(partial(stored_record, http, f"{server.url}/v1/turns"))
            chats = [span for span in collector.spans if span.name.startswith("chat ")]
        above = await collector.span(lambda span: span.name == "invoke_agent default")
        headers = {"traceparent": TRACEPARENT}
        async with http.ws_connect(f"{server.url}/v1/realtime", headers=headers) as socket:
            await socket.receive()
        of_request = await collector.span(lambda span: span.parent == SPAN)
    assert turn.parent == above.id
    assert turn.about["voicepipe.turn.id"] == record["id"]
    assert turn.began_ms == datetime.fromisoformat(record["started_at"]).timestamp() * 1_000
    assert {chat.parent for chat in chats} == {turn.id}
    requested = server.vendor.llm.received[0].headers
    assert requested["traceparent"].startswith(f"00-{above.trace}-{above.id}-")
    assert of_request.trace == TRACE


async def test_answers_over_rest_are_spans_and_say_so(collector: Any, fake_server: Any) -> None:
    async with fake_server(WITH_OTEL) as server, aiohttp.ClientSession() as http:
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello."}]}
        headers = {"traceparent": TRACEPARENT}
        async with http.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
            text = answer.headers["traceresponse"]
        async with http.get(f"{server.url}/healthz") as plain:
            assert "traceresponse" not in plain.headers
        span = await collector.span(lambda span: span.name == "chat default")
    assert (span.trace, span.parent) == (TRACE, SPAN)
    assert text == f"00-{TRACE}-{span.id}-01"
    assert server.vendor.llm.received[0].headers["traceparent"] == text
    assert span.about["voicepipe.outcome"] == "completed"
    assert span.about["gen_ai.provider.name"] == "fake"


async def test_a_server_without_it_sends_nothing(fake_server: Any) -> None:
    async with fake_server() as server, aiohttp.ClientSession() as http:
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello."}]}
        headers = {"traceparent": TRACEPARENT}
        async with http.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
            assert "traceresponse" not in answer.headers
    assert "traceparent" not in server.vendor.llm.received[0].headers
