"""Scheduled benches measure what is due within their cost limits, and report what has changed."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from voicepipe.bench.scheduled.run_log import BenchLog, BenchRun, open_log
from voicepipe.bench.scheduled.schedule import Schedule
from voicepipe.cli import main
from voicepipe.clock import unix_ms
from voicepipe.config import load
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, StageBroken
from voicepipe.providers.net import connection_pool, http
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.testing.fakes.cues import LlmCue, Status
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import running, scheduled_benches
from voicepipe.wiring.bench_jobs import BenchJob, MeasuredRequest, bench_jobs
from voicepipe.wiring.scheduled_benches import ScheduledBenches
from voicepipe.wiring.stages import Stages


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = unix_ms()

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    hand_clock = Clock()
    monkeypatch.setattr(scheduled_benches, "unix_ms", hand_clock)
    return hand_clock


async def eventually_true(is_true: Callable[[], bool]) -> None:
    async def reached() -> bool | None:
        return is_true() or None

    await eventually(reached)


def settings_of(folder: Path, **overrides: Any) -> Settings:
    given = {name.replace("__", "."): value for name, value in overrides.items()}
    return load(overrides={"server.data_dir": str(folder), **given}, environ={"HOME": str(folder)}, folder=folder)


def job(*results: MeasuredRequest, request_usd: float = 0.0, every_minutes: int = 60) -> BenchJob:
    async def measure() -> Sequence[MeasuredRequest]:
        return results

    return BenchJob(
        bench="b",
        stage="llm",
        model="a/m",
        schedule=Schedule(every_minutes),
        request_usd=request_usd,
        requests=max(1, len(results)),
        measure=measure,
    )


def benches_of(folder: Path, job: BenchJob, **overrides: Any) -> tuple[ScheduledBenches, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    made = ScheduledBenches(settings_of(folder, **overrides), [job], lambda make: events.append(make()))
    return made, events


def values(samples: Any, name: str) -> dict[tuple[str, ...], float]:
    return {each.labels: each.value for each in samples if isinstance(each, Sample) and each.name == name}


async def test_a_run_is_stored_with_its_latencies_and_its_cost(tmp_path: Path) -> None:
    answers = [MeasuredRequest(100.0, 0.01), MeasuredRequest(None, None, "HTTP 500"), MeasuredRequest(120.0, 0.02)]
    benches, _ = benches_of(tmp_path, job(*answers, request_usd=0.05))
    with open_log(tmp_path) as log:
        await benches.run_due(log)
        (run,) = log.runs
        assert (run.result, run.latencies_ms, run.failed, run.why) == ("measured", (100.0, 120.0), 1, "HTTP 500")
        assert run.usd == pytest.approx(0.01 + 0.02 + 0.05)  # the failed one, at its most
        await benches.run_due(log)  # not due again yet
        assert len(log.runs) == 1
    assert values(benches.samples(), "bench_runs_total") == {("measured",): 1, ("failed",): 0, ("over_cap",): 0}
    assert not benches.has_problem()


@pytest.mark.parametrize(
    ("day", "month", "result"),
    [(1.0, 10.0, "measured"), (0.99, 10.0, "over_cap"), (10.0, 0.99, "over_cap")],
)
async def test_no_run_begins_that_could_cost_more_than_is_left(
    tmp_path: Path, day: float, month: float, result: str
) -> None:
    answers = [MeasuredRequest(100.0, 0.01)] * 10
    limits = {"bench_schedule__usd_per_day": day, "bench_schedule__usd_per_month": month}
    benches, _ = benches_of(tmp_path, job(*answers, request_usd=0.05), **limits)
    with open_log(tmp_path) as log:
        log.write(BenchRun(id="x", at_ms=unix_ms(), bench="o", stage="llm", model="a/m", result="began", usd=0.5))
        await benches.run_due(log)
        run = log.runs[-1]
    assert run.result == result
    assert benches.has_problem() == (result == "over_cap")
    if result == "over_cap":
        assert run.usd == 0
        assert run.why == "it may cost 0.500000 USD, and 0.490000 USD are left"


def test_each_result_is_counted_from_zero(tmp_path: Path) -> None:
    """Prometheus sees no increase in a counter that begins with 1: no alert would report the first failure."""
    benches, _ = benches_of(tmp_path, job(MeasuredRequest(5.0, 0.0)))
    assert values(benches.samples(), "bench_runs_total") == {("measured",): 0, ("failed",): 0, ("over_cap",): 0}


async def test_what_costs_nothing_is_measured_without_a_limit(tmp_path: Path) -> None:
    benches, _ = benches_of(tmp_path, job(MeasuredRequest(5.0, 0.0)), bench_schedule__usd_per_day=0)
    with open_log(tmp_path) as log:
        await benches.run_due(log)
        assert log.runs[-1].result == "measured"


async def test_the_log_knows_a_run_before_its_first_request(tmp_path: Path) -> None:
    """So a process that is killed has still spent the most that the run can cost."""
    states: list[BenchRun] = []

    async def measure() -> Sequence[MeasuredRequest]:
        states.extend(log.runs)
        return (MeasuredRequest(5.0, 0.001),)

    job = BenchJob(
        bench="b",
        stage="llm",
        model="a/m",
        schedule=Schedule(60),
        request_usd=0.2,
        requests=1,
        measure=measure,
    )
    benches, _ = benches_of(tmp_path, job)
    with open_log(tmp_path) as log:
        await benches.run_due(log)
    assert [(each.result, each.usd) for each in states] == [("began", 0.2)]


@pytest.mark.parametrize(("n_answered", "result"), [(0, "failed"), (1, "failed"), (9, "failed"), (10, "measured")])
async def test_a_run_with_few_answers_has_failed(tmp_path: Path, n_answered: int, result: str) -> None:
    """Less than half of 20 say nothing of what users get; they stay readable, and begin no comparison."""
    broken = [MeasuredRequest(None, None, "HTTP 500")] * (20 - n_answered)
    benches, _ = benches_of(tmp_path, job(*[MeasuredRequest(100.0, 0.0)] * n_answered, *broken))
    with open_log(tmp_path) as log:
        await benches.run_due(log)
        (run,) = log.runs
    assert (run.result, len(run.latencies_ms), run.failed) == (result, n_answered, 20 - n_answered)
    few = f"{n_answered} of 20 requests were answered; HTTP 500"
    assert run.why == (few if n_answered in (1, 9) else "HTTP 500")
    assert benches.has_problem() is (result == "failed")


@pytest.mark.parametrize("error", [StageBroken("llm", provider="a/m", why="cut", retryable=True), KeyError("choices")])
async def test_a_run_that_breaks_is_counted_and_the_next_one_goes_on(tmp_path: Path, error: Exception) -> None:
    async def measure() -> Sequence[MeasuredRequest]:
        raise error

    job = BenchJob(
        bench="b",
        stage="llm",
        model="a/m",
        schedule=Schedule(60),
        request_usd=0.0,
        requests=1,
        measure=measure,
    )
    benches, _ = benches_of(tmp_path, job)
    with open_log(tmp_path) as log:
        await benches.run_due(log)
        assert (log.runs[-1].result, bool(log.runs[-1].why)) == ("failed", True)
    assert values(benches.samples(), "bench_runs_total") == {("measured",): 0, ("failed",): 1, ("over_cap",): 0}
    assert benches.has_problem()


def fill(log: BenchLog, n: int, ms: float) -> None:
    for i in range(n):
        began_ms = unix_ms() - (n - i) * 3_600_000
        spread = tuple(ms + j for j in range(20))
        log.write(
            BenchRun(
                id=f"{i}", at_ms=began_ms, bench="b", stage="llm", model="a/m", result="measured", latencies_ms=spread
            )
        )


async def test_drift_is_reported_once_when_it_begins(tmp_path: Path, clock: Clock) -> None:
    answers = [MeasuredRequest(400.0 + n, 0.0) for n in range(20)]
    benches, events = benches_of(tmp_path, job(*answers, every_minutes=1))
    with open_log(tmp_path) as log:
        fill(log, 10, 200.0)
        await benches.run_due(log)
        assert {event["figure"] for event in events} == {"p50", "p95"}
        assert events[0] == {
            "bench": "b",
            "stage": "llm",
            "provider": "a/m",
            "figure": "p50",
            "before_ms": {"value": 209.0, "low": 208.0, "high": 211.0},
            "after_ms": {"value": 409.0, "low": 403.0, "high": 415.0},
            "change_ms": {"value": 200.0, "low": 193.7, "high": 206.1},
            "drifted": True,
        }
        assert values(benches.samples(), "bench_drift") == {
            ("b", "llm", "a/m", "p50"): 1,
            ("b", "llm", "a/m", "p95"): 1,
        }
        assert values(benches.samples(), "bench_latency_seconds")["b", "llm", "a/m", "p50"] == 0.409
        assert benches.has_problem()
        clock.now_ms += 60_000
        await benches.run_due(log)  # the same again
        assert log.runs[-1].at_ms == clock.now_ms
    assert len(events) == 2


async def test_an_alert_ends_when_the_latency_is_as_before(tmp_path: Path, clock: Clock) -> None:
    benches, events = benches_of(tmp_path, job(*[MeasuredRequest(200.0 + n, 0.0) for n in range(20)], every_minutes=1))
    with open_log(tmp_path) as log:
        fill(log, 10, 200.0)
        await benches.run_due(log)
    assert events == []
    assert set(values(benches.samples(), "bench_drift").values()) == {0}


async def test_runs_older_than_keep_days_are_deleted(tmp_path: Path, clock: Clock) -> None:
    benches, _ = benches_of(tmp_path, job(MeasuredRequest(5.0, 0.0)), bench_schedule__keep_days=31)
    with open_log(tmp_path) as log:
        fill(log, 3, 200.0)
        clock.now_ms += 33 * 86_400_000
        await benches.run_due(log)
        assert len(log.runs) == 1


async def test_another_process_that_measures_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measured = asyncio.Event()

    async def measure() -> Sequence[MeasuredRequest]:
        measured.set()
        return (MeasuredRequest(5.0, 0.0),)

    job = BenchJob(
        bench="b",
        stage="llm",
        model="a/m",
        schedule=Schedule(60),
        request_usd=0.0,
        requests=1,
        measure=measure,
    )
    benches, _ = benches_of(tmp_path, job)
    monkeypatch.setattr(scheduled_benches, "MAX_WAIT_S", 0.01)
    async with asyncio.TaskGroup() as group:
        with open_log(tmp_path):
            running_task = group.create_task(benches.run())
            await eventually_true(lambda: any(each.message == "benches_not_measured" for each in caplog.records))
            assert not measured.is_set()
        await measured.wait()
        running_task.cancel()


# --- jobs of the settings -----------------------------------------------------------------------


def priced(vendor: FakeVendor) -> dict[str, Any]:
    return {
        "providers.quick.base_url": vendor.base_url,
        "providers.quick.input_usd_per_million": 1.0,
        "providers.quick.output_usd_per_million": 10.0,
    }


def loaded(folder: Path, overrides: dict[str, Any]) -> Settings:
    return load(
        overrides={"server.data_dir": str(folder / "data"), **overrides}, environ={"HOME": str(folder)}, folder=folder
    )


def test_a_bench_needs_models_with_known_prices(tmp_path: Path) -> None:
    address = {"providers.quick.base_url": "http://127.0.0.1:9/v1"}
    for stage, name in (("llm", "input_usd_per_million"), ("tts", "tts_usd_per_million_chars")):
        settings = loaded(
            tmp_path,
            {**address, "benches.b.models": "quick/m", "benches.b.stage": stage, "benches.b.every_minutes": 60},
        )
        with pytest.raises(ConfigError, match=rf"benches\.b: .*set providers\.quick\.{name}"):
            list(bench_jobs(settings, Stages(settings)))


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"benches.b.every_minutes": 5}, "benches.b.models: expected one or more models"),
        ({"benches.b.models": "nowhere/m", "benches.b.every_minutes": 5}, "benches.b.models: no provider is called"),
        ({"benches.b.models": "local/x"}, "benches.b.every_minutes: expected it or benches.b.at"),
        ({"benches.b c.models": "local/x"}, "benches.b c: expected a name of letters"),
        (
            {"benches.b.models": "local/x", "benches.b.stage": "stt", "benches.b.every_minutes": 5},
            "benches.b.manifest: expected a file of recordings",
        ),
    ],
)
def test_wrong_benches_are_refused(tmp_path: Path, overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        loaded(tmp_path, overrides)


def test_the_most_that_a_run_can_cost(tmp_path: Path) -> None:
    """Each byte of a question may be a token, and each answer as long as allowed; warm questions are sent before."""
    (tmp_path / "prompts.txt").write_text("12345\n")
    overrides = {
        "providers.quick.base_url": "http://127.0.0.1:9/v1",
        "providers.quick.input_usd_per_million": 1.0,
        "providers.quick.output_usd_per_million": 10.0,
        "benches.b.models": "quick/m",
        "benches.b.every_minutes": 60,
        "benches.b.prompts": str(tmp_path / "prompts.txt"),
        "benches.b.n": 3,
        "benches.b.max_output_tokens": 20,
    }
    settings = loaded(tmp_path, overrides)
    (cold,) = bench_jobs(settings, Stages(settings))
    assert cold.run_usd == pytest.approx(3 * (105 * 1.0 + 20 * 10.0) / 1e6)
    settings = loaded(tmp_path, {**overrides, "benches.b.cache": "warm"})
    (warm,) = bench_jobs(settings, Stages(settings))
    assert warm.run_usd == pytest.approx(4 / 3 * cold.run_usd)


async def test_a_server_measures_its_benches_and_shows_them(tmp_path: Path) -> None:
    async with FakeVendor() as vendor:
        overrides = {
            **priced(vendor),
            "server.port": 0,
            "server.drain_ms": 0,
            "providers.quick.tts_usd_per_million_chars": 1.0,
            "agents.default.stt": "quick/ear",
            "agents.default.llm": "quick/mind",
            "agents.default.tts": "quick/mouth",
            "benches.words.models": "quick/m",
            "benches.words.every_minutes": 60,
            "benches.words.n": 3,
            "benches.voices.stage": "tts",
            "benches.voices.models": "quick/mouth",
            "benches.voices.at": "03:00",
        }
        settings = loaded(tmp_path, overrides)
        async with running(settings) as server, aiohttp.ClientSession() as http:

            async def measured() -> dict[str, Any] | None:
                async with http.get(f"{server.base_url}/v1/benches") as answer:
                    state: dict[str, Any] = await answer.json()
                words = next(each for each in state["data"] if each["bench"] == "words")
                return state if words["result"] == "measured" else None

            async def counted() -> str | None:
                async with http.get(f"{server.base_url}/metrics") as answer:
                    text = await answer.text()
                return text if 'voicepipe_bench_runs_total{result="measured"} 1.0' in text else None

            state = await eventually(measured)
            metrics = await eventually(counted)  # the log is written first, for whoever measures next
    voices, words = sorted(state["data"], key=lambda each: each["bench"])
    assert (words["id"], words["stage"], words["answers"], words["why"]) == ("quick/m", "llm", 3, "")
    assert words["p50_ms"] > 0
    assert words["next_at_ms"] == words["at_ms"] + 3_600_000
    assert (voices["result"], voices["runs"]) == (None, 0)
    assert 0 < state["day_usd"] == state["month_usd"] < state["usd_per_day"]
    assert "voicepipe_bench_cost_usd_total" in metrics


async def test_speech_is_measured_too(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "data" / "clean"
    sound = next(iter(sorted(folder.glob("*.flac"))))
    (tmp_path / "manifest.jsonl").write_text(f'{{"path": "{sound}", "text": "hello"}}\n')
    async with FakeVendor() as vendor:
        overrides = {
            **priced(vendor),
            "providers.quick.tts_usd_per_million_chars": 1.0,
            "providers.quick.stt_usd_per_minute": 0.001,
            "benches.listening.stage": "stt",
            "benches.listening.models": "quick/ear",
            "benches.listening.manifest": str(tmp_path / "manifest.jsonl"),
            "benches.listening.every_minutes": 60,
            "benches.listening.n": 1,
            "benches.voices.stage": "tts",
            "benches.voices.models": "quick/mouth",
            "benches.voices.every_minutes": 60,
            "benches.voices.n": 2,
        }
        settings = loaded(tmp_path, overrides)
        settings.data_path.mkdir()
        async with http.lifetime(), connection_pool.lifetime():
            jobs = list(bench_jobs(settings, Stages(settings)))
            benches = ScheduledBenches(settings, jobs, lambda make: None)
            with open_log(settings.data_path) as log:
                await benches.run_due(log)
                transcribed, spoken = log.runs
    assert (transcribed.result, len(transcribed.latencies_ms), transcribed.why) == ("measured", 1, "")
    assert transcribed.usd == pytest.approx(jobs[0].run_usd)  # the only recording, and the pause behind it
    assert (spoken.result, len(spoken.latencies_ms), spoken.why) == ("measured", 2, "")
    assert 0 < spoken.usd <= 2 * 110 / 1e6


# --- the command --------------------------------------------------------------------------------


async def command(folder: Path, vendor: FakeVendor, *arguments: str) -> int:
    prices = [f"--set={key}={value}" for key, value in priced(vendor).items()]
    bench = ["--set=benches.daily.models=quick/m", "--set=benches.daily.at=03:00", "--set=benches.daily.n=2"]
    data = ["--data-dir", str(folder / "data")]
    return await asyncio.to_thread(main, ["bench", "schedule", *prices, *bench, *data, *arguments])


async def test_the_command_measures_what_is_due_and_lists_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeVendor() as vendor:
        assert await command(tmp_path, vendor, "--once") == 0
        first = capsys.readouterr()
        assert await command(tmp_path, vendor, "--once") == 0  # only due tomorrow
        second = capsys.readouterr()
        assert await command(tmp_path, vendor, "--list") == 0
        listed = capsys.readouterr().out
    assert "| daily | quick/m |" in first.out
    assert "| measured | 2 |" in first.out
    assert "bench_run" in first.err
    assert "bench_run" not in second.err
    assert listed == second.out
    assert "USD" in listed.splitlines()[-1]


async def test_the_command_fails_where_a_bench_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeVendor() as vendor:
        vendor.llm.cue(LlmCue(fault=Status(500)), LlmCue(fault=Status(500)))
        assert await command(tmp_path, vendor, "--once") == 1
    assert "| failed | 0 | - | - |" in capsys.readouterr().out


async def test_the_command_sends_its_webhooks_before_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    received: list[dict[str, Any]] = []

    async def receive(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", receive)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with open_log(data) as log:
        for i in range(3):
            began_ms = unix_ms() - 86_400_000 * (9 - i)
            times = tuple(60_000.0 + n for n in range(20))
            log.write(
                BenchRun(
                    id=f"{i}",
                    at_ms=began_ms,
                    bench="daily",
                    stage="llm",
                    model="quick/m",
                    result="measured",
                    latencies_ms=times,
                )
            )
    async with FakeVendor() as vendor, TestServer(app) as receiver:
        hook = [f"--set=webhooks.ops.url={receiver.make_url('/hook')}", "--set=webhooks.ops.events=bench.drifted"]
        secret = f"--set=webhooks.ops.secret=whsec_{b64encode(bytes(24)).decode()}"
        status = await command(tmp_path, vendor, "--once", *hook, secret, "--set=benches.daily.n=10")
    assert status == 1
    (event,) = received
    assert event["type"] == "bench.drifted"
    assert (event["data"]["provider"], event["data"]["figure"]) == ("quick/m", "p50")
    assert "| p50 -" in capsys.readouterr().out


def test_the_command_needs_a_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "schedule", "--once", "--data-dir", str(tmp_path)]) == 2
    assert "benches: expected at least one [benches.NAME]" in capsys.readouterr().err
