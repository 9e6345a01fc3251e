"""Measure the benches of the settings when they are due, within their cost limits, and report what has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from voicepipe.bench.compare import Interval, percentile
from voicepipe.bench.scheduled.drift import FIGURES, DriftRule, FigureChange, changes
from voicepipe.bench.scheduled.run_log import (
    FILE_NAME,
    BenchLog,
    BenchLogInUse,
    BenchRun,
    Result,
    open_log,
    read_runs,
    spent,
)
from voicepipe.bench.scheduled.schedule import DAY_MS, Schedule
from voicepipe.clock import unix_ms
from voicepipe.config.settings import Settings
from voicepipe.router.race_runner import failure_of
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.values import replace

if TYPE_CHECKING:
    from voicepipe.wiring.bench_jobs import BenchJob, MeasuredRequest

MAX_WAIT_S: Final = 60.0
"""The clock of the day may be set: what is due is computed again after this time."""

MIN_ANSWERED: Final = 0.5
"""Share of a run's requests that must be answered: what few answers show is not what users get."""

RESULTS: Final[tuple[Result, ...]] = ("measured", "failed", "over_cap")
"""How a run ends."""

Notify = Callable[[Callable[[], dict[str, Any]]], None]
"""Takes the data of a webhook event."""

Subject = tuple[str, str, str]
"""(bench, stage, model)"""


