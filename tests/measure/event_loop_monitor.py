"""Measure the cost of measuring the event loop: `python -m tests.measure.event_loop_monitor`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from statistics import median
from typing import Any, Final

from voicepipe.telemetry.event_loop import monitoring

TURNS: Final = 500_000
"""Number of loop iterations in one busy round."""

Round = Callable[[bool, float], Coroutine[Any, Any, float]]


async def idle(monitored: bool, length_s: float) -> float:
    """Return the CPU time in ms of each second of an idle loop."""
    with monitoring() if monitored else nullcontext():
        before_ns = time.process_time_ns()
        await asyncio.sleep(length_s)
        return (time.process_time_ns() - before_ns) / 1e6 / length_s


async def busy(monitored: bool, length_s: float) -> float:
    """Return the CPU time in ms of the loop's own thread for `TURNS` consecutive iterations."""
    # A loop with any timer checks its timers in each iteration: a server's always does.
    timer = asyncio.get_running_loop().call_later(3_600, int)
    with monitoring() if monitored else nullcontext():
        before_ns = time.thread_time_ns()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        lasted_ms = (time.thread_time_ns() - before_ns) / 1e6
    timer.cancel()
    return lasted_ms


def compared(measure: Round, *, rounds: int, length_s: float) -> tuple[float, float]:
    """Return the medians without and with the monitor, measured alternately."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for monitored, values in found.items():
            values.append(asyncio.run(measure(monitored, length_s)))
    return median(found[False]), median(found[True])


def main(arguments: list[str] | None = None) -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.event_loop_monitor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one idle round")
    options = parser.parse_args(arguments)
    without, with_it = compared(idle, rounds=options.rounds, length_s=options.seconds)
    sys.stdout.write(f"idle: {with_it - without:.2f} ms of CPU in each second for the monitor\n")
    without, with_it = compared(busy, rounds=options.rounds, length_s=options.seconds)
    sys.stdout.write(f"busy: {TURNS} turns of the loop take {with_it / without:.3f} times as much CPU\n")


if __name__ == "__main__":
    main()
