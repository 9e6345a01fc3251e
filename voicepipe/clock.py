"""The only module that reads a clock. Below `session/` time arrives as `now_ms`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PROCESSORS: Final = Path("/proc/stat")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
"""Of what /proc/stat counts; see proc(5)."""


def monotonic_ms() -> int:
    """Milliseconds on this machine's monotonic clock; only differences mean anything."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Microseconds on the same clock, for what is over in less than a millisecond: pauses of the collector."""
    return time.monotonic_ns() // 1_000


def thread_cpu_us() -> int:
    """Microseconds of CPU that the calling thread has taken; only differences mean anything.

    On a virtual machine they include the time that the hypervisor gave to others while the thread ran: `stolen_ms`.
    """
    return time.thread_time_ns() // 1_000


def stolen_ms() -> tuple[int, ...]:
    """Milliseconds that the hypervisor has taken from each processor; empty where the system does not tell.

    Of each `cpuN` line of /proc/stat the eighth number, `steal`; see proc(5).
    """
    try:
        lines = _PROCESSORS.read_bytes().splitlines()
    except OSError:
        return ()
    of_one = (line.split() for line in lines if line.startswith(b"cpu") and line[3:4].isdigit())
    return tuple(int(fields[8]) * 1_000 // _TICKS_PER_S for fields in of_one if len(fields) > 8)


class CpuTime:
    """The CPU time of the calling thread since the last `lap_us`, less what the hypervisor took in that time."""

    def __init__(self) -> None:
        self._cpu_us, self._stolen_ms = thread_cpu_us(), stolen_ms()

    def lap_us(self) -> int:
        """Return the microseconds since the last call, and begin anew.

        The thread may have moved from processor to processor: the largest stolen time of one of them is subtracted.
        """
        cpu_us, stolen = thread_cpu_us(), stolen_ms()
        used_us = cpu_us - self._cpu_us
        taken_ms = max((now - before for now, before in zip(stolen, self._stolen_ms, strict=False)), default=0)
        self._cpu_us, self._stolen_ms = cpu_us, stolen
        return max(0, used_us - 1_000 * taken_ms)


def loop_s() -> float:
    """Seconds on the running event loop's clock, by which asyncio's deadlines are set."""
    return asyncio.get_running_loop().time()


def loop_clock() -> Callable[[], float]:
    """Return the function that reads the running event loop's clock, as `loop_s` does.

    For what reads it with each frame: to look the loop up takes longer, and in Python 3.11 a system call.
    """
    return asyncio.get_running_loop().time


def unix_s() -> int:
    """Seconds since 1970 UTC, for token lifetimes and records."""
    return int(time.time())


def unix_ms() -> int:
    """Milliseconds since 1970 UTC: when a session began, for its turns' records."""
    return time.time_ns() // 1_000_000


def utc_iso() -> str:
    """Now in UTC as ISO 8601 with milliseconds, for records and logs."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class SessionClock:
    """Integer milliseconds since the session began."""

    def __init__(self) -> None:
        self._zero_ms = monotonic_ms()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 - self._zero_ms

    def since_ms(self, at_ms: int) -> int:
        """Return an instant of `monotonic_ms` in milliseconds since the session began."""
        return at_ms - self._zero_ms
