"""A loop that is held is noticed, with where; pauses of the collector are counted apart."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe import clock
from voicepipe.errors import ConfigError
from voicepipe.telemetry.event_loop import (
    CPU_EDGES_MS,
    LAG_EDGES_MS,
    EventLoopFigures,
    EventLoopMonitor,
    EventLoopOptions,
    watching,
)
from voicepipe.telemetry.stall_log import REMEMBERED, StallLog
from voicepipe.testing.waiting import WAIT_S, eventually


class Lines(logging.Handler):
    """The fields of `event_loop_stalled`, as they are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, Any]] = []
        self.logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "event_loop_stalled":
            self.fields.append(record.fields)  # type: ignore[attr-defined]
            self.logged.set()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("voicepipe")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def hold_until(let_go: Callable[[], bool]) -> None:
    """Keep the loop's thread busy."""
    end_ms = clock.monotonic_ms() + WAIT_S * 1_000
    while not let_go():
        assert clock.monotonic_ms() < end_ms, "the hold was never noticed"


async def true_soon(happened: Callable[[], bool]) -> None:
    async def probe() -> bool | None:
        return happened() or None

    await eventually(probe)


def hold_for_ms(length_ms: int) -> None:
    end_ms = clock.monotonic_ms() + length_ms
    hold_until(lambda: clock.monotonic_ms() >= end_ms)


async def test_a_held_loop_is_caught_while_it_is_held(lines: Lines) -> None:
    """The line is logged while the loop is still held, and names the function that holds it; it contains no value."""
    secret = "not-for-the-log"

    def the_culprit(words: str) -> None:
        hold_until(lines.logged.is_set)

    with watching() as health:
        await asyncio.sleep(0)
        the_culprit(secret)
        await true_soon(lambda: health.figures().n_stalls == 1)
        hold = health.figures().last_stall
    assert hold is not None
    assert hold.stall_ms >= 100
    assert any(where.endswith("the_culprit") for where in hold.stack)
    assert all(where.partition(":")[0].endswith((".py", ">")) for where in hold.stack)
    (line,) = lines.fields
    assert line["stack"] == " < ".join(hold.stack)
    assert line["stall_ms"] <= hold.stall_ms
    assert secret not in json.dumps(line)


async def test_an_idle_loop_on_a_busy_machine_is_no_hold(lines: Lines) -> None:
    """Its timer is late, and no code has blocked it."""

    def caught() -> bool:
        end_ms = clock.monotonic_ms() + WAIT_S * 1_000
        while not health._caught[0] and clock.monotonic_ms() < end_ms:
            time.sleep(0.005)
        return bool(health._caught[0])

    with watching() as health:
        assert health._timer is not None
        health._timer.cancel()  # as late as on a machine that gives this process no CPU
        assert await asyncio.to_thread(caught)
    assert health._caught[1] == ()
    assert lines.fields == []


async def test_a_loop_that_is_always_held_does_not_fill_the_log(lines: Lines) -> None:
    """The line after says how many were left out. The times are given: a busy machine would add stalls of its own."""
    health = EventLoopMonitor(EventLoopOptions(stall_ms=30, log_every_ms=300))
    for now_ms in (1_000, 1_060, 1_299, 1_300, 1_600):
        health._log(60, ("held.py:1 hold",), now_ms)
    assert [line.get("unlogged", 0) for line in lines.fields] == [0, 2, 0]


async def test_stalls_are_noted() -> None:
    """From when to when, on the clock that sessions have."""
    with watching(EventLoopOptions(stall_ms=10_000)) as health:
        await asyncio.sleep(0)
        began_ms = clock.monotonic_ms()
        n_before = health.stalls.n_noted
        hold_for_ms(50)
        ended_ms = clock.monotonic_ms()
        await true_soon(lambda: health.stalls.n_noted > n_before)
        from_ms, until_ms = health.stalls.since(n_before)[0]
        assert until_ms - from_ms >= 20
        assert from_ms <= began_ms + 21
        assert ended_ms <= until_ms


@given(st.integers(0, 3 * REMEMBERED), st.integers(0, 3 * REMEMBERED))
def test_a_session_reads_the_stalls_that_it_has_not_read(n_before: int, n_new: int) -> None:
    """In time order, and of too many the latest."""
    stalls = StallLog()
    for number in range(n_before + n_new):
        stalls.note(number, number + 1)
    noted = [(number, number + 1) for number in range(n_before, n_before + n_new)]
    assert list(stalls.since(n_before)) == noted[-REMEMBERED:]