class ScheduledBenches:
    """The benches of one process. Only one process measures those of a data folder."""

    def __init__(
        self, settings: Settings, jobs: Sequence[BenchJob], notify: Notify, *, since_ms: int | None = None
    ) -> None:
        """`since_ms`: when the schedules began; None: now. Benches without a run have their first one after that."""
        self._settings, self._jobs, self._notify = settings, jobs, notify
        self._since_ms = unix_ms() if since_ms is None else since_ms
        schedule = settings.bench_schedule
        self._rule = DriftRule(share=schedule.drift_share, baseline_runs=schedule.baseline_runs)
        self._runs: dict[Subject, list[BenchRun]] = {job.subject: [] for job in jobs}
        # From 0: Prometheus computes no increase of a counter that begins with the first failure.
        self._results: dict[Result, int] = dict.fromkeys(RESULTS, 0) if jobs else {}
        self._usd = 0.0

    async def run(self) -> None:
        """Measure what is due until cancelled. While another process measures the same folder's, wait."""
        while self._jobs:
            try:
                with ExitStack() as stack:
                    log = await asyncio.to_thread(stack.enter_context, open_log(self._settings.data_path))
                    await self.run_due(log)
                    while True:
                        await self.run_next(log)
            except (OSError, BenchLogInUse) as why:
                log_event("benches_not_measured", level=logging.WARNING, why=str(why))
                await asyncio.sleep(MAX_WAIT_S)

    async def run_next(self, log: BenchLog) -> None:
        """Wait until a job is due, at most a minute, and measure it.

        Raises:
            OSError: as `run_due`.
        """
        await asyncio.sleep(self._wait_s())
        await self.run_due(log)

    async def run_due(self, log: BenchLog) -> None:
        """Measure once what is due now, one job after the other.

        Raises:
            OSError: the log can't be written. Nothing is measured without it.
        """
        keep_ms = self._settings.bench_schedule.keep_days * DAY_MS
        if log.runs and log.runs[0].at_ms < unix_ms() - keep_ms - DAY_MS:
            await asyncio.to_thread(log.delete_before, unix_ms() - keep_ms)
        self._read(log.runs)
        for job in self._jobs:
            if self._due_ms(job) <= unix_ms():
                await self._run(job, log)
                self._read(log.runs)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics."""
        for result, count in self._results.items():
            yield Sample("bench_runs_total", count, (result,))
        yield Sample("bench_cost_usd_total", self._usd)
        for subject, runs in self._runs.items():
            for change in changes(runs, self._rule):
                labels = (*subject, change.figure)
                yield Sample("bench_latency_seconds", change.after.value / 1_000, labels)
                yield Sample("bench_drift", _direction(change), labels)

    def has_problem(self) -> bool:
        """Return whether the latest run of any job has failed or was left out, or has drifted."""
        latest = [runs[-1] for runs in self._runs.values() if runs]
        drifted = (change.has_drifted for runs in self._runs.values() for change in changes(runs, self._rule))
        return any(run.result != "measured" for run in latest) or any(drifted)

    def _read(self, runs: Sequence[BenchRun]) -> None:
        by_subject: dict[Subject, list[BenchRun]] = {subject: [] for subject in self._runs}
        for run in runs:
            if run.subject in by_subject:
                by_subject[run.subject].append(run)
        self._runs = by_subject

    def _due_ms(self, job: BenchJob) -> int:
        runs = self._runs[job.subject]
        return job.schedule.next_ms(runs[-1].at_ms if runs else None, self._since_ms)

    def _wait_s(self) -> float:
        next_ms = min(map(self._due_ms, self._jobs))
        return min(MAX_WAIT_S, max(0.0, (next_ms - unix_ms()) / 1_000))

    async def _run(self, job: BenchJob, log: BenchLog) -> None:
        schedule, now_ms = self._settings.bench_schedule, unix_ms()
        began = BenchRun(
            id=uuid4().hex,
            at_ms=now_ms,
            bench=job.bench,
            stage=job.stage,
            model=job.model,
            result="began",
            usd=job.run_usd,
        )
        paid = spent(log.runs, now_ms)
        left_usd = min(schedule.usd_per_day - paid.day_usd, schedule.usd_per_month - paid.month_usd)
        if job.run_usd > left_usd and job.run_usd > 0:
            why = f"it may cost {job.run_usd:.6f} USD, and {max(0.0, left_usd):.6f} USD are left"
            run = replace(began, result="over_cap", usd=0.0, why=why)
        else:
            await asyncio.to_thread(log.write, began)
            run = await self._measured(job, began)
        before: set[str] = {
            change.figure for change in changes(self._runs[job.subject], self._rule) if change.has_drifted
        }
        await asyncio.to_thread(log.write, run)
        self._report(job, run, [*self._runs[job.subject], run], before)

    async def _measured(self, job: BenchJob, began: BenchRun) -> BenchRun:
        results: list[MeasuredRequest] = []

        async def work() -> None:
            results.extend(await job.measure())

        failure = await failure_of(job.stage, job.model, work())
        if failure is not None:  # the whole run broke: what it has used is not known
            return replace(began, result="failed", why=failure.why)
        errors = [each.error for each in results if each.error]
        latencies_ms = tuple(round(each.latency_ms, 2) for each in results if each.latency_ms is not None)
        n_unmeasured = job.requests - len(results)
        known_usd = sum(job.request_usd if each.usd is None else each.usd for each in results)
        is_measured = bool(latencies_ms) and len(latencies_ms) >= MIN_ANSWERED * len(results)
        why = errors[0] if errors else ""
        if latencies_ms and not is_measured:
            why = f"{len(latencies_ms)} of {len(results)} requests were answered; {why or 'the others had no latency'}"
        return replace(
            began,
            result="measured" if is_measured else "failed",
            usd=known_usd + n_unmeasured * job.request_usd,
            failed=len(errors),
            latencies_ms=latencies_ms,
            why=why,
        )

    def _report(self, job: BenchJob, run: BenchRun, runs: Sequence[BenchRun], before: set[str]) -> None:
        self._results[run.result] += 1
        self._usd += run.usd
        log_event(
            "bench_run",
            level=logging.INFO if run.result == "measured" else logging.WARNING,
            bench=job.bench,
            stage=job.stage,
            provider=job.model,
            result=run.result,
            usd=run.usd,
            why=run.why,
        )
        if run.result != "measured":
            return
        for change in changes(runs, self._rule):
            if change.has_drifted and change.figure not in before:
                self._report_drift(job, change)

    def _report_drift(self, job: BenchJob, change: FigureChange) -> None:
        log_event(
            "bench_drifted",
            level=logging.WARNING,
            bench=job.bench,
            stage=job.stage,
            provider=job.model,
            figure=change.figure,
            before_ms=round(change.before.value),
            after_ms=round(change.after.value),
        )
        subject = {"bench": job.bench, "stage": job.stage, "provider": job.model}
        self._notify(lambda: subject | change_plain(change))


def _direction(change: FigureChange) -> int:
    if not change.has_drifted:
        return 0
    return 1 if change.after.value > change.before.value else -1


def change_plain(change: FigureChange) -> dict[str, Any]:
    """Return a change for JSON."""
    difference = change.after.minus(change.before)
    return {
        "figure": change.figure,
        "before_ms": _interval_plain(change.before),
        "after_ms": _interval_plain(change.after),
        "change_ms": _interval_plain(difference),
        "drifted": change.has_drifted,
    }


def _interval_plain(interval: Interval) -> dict[str, float]:
    return {name: round(getattr(interval, name), 1) for name in ("value", "low", "high")}


def bench_state(settings: Settings) -> dict[str, Any]:
    """Return the state of the scheduled benches from their log, for JSON. Reads the disk: call it in a thread.

    Raises:
        OSError: the log can't be read.
    """
    now_ms, schedule = unix_ms(), settings.bench_schedule
    runs = read_runs(settings.data_path / FILE_NAME)
    by_subject: dict[Subject, list[BenchRun]] = {}
    for run in runs:
        by_subject.setdefault(run.subject, []).append(run)
    paid = spent(runs, now_ms)
    rule = DriftRule(share=schedule.drift_share, baseline_runs=schedule.baseline_runs)
    data = [
        _subject_plain((name, entry.stage, model), by_subject.get((name, entry.stage, model), []), rule)
        | {"next_at_ms": _next_ms(entry.schedule(name), by_subject.get((name, entry.stage, model), []), now_ms)}
        for name, entry in settings.benches.items()
        for model in dict.fromkeys(entry.models)
    ]
    return {
        "object": "list",
        "data": data,
        "day_usd": paid.day_usd,
        "usd_per_day": schedule.usd_per_day,
        "month_usd": paid.month_usd,
        "usd_per_month": schedule.usd_per_month,
    }


def _next_ms(schedule: Schedule, runs: Sequence[BenchRun], now_ms: int) -> int:
    return max(now_ms, schedule.next_ms(runs[-1].at_ms if runs else None, now_ms))


def _subject_plain(subject: Subject, runs: Sequence[BenchRun], rule: DriftRule) -> dict[str, Any]:
    bench, stage, model = subject
    measured = [run for run in runs if run.result == "measured"]
    latest = runs[-1] if runs else None
    values = measured[-1].latencies_ms if measured else ()
    return {
        "object": "voicepipe.bench",
        "bench": bench,
        "stage": stage,
        "id": model,
        "runs": len(measured),
        "at_ms": None if latest is None else latest.at_ms,
        "result": None if latest is None else latest.result,
        "why": None if latest is None else latest.why,
        "answers": len(values),
        **{
            f"{figure}_ms": round(percentile(values, share).value, 1) if values else None
            for figure, share in FIGURES.items()
        },
        "changes": [change_plain(change) for change in changes(runs, rule)],
    }
