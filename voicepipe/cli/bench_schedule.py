"""`voicepipe bench schedule`: measure the benches of the settings when they are due."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from voicepipe.bench.report_cells import markdown
from voicepipe.bench.scheduled.run_log import open_log
from voicepipe.cli.bench_run import engines
from voicepipe.cli.options import ScheduleOptions
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.telemetry.log import logging_to
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.wiring.bench_jobs import jobs_of
from voicepipe.wiring.data_folder import make_private
from voicepipe.wiring.scheduled_benches import ScheduledBenches, bench_state
from voicepipe.wiring.stages import Stages
from voicepipe.wiring.webhooks import webhooks_of

DONE, CHANGED = 0, 1

DRIFTED: Final = "bench.drifted"

SEND_STEP_S: Final = 0.05
MAX_SEND_STEPS: Final = 200

COLUMNS: Final = ("bench", "model", "measured", "result", "answers", "p50 ms", "p95 ms", "changed", "next")


def run(options: ScheduleOptions) -> int:
    """Measure, and print the results; 1 if a bench has failed, was left out, or has changed.

    Raises:
        ConfigError: a setting is wrong, or there is no bench.
        BenchLogInUse: another process measures the benches of this folder.
    """
    settings = load(options.config, overrides=options.overrides())
    if not settings.benches:
        raise ConfigError("benches: expected at least one [benches.NAME] in the settings, got none")
    status = DONE
    if not options.list:
        make_private(settings.data_path)
        with logging_to(style="human"):  # a line for each run
            status = asyncio.run(_measure(settings, once=options.once))
    sys.stdout.write("\n".join(table(bench_state(settings))) + "\n")
    return status


async def _measure(settings: Settings, *, once: bool) -> int:
    stages = Stages(settings)
    jobs = await jobs_of(settings, stages)
    needed = [(job.stage, job.model) for job in jobs]
    with open_log(settings.data_path) as log:
        async with webhooks_of(settings, new_health(), is_first=False) as webhooks, engines(stages, needed):
            sent = _Sent(webhooks)
            # A bench that was never measured is due now, also one with times of the day.
            benches = ScheduledBenches(settings, jobs, sent.notify, since_ms=0 if once else None)
            await benches.run_due(log)
            while not once:
                await benches.run_next(log)
            await sent.tried()
    return CHANGED if benches.has_problem() else DONE


class _Sent:
    """The webhook events of this process."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks, self._n_deliveries = webhooks, 0

    def notify(self, make: Callable[[], dict[str, Any]]) -> None:
        """Send an event."""
        self._n_deliveries += sum(each.subscribes_to(DRIFTED, "") for each in self._webhooks.all)
        self._webhooks.notify(DRIFTED, "", "", make)

    async def tried(self) -> None:
        """Wait until as many deliveries were tried, at most 10 s; the others wait for the next process."""
        counts = self._webhooks.counts
        for _ in range(MAX_SEND_STEPS):
            if counts.delivered + counts.failed >= self._n_deliveries:
                return
            await asyncio.sleep(SEND_STEP_S)


def table(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results as lines of Markdown, and the cost."""
    yield from markdown(COLUMNS, (_cells(each) for each in state["data"]))
    for span in ("day", "month"):
        yield f"this {span}: {state[f'{span}_usd']:.6f} of {state[f'usd_per_{span}']:.2f} USD"


def _cells(each: Mapping[str, Any]) -> Sequence[str]:
    drifted = [change for change in each["changes"] if change["drifted"]]
    return (
        each["bench"],
        each["id"],
        _time(each["at_ms"]),
        each["result"] or "-",
        str(each["answers"]),
        *("-" if each[name] is None else f"{each[name]:.0f}" for name in ("p50_ms", "p95_ms")),
        ", ".join(map(_change, drifted)) or "-",
        _time(each["next_at_ms"]),
    )


def _change(change: Mapping[str, Any]) -> str:
    interval = change["change_ms"]
    return f"{change['figure']} {interval['value']:+.0f} ms ({interval['low']:+.0f} to {interval['high']:+.0f})"


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
