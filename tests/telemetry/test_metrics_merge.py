"""The metrics of several workers as one server's."""

from __future__ import annotations

from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.merge import counters, merged, sample_text
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.turn.settings import BudgetLimits

NOW = (
    Sample("sessions", 3),
    Sample("sessions_limit", 100),
    Sample("sessions_opened_total", 7),
    Sample("connections_closed_total", 2, ("headers",)),
)


def worker(*more: Sample, answers: int) -> bytes:
    metrics = Metrics(BudgetLimits(), agents=frozenset(), providers=frozenset())
    for _ in range(answers):
        metrics.count_answer("chat", "completed", 700)
    return metrics.text([*NOW, *more])


def values(text: bytes) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_counts_are_added_and_limits_are_not() -> None:
    both = values(merged([worker(answers=1), worker(Sample("provider_alert", 1, ("llm", "a/b")), answers=2)]))
    assert both["voicepipe_sessions"] == 6
    assert both["voicepipe_sessions_limit"] == 100
    assert both["voicepipe_sessions_opened_total"] == 14
    assert both['voicepipe_connections_closed_total{why="headers"}'] == 4
    chat = 'kind="chat",outcome="completed"'
    assert both[f"voicepipe_http_request_duration_seconds_count{{{chat}}}"] == 3
    assert both['voicepipe_http_request_duration_seconds_bucket{kind="chat",le="0.5",outcome="completed"}'] == 0
    assert both['voicepipe_provider_alert{provider="a/b",stage="llm"}'] == 1


def test_the_age_is_that_of_the_oldest_process() -> None:
    texts = [b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n" % at for at in (20, 10)]
    assert values(merged(texts)) == {"process_start_time_seconds": 10}


def test_one_text_stays_as_it_is() -> None:
    text = worker(answers=1)
    assert values(merged([text])) == values(text)
    heads = [line for line in text.decode().splitlines() if line.startswith("#")]
    assert [line for line in merged([text]).decode().splitlines() if line.startswith("#")] == heads


def test_a_dead_worker_leaves_its_counters() -> None:
    left = values(counters(worker(answers=2)))
    assert left["voicepipe_sessions_opened_total"] == 7
    assert "voicepipe_sessions" not in left
    assert any(name.startswith("voicepipe_http_request_duration_seconds_bucket") for name in left)


def test_a_value_of_the_supervisor_is_a_sample_like_any_other() -> None:
    assert values(sample_text(Sample("workers", 2))) == {"voicepipe_workers": 2}
    assert values(sample_text(Sample("worker_restarts_total", 3))) == {"voicepipe_worker_restarts_total": 3}
    assert b"# TYPE voicepipe_worker_restarts_total counter" in sample_text(Sample("worker_restarts_total", 3))
