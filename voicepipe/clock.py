"""The only module that reads a clock. Below `session/` time arrives as `now_ms`.

In `virtual_time` the clock is a `VirtualClock`, in the whole process. CPU time stays real.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PROCESSORS: Final = Path("/proc/stat")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
"""Of what /proc/stat counts; see proc(5)."""


class VirtualClock:
    """A clock that stands still until its owner advances it, with a resolution of 1 us."""

    def __init__(self) -> None:
        self._unix_began_ns = time.time_ns()
        self.elapsed_us = 0
        self.n_outside = 0
        """Waits for work outside the event loop, see `outside_work`."""

        self.n_answers = 0
        """Waits for another process, see `answer_from_outside`."""

        self.is_within: Callable[[str], bool] = lambda url: False
        """Whether a server of this event loop answers at this address."""

        self._followed_ns: int | None = None

    def follow(self) -> None:
        """Advance by the real time since the last call, the first one since `leave` excepted."""
        now_ns = time.monotonic_ns()
        if self._followed_ns is None:
            self._followed_ns = now_ns
        elapsed_us = (now_ns - self._followed_ns) // 1_000
        self._followed_ns += 1_000 * elapsed_us
        self.elapsed_us += elapsed_us

    def leave(self) -> None:
        """Stop to follow the real time."""
        self._followed_ns = None

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the clock was made, and a second: some code reads 0 as never."""
        return 1_000_000_000 + 1_000 * self.elapsed_us

    def unix_ns(self) -> int:
        """Return nanoseconds since 1970 UTC: the real time when the clock was made, and what has elapsed since."""
        return self._unix_began_ns + 1_000 * self.elapsed_us


_monotonic_ns: Callable[[], int] = time.monotonic_ns
_unix_ns: Callable[[], int] = time.time_ns
_virtual: VirtualClock | None = None


@contextmanager
def virtual_time(virtual: VirtualClock) -> Iterator[None]:
    """Read `virtual` in place of this machine's clock while the block runs, in all threads."""
    global _monotonic_ns, _unix_ns, _virtual
    _monotonic_ns, _unix_ns, _virtual = virtual.monotonic_ns, virtual.unix_ns, virtual
    try:
        yield
    finally:
        _monotonic_ns, _unix_ns, _virtual = time.monotonic_ns, time.time_ns, None


@contextmanager
def outside_work() -> Iterator[None]:
    """Wait in the block for work that the event loop does not see, such as a thread's. A virtual clock stands still
    meanwhile.
    """
    virtual = _virtual
    if virtual is None:
        yield
        return
    virtual.n_outside += 1
    try:
        yield
    finally:
        virtual.n_outside -= 1


_waits_outside: ContextVar[bool] = ContextVar("waits_outside", default=False)


@contextmanager
def answer_from_outside(url: str = "") -> Iterator[None]:
    """Wait in the block for an answer of another process, such as a model's. A virtual clock runs with this machine's
    meanwhile, so the answer takes the time that it takes.

    `url`: the address, which may be one of this process after all; empty: it is none.
    """
    virtual = _virtual
    if virtual is None or (url and virtual.is_within(url)):
        yield
        return
    before = _waits_outside.set(True)
    virtual.n_answers += 1
    try:
        yield
    finally:
        virtual.n_answers -= 1
        _waits_outside.reset(before)


def waits_outside() -> bool:
    """Return whether the caller, or the task that started its task, is in a block of `answer_from_outside`."""
    return _waits_outside.get()


def monotonic_ms() -> int:
    """Milliseconds on this machine's monotonic clock; only differences mean anything."""
    return _monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Microseconds on the same clock, for what is over in less than a millisecond: pauses of the collector."""
    return _monotonic_ns() // 1_000


def thread_cpu_us() -> int:
    """Microseconds of CPU that the calling thread has taken; only differences mean anything.

    On a virtual machine they include the time that the hypervisor gave to others while the thread ran: `stolen_ms`.
    """
    return time.thread_time_ns() // 1_000


def stolen_ms() -> tuple[int, ...]:
    """Milliseconds that the hypervisor has taken from each processor; empty where the system does not report it.

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
    return _unix_ns() // 1_000_000_000


def unix_ms() -> int:
    """Milliseconds since 1970 UTC: when a session began, for its turns' records."""
    return _unix_ns() // 1_000_000


def utc_iso() -> str:
    """Now in UTC as ISO 8601 with milliseconds, for records and logs."""
    return datetime.fromtimestamp(_unix_ns() / 1e9, UTC).isoformat(timespec="milliseconds")


class SessionClock:
    """Integer milliseconds since the session began."""

    def __init__(self) -> None:
        self._zero_ms = monotonic_ms()

    def now_ms(self) -> int:
        return _monotonic_ns() // 1_000_000 - self._zero_ms

    def since_ms(self, at_ms: int) -> int:
        """Return an instant of `monotonic_ms` in milliseconds since the session began."""
        return at_ms - self._zero_ms
