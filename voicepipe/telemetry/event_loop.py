"""Measure the event loop: sample its lag, sample its stack during a stall, and count the garbage collector's pauses.

All turns share one loop: code that blocks it delays all of them, and no turn's own marks show why.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from voicepipe import clock
from voicepipe.errors import ConfigError
from voicepipe.quantile import Sketch
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.telemetry.thread_stack import is_idle, is_in_loop, stack_of

LAG_EDGES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Upper edges of the buckets in which lags are counted; longer lags are counted after the last."""

CPU_EDGES_MS: Final = (1, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000)
"""Upper edges of the buckets in which the CPU time of stalls is counted."""

WINDOW_MS: Final = 10_000
"""`figures` covers at least this time, and less than twice as much."""

LOAD_MS: Final = 4_000
"""`cpu_share` covers this time."""

LONG_CPU_MS: Final = 20
"""From this CPU time on, the time that a hypervisor took is read and subtracted."""

STOLEN_EVERY_MS: Final = 100
"""Interval in which that time is read while the loop does not stall: it costs about 25 us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoopOptions:
    """Options of the event loop's measurement."""

    sample_ms: int = 20
    """Time between two samples. A shorter stall may be missed, and a stall may have started earlier by up to this."""

    report_ms: int = 20
    """Stalls of at least this length are recorded for the sessions."""

    stall_ms: int = 100
    """Stalls of at least this length are logged, with the stack that was sampled meanwhile."""

    log_every_ms: int = 10_000
    """The shortest time between two log lines: a loop that is always blocked would fill the disk."""

    def __post_init__(self) -> None:
        if min(self.sample_ms, self.report_ms, self.stall_ms, self.log_every_ms) <= 0:
            raise ConfigError(f"loop: expected lengths above 0 ms, got {self}")


@dataclass(frozen=True, slots=True)
class LoopStall:
    """A time in which the loop was blocked."""

    from_ms: int
    """Start on the scale of `clock.monotonic_ms`; the stall may have started up to a sample earlier."""

    stall_ms: int
    stack: tuple[str, ...]
    """`file:line function`, innermost first, sampled while the loop was blocked; never a value. Empty: C code kept the
    interpreter's lock, so that the guard got no sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoopFigures:
    """The loop's present state, and the counts since the server began."""

    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    """The largest delay of due work in the last 10 to 20 s."""

    lag_counts: tuple[int, ...]
    """Lags since the start, by bucket of `LAG_EDGES_MS`, and those beyond the last edge."""

    lag_sum_ms: float
    stall_cpu_counts: tuple[int, ...]
    """Stalls since the start, by CPU time of the loop's thread in buckets of `CPU_EDGES_MS`, and those beyond the last
    edge. A machine without free CPU causes lags, not these: the time that a hypervisor took is subtracted."""

    stall_cpu_sum_ms: float
    n_stalls: int
    """Stalls of `stall_ms` and longer."""

    last_stall: LoopStall | None
    gc_pauses: tuple[int, int, int]
    """Pauses of the garbage collector, by generation."""

    gc_pause_ms: tuple[float, float, float]
    gc_longest_ms: float


_DEFAULTS: Final = EventLoopOptions()


@dataclass(slots=True)
class _Pauses:
    """Counts the collector's pauses. Its hook is called wherever a collection begins, one at a time."""

    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    total_us: list[int] = field(default_factory=lambda: [0, 0, 0])
    longest_us: int = 0
    began_us: int = 0

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.began_us = clock.monotonic_us()
        elif self.began_us:
            lasted_us, generation = clock.monotonic_us() - self.began_us, info["generation"]
            self.counts[generation] += 1
            self.total_us[generation] += lasted_us
            self.longest_us = max(self.longest_us, lasted_us)