async def test_lags_are_counted_in_buckets_and_summed() -> None:
    """Each look is in one bucket."""
    with watching(EventLoopOptions(sample_ms=1)) as health:
        await true_soon(lambda: sum(health.figures().lag_counts) >= 5)
        figures = health.figures()
    assert len(figures.lag_counts) == len(LAG_EDGES_MS) + 1
    assert 0 <= figures.lag_p50_ms <= figures.lag_p99_ms <= figures.lag_max_ms
    assert figures.lag_sum_ms >= figures.lag_max_ms * 0.98


def cpu_counted(figures: EventLoopFigures, from_ms: int) -> int:
    """Holds whose CPU time was above that edge."""
    return sum(figures.stall_cpu_counts[CPU_EDGES_MS.index(from_ms) + 1 :])


async def test_a_busy_stall_differs_from_one_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time separates the server's own work from a thread that got no CPU, which is the sign of a busy machine."""
    monkeypatch.setattr(clock, "stolen_ms", lambda: ())
    with watching() as health:
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - no CPU is taken
        await true_soon(lambda: health.figures().n_stalls == 1)
        assert cpu_counted(health.figures(), 100) == 0
        worked_until_us = clock.thread_cpu_us() + 220_000
        hold_until(lambda: clock.thread_cpu_us() >= worked_until_us)
        await true_soon(lambda: health.figures().n_stalls == 2)
        figures = health.figures()
    assert cpu_counted(figures, 150) == 1
    assert len(figures.stall_cpu_counts) == len(CPU_EDGES_MS) + 1
    assert sum(figures.stall_cpu_counts) == sum(figures.lag_counts)
    assert figures.stall_cpu_sum_ms <= figures.lag_sum_ms


async def test_stolen_time_is_not_the_loops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's CPU clock runs on while a hypervisor gives the processor to others: that is subtracted."""
    stolen_ms = [40, 70]
    monkeypatch.setattr(clock, "stolen_ms", lambda: tuple(stolen_ms))
    with watching() as health:
        await asyncio.sleep(0)
        worked_until_us = clock.thread_cpu_us() + 220_000
        hold_until(lambda: clock.thread_cpu_us() >= worked_until_us)
        stolen_ms[1] += 10_000
        await true_soon(lambda: health.figures().n_stalls == 1)
        figures = health.figures()
    assert cpu_counted(figures, 20) == 0


def test_stolen_time_is_read_for_each_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line of all of them together is left out; where there is no such file, nothing is stolen."""
    figures = tmp_path / "stat"
    monkeypatch.setattr(clock, "_PROCESSORS", figures)
    assert clock.stolen_ms() == ()
    figures.write_text("cpu  1 2 3 4 5 6 7 30 9 10\ncpu0 1 2 3 4 5 6 7 10 9 10\ncpu1 1 2 3 4 5 6 7 20 9 10\nintr 5\n")
    tick_ms = 1_000 // os.sysconf("SC_CLK_TCK")
    assert clock.stolen_ms() == (10 * tick_ms, 20 * tick_ms)


def test_cpu_time_is_less_what_was_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one processor, since the thread ran on one at a time; each lap begins anew."""
    cpu_us, stolen = [1_000], [(0, 0), (3, 7), (3, 7), (900, 7)]
    monkeypatch.setattr(clock, "thread_cpu_us", lambda: cpu_us[0])
    monkeypatch.setattr(clock, "stolen_ms", lambda: stolen.pop(0))
    used = clock.CpuTime()
    laps_us = []
    for more_us in (10_000, 2_000, 5_000):
        cpu_us[0] += more_us
        laps_us.append(used.lap_us())
    assert laps_us == [3_000, 2_000, 0]


async def test_pauses_of_the_collector_are_counted_by_generation() -> None:
    """A full collection is one of the oldest; nothing is left behind when the watch is over."""
    before = list(gc.callbacks)
    with watching() as health:
        n_before = health.figures().gc_pauses
        gc.collect(2)
        gc.collect(0)
        figures = health.figures()
    assert figures.gc_pauses[2] >= n_before[2] + 1
    assert figures.gc_pauses[0] >= n_before[0] + 1
    assert 0 < figures.gc_longest_ms <= sum(figures.gc_pause_ms)
    assert gc.callbacks == before
    assert not [thread for thread in threading.enumerate() if thread.name == "loop-guard"]


def test_lengths_must_be_lengths() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        EventLoopOptions(sample_ms=0)
