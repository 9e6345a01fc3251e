"""The only module that reads a clock. Below `session/` time arrives as `now_ms`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


def monotonic_ms() -> int:
    """Milliseconds on this machine's monotonic clock; only differences mean anything."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Microseconds on the same clock, for what is over in less than a millisecond: pauses of the collector."""
    return time.monotonic_ns() // 1_000


def thread_cpu_us() -> int:
    """Microseconds of CPU that the calling thread has taken; only differences mean anything."""
    return time.thread_time_ns() // 1_000


def loop_s() -> float:
    """Seconds on the running event loop's clock, by which asyncio's deadlines are set."""
    return asyncio.get_running_loop().time()


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
        return monotonic_ms() - self._zero_ms

    def since_ms(self, at_ms: int) -> int:
        """That instant of `monotonic_ms`, in milliseconds since the session began."""
        return at_ms - self._zero_ms