class EventLoopMonitor:
    """Measures the event loop in which `monitoring` was entered."""

    def __init__(self, options: EventLoopOptions = _DEFAULTS) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._pauses = _Pauses()
        self._lags, self._lags_before, self._window_from_ms = Sketch(), Sketch(), clock.monotonic_ms()
        self._lag_counts, self._lag_sum_ms = [0] * (len(LAG_EDGES_MS) + 1), 0.0
        self._stall_cpu_counts, self._stall_cpu_sum_ms = [0] * (len(CPU_EDGES_MS) + 1), 0.0
        self._cpu_us = clock.thread_cpu_us()
        self._stolen_ms, self._stolen_read_us = clock.stolen_ms(), clock.monotonic_us()
        self._samples: deque[tuple[int, int]] = deque(maxlen=LOAD_MS // options.sample_ms + 1)
        """(when in us, the thread's CPU time in us) of the latest samples."""

        self._n_stalls = 0
        self._last_stall: LoopStall | None = None
        self.stalls = StallLog()
        """The stalls of `report_ms` and longer."""

        self._due_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._guard_thread = threading.Thread(target=self._guard, name="loop-guard", daemon=True)
        self._stack_sample: tuple[int, tuple[str, ...]] = (0, ())
        """(when the missed sample was due, the stack): written by the guard, read when the sample has come."""

        self._logged_ms, self._unlogged = -self._options.log_every_ms, 0

    def figures(self) -> EventLoopFigures:
        """Return the loop's figures. Any thread may call this."""
        lags, pauses = self._recent_lags(), self._pauses
        return EventLoopFigures(
            lag_p50_ms=lags.p50_ms or 0.0,
            lag_p99_ms=lags.p99_ms or 0.0,
            lag_max_ms=lags.quantile(1.0) or 0.0,
            lag_counts=tuple(self._lag_counts),
            lag_sum_ms=self._lag_sum_ms,
            stall_cpu_counts=tuple(self._stall_cpu_counts),
            stall_cpu_sum_ms=self._stall_cpu_sum_ms,
            n_stalls=self._n_stalls,
            last_stall=self._last_stall,
            gc_pauses=(pauses.counts[0], pauses.counts[1], pauses.counts[2]),
            gc_pause_ms=(pauses.total_us[0] / 1_000, pauses.total_us[1] / 1_000, pauses.total_us[2] / 1_000),
            gc_longest_ms=pauses.longest_us / 1_000,
        )

    def lag_p95_ms(self) -> float:
        """Return the 95th percentile of the loop's delays over the last 10 to 20 s."""
        return self._recent_lags().quantile(0.95) or 0.0

    def _recent_lags(self) -> Sketch:
        lags = Sketch()
        lags.merge(self._lags_before)
        lags.merge(self._lags)
        return lags

    def cpu_share(self) -> float | None:
        """Return the share of one core that the loop's thread used over the last `LOAD_MS`; None: not known yet."""
        if len(self._samples) < 2:
            return None
        (first_us, first_cpu_us), (last_us, last_cpu_us) = self._samples[0], self._samples[-1]
        return (last_cpu_us - first_cpu_us) / (last_us - first_us)

    # --- on the loop ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start sampling."""
        gc.callbacks.append(self._pauses.on_collection)
        self._await_next()
        self._guard_thread.start()

    def end(self) -> None:
        """Stop sampling."""
        self._stopped.set()
        self._guard_thread.join()  # it wakes at once, and its work takes microseconds
        gc.callbacks.remove(self._pauses.on_collection)
        if self._timer is not None:
            self._timer.cancel()

    def _await_next(self) -> None:
        self._due_us = clock.monotonic_us() + self._options.sample_ms * 1_000
        self._timer = self._loop.call_later(self._options.sample_ms / 1_000, self._sample_lag)

    def _sample_lag(self) -> None:
        due_us, now_us = self._due_us, clock.monotonic_us()
        self._await_next()
        late_us = max(0, now_us - due_us)
        self._count(late_us / 1_000, now_us // 1_000)
        cpu_ms = self._count_cpu(late_us, now_us)
        self._samples.append((now_us, self._cpu_us))
        stall_ms = (now_us - due_us) // 1_000
        if stall_ms >= min(self._options.report_ms, self._options.stall_ms):
            self._record_stall(due_us, now_us // 1_000, stall_ms, cpu_ms)

    def _count(self, lag_ms: float, now_ms: int) -> None:
        if now_ms - self._window_from_ms >= WINDOW_MS:
            self._lags_before, self._lags, self._window_from_ms = self._lags, Sketch(), now_ms
        self._lags.add(lag_ms)
        self._lag_counts[bisect_left(LAG_EDGES_MS, lag_ms)] += 1
        self._lag_sum_ms += lag_ms

    def _count_cpu(self, late_us: int, now_us: int) -> float:
        """Count the CPU time that the thread used while this sample was late, and return it: at most the delay."""
        cpu_us = clock.thread_cpu_us()
        stall_cpu_ms = min(late_us, cpu_us - self._cpu_us) / 1_000
        self._cpu_us = cpu_us
        if stall_cpu_ms >= LONG_CPU_MS or now_us - self._stolen_read_us >= 1_000 * STOLEN_EVERY_MS:
            stolen_ms = clock.stolen_ms()
            newly_stolen_ms = (now - before for now, before in zip(stolen_ms, self._stolen_ms, strict=False))
            stall_cpu_ms = max(0.0, stall_cpu_ms - max(newly_stolen_ms, default=0))
            self._stolen_ms, self._stolen_read_us = stolen_ms, now_us
        self._stall_cpu_counts[bisect_left(CPU_EDGES_MS, stall_cpu_ms)] += 1
        self._stall_cpu_sum_ms += stall_cpu_ms
        return stall_cpu_ms

    def _record_stall(self, due_us: int, now_ms: int, stall_ms: int, cpu_ms: float) -> None:
        if stall_ms >= self._options.stall_ms:
            sampled_us, stack = self._stack_sample
            was_sampled = sampled_us == due_us
            self._last_stall = LoopStall(now_ms - stall_ms, stall_ms, stack if was_sampled else ())
            self._n_stalls += 1
            # A loop without a sampled stack that used no CPU was idle: the machine did not run it.
            if not was_sampled and cpu_ms >= LONG_CPU_MS:
                self._log(stall_ms, (), now_ms)
        if stall_ms >= self._options.report_ms:
            self.stalls.record(now_ms - stall_ms, now_ms)

    # --- in the guard's thread ------------------------------------------------------------------

    def _guard(self) -> None:
        """Sample the stack of a blocked loop, once for each stall."""
        stall_us = self._options.stall_ms * 1_000
        # Sleep until a stall could be long enough: on a healthy loop the due time has moved on by then.
        while not self._stopped.wait(max(1_000, self._due_us + stall_us - clock.monotonic_us()) / 1e6):
            due_us, now_us = self._due_us, clock.monotonic_us()
            if now_us - due_us < stall_us:
                continue
            if self._stack_sample[0] != due_us:
                self._sample_stack(due_us, now_us)
            self._stopped.wait(stall_us / 1e6)

    def _sample_stack(self, due_us: int, now_us: int) -> None:
        try:
            stack = stack_of(self._thread_id)
        except OSError:  # no file descriptor is left
            return
        if is_in_loop(stack):
            return  # the CPU time distinguishes a loop that is blocked from one that awaits its next event
        if is_idle(stack):
            stack = ()
        if self._due_us != due_us:
            return  # the stall has ended meanwhile, and this is the stack of other code
        self._stack_sample = (due_us, stack)
        if stack:
            self._log((now_us - due_us) // 1_000, stack, now_us // 1_000)

    def _log(self, stall_ms: int, stack: tuple[str, ...], now_ms: int) -> None:
        if now_ms - self._logged_ms < self._options.log_every_ms:
            self._unlogged += 1
            return
        fields: dict[str, Any] = {"stall_ms": stall_ms, "stack": " < ".join(stack)}
        if self._unlogged:
            fields["unlogged"] = self._unlogged
        log_event("event_loop_stalled", level=logging.WARNING, **fields)
        self._logged_ms, self._unlogged = now_ms, 0


@contextmanager
def monitoring(options: EventLoopOptions = _DEFAULTS) -> Iterator[EventLoopMonitor]:
    """Measure the running loop while the block runs."""
    monitor = EventLoopMonitor(options)
    monitor.begin()
    try:
        yield monitor
    finally:
        monitor.end()
