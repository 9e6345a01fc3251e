"""A stall of the loop is logged with its stack; pauses of the collector are counted separately."""

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
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from voicepipe import clock
from voicepipe.errors import ConfigError
from voicepipe.telemetry import event_loop
from voicepipe.telemetry.event_loop import (
    CPU_EDGES_MS,
    LAG_EDGES_MS,
    EventLoopFigures,
    EventLoopMonitor,
    EventLoopOptions,
    LoopStall,
    monitoring,
)
from voicepipe.telemetry.stall_log import MAX_STALLS, StallLog
from voicepipe.telemetry.thread_stack import is_in_loop, stack_of
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


def block_until(is_over: Callable[[], bool]) -> None:
    """Keep the loop's thread busy."""
    end_ms = clock.monotonic_ms() + WAIT_S * 1_000
    while not is_over():
        assert clock.monotonic_ms() < end_ms, "the stall was never measured"


async def true_soon(happened: Callable[[], bool]) -> None:
    async def probe() -> bool | None:
        return happened() or None

    await eventually(probe)


async def first_stall(monitor: EventLoopMonitor) -> LoopStall:
    """Return it in the iteration of the loop that measures it: on a busy machine others may follow."""
    async with asyncio.timeout(WAIT_S):
        while (stall := monitor.figures().last_stall) is None:  # noqa: ASYNC110 - each iteration counts
            await asyncio.sleep(0)
    return stall


def block_for_ms(length_ms: int) -> None:
    end_ms = clock.monotonic_ms() + length_ms
    block_until(lambda: clock.monotonic_ms() >= end_ms)


async def test_the_stack_of_a_blocked_loop_is_logged_while_it_is_blocked(lines: Lines) -> None:
    """The line names the function that blocks the loop; it contains no value."""
    secret = "not-for-the-log"

    def blocking_step(words: str) -> None:
        block_until(lines.logged.is_set)

    with monitoring() as monitor:
        await asyncio.sleep(0)
        blocking_step(secret)
        stall = await first_stall(monitor)
    assert stall.stall_ms >= 100
    assert any(where.endswith("blocking_step") for where in stall.stack)
    assert all(where.partition(":")[0].endswith((".py", ">")) for where in stall.stack)
    (line,) = lines.fields
    assert line["stack"] == " < ".join(stall.stack)
    assert line["stall_ms"] <= stall.stall_ms
    assert secret not in json.dumps(line)


async def test_an_idle_loop_on_a_busy_machine_is_no_stall(lines: Lines) -> None:
    """Its timer is late, and no code has blocked it."""

    def caught() -> bool:
        end_ms = clock.monotonic_ms() + WAIT_S * 1_000
        while not monitor._stack_sample[0] and clock.monotonic_ms() < end_ms:
            time.sleep(0.005)
        return bool(monitor._stack_sample[0])

    await asyncio.to_thread(time.sleep, 0)  # the thread is there: its start would block the loop
    with monitoring() as monitor:
        assert monitor._timer is not None
        monitor._timer.cancel()  # as late as on a machine that gives this process no CPU
        assert await asyncio.to_thread(caught)
    assert monitor._stack_sample[1] == ()
    assert lines.fields == []


def test_an_idle_loop_in_c_on_a_busy_machine_is_no_stall(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own loop: it waits in C code, below no frame of a selector."""
    looked, stacks = threading.Event(), list[tuple[str, ...]]()

    def look(thread_id: int) -> tuple[str, ...]:
        stacks.append(stack_of(thread_id))
        looked.set()
        return stacks[-1]

    async def idle() -> None:
        await asyncio.to_thread(time.sleep, 0)  # the thread is there: its start would block the loop
        with monitoring() as monitor:
            assert monitor._timer is not None
            monitor._timer.cancel()  # as late as on a machine that gives this process no CPU
            assert await asyncio.to_thread(looked.wait, WAIT_S)
            await asyncio.sleep(0)

    monkeypatch.setattr(event_loop, "stack_of", look)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(idle())
    assert is_in_loop(stacks[0]), stacks
    assert lines.fields == []


async def test_a_loop_that_is_always_held_does_not_fill_the_log(lines: Lines) -> None:
    """The line after says how many were left out. The times are given: a busy machine would add stalls of its own."""
    monitor = EventLoopMonitor(EventLoopOptions(stall_ms=30, log_every_ms=300))
    for now_ms in (1_000, 1_060, 1_299, 1_300, 1_600):
        monitor._log(60, ("blocked.py:1 block",), now_ms)
    assert [line.get("unlogged", 0) for line in lines.fields] == [0, 2, 0]


async def test_stalls_are_recorded() -> None:
    """From when to when, on the clock that sessions have."""
    with monitoring(EventLoopOptions(stall_ms=10_000)) as monitor:
        await asyncio.sleep(0)
        began_ms = clock.monotonic_ms()
        n_before = monitor.stalls.n_recorded
        block_for_ms(50)
        ended_ms = clock.monotonic_ms()
        await true_soon(lambda: monitor.stalls.n_recorded > n_before)
        from_ms, until_ms = monitor.stalls.since(n_before)[0]
        assert until_ms - from_ms >= 20
        assert from_ms <= began_ms + 21
        assert ended_ms <= until_ms


@given(st.integers(0, 3 * MAX_STALLS), st.integers(0, 3 * MAX_STALLS))
def test_a_session_reads_the_stalls_that_it_has_not_read(n_before: int, n_new: int) -> None:
    """In time order, and of too many the latest."""
    stalls = StallLog()
    for number in range(n_before + n_new):
        stalls.record(number, number + 1)
    recorded = [(number, number + 1) for number in range(n_before, n_before + n_new)]
    assert list(stalls.since(n_before)) == recorded[-MAX_STALLS:]


async def test_lags_are_counted_in_buckets_and_summed() -> None:
    """Each sample is in one bucket."""
    with monitoring(EventLoopOptions(sample_ms=1)) as monitor:
        await true_soon(lambda: sum(monitor.figures().lag_counts) >= 5)
        figures = monitor.figures()
    assert len(figures.lag_counts) == len(LAG_EDGES_MS) + 1
    assert 0 <= figures.lag_p50_ms <= figures.lag_p99_ms <= figures.lag_max_ms
    assert figures.lag_sum_ms >= figures.lag_max_ms * 0.98


def cpu_counted(figures: EventLoopFigures, from_ms: int) -> int:
    """Stalls whose CPU time was above that edge."""
    return sum(figures.stall_cpu_counts[CPU_EDGES_MS.index(from_ms) + 1 :])


async def test_a_busy_stall_differs_from_one_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time separates the server's own work from a thread that got no CPU, which is the sign of a busy machine."""
    monkeypatch.setattr(clock, "stolen_ms", lambda: ())
    with monitoring() as monitor:
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - no CPU is taken
        await true_soon(lambda: monitor.figures().n_stalls >= 1)
        n_before = monitor.figures().n_stalls
        assert cpu_counted(monitor.figures(), 100) == 0
        worked_until_us = clock.thread_cpu_us() + 220_000
        block_until(lambda: clock.thread_cpu_us() >= worked_until_us)
        await true_soon(lambda: monitor.figures().n_stalls > n_before)
        figures = monitor.figures()
    assert cpu_counted(figures, 150) == 1
    assert len(figures.stall_cpu_counts) == len(CPU_EDGES_MS) + 1
    assert sum(figures.stall_cpu_counts) == sum(figures.lag_counts)
    assert figures.stall_cpu_sum_ms <= figures.lag_sum_ms


async def test_stolen_time_is_not_the_loops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's CPU clock runs on while a hypervisor gives the processor to others: that is subtracted."""
    stolen_ms = [40, 70]
    monkeypatch.setattr(clock, "stolen_ms", lambda: tuple(stolen_ms))
    with monitoring() as monitor:
        await asyncio.sleep(0)
        worked_until_us = clock.thread_cpu_us() + 220_000
        block_until(lambda: clock.thread_cpu_us() >= worked_until_us)
        stolen_ms[1] += 10_000
        await true_soon(lambda: monitor.figures().n_stalls >= 1)
        figures = monitor.figures()
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
    """A full collection is one of the oldest; nothing is left behind when the measurement is over."""
    before = list(gc.callbacks)
    with monitoring() as monitor:
        n_before = monitor.figures().gc_pauses
        gc.collect(2)
        gc.collect(0)
        figures = monitor.figures()
    assert figures.gc_pauses[2] >= n_before[2] + 1
    assert figures.gc_pauses[0] >= n_before[0] + 1
    assert 0 < figures.gc_longest_ms <= sum(figures.gc_pause_ms)
    assert gc.callbacks == before
    assert not [thread for thread in threading.enumerate() if thread.name == "loop-guard"]


def test_lengths_must_be_lengths() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        EventLoopOptions(sample_ms=0)
