"""Run a race of calls to providers: their tasks, the timer, and the queue between the calls and their consumer."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable
from typing import Any, Generic, Literal, Protocol, TypeVar

from voicepipe import clock
from voicepipe.errors import Overload, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.registry import Stage
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import record_failure
from voicepipe.router.pool import SharedStats
from voicepipe.router.race import Attempt, Close, Race, RaceCommand, RacePlan, Speak, Start
from voicepipe.telemetry.log import log_crash

RacingStage = Literal["llm", "tts"]


E = TypeVar("E")


async def failure_of(stage: Stage, spec: str, work: Awaitable[None]) -> StageError | None:
    """Wait for the work of a provider; return why it failed, as an error of its stage, or None."""
    try:
        await work
    except StageError as failure:
        return failure
    except Overload as full:
        why, after_ms = full.why, full.retry_after_ms
        return StageRefused(stage, provider=spec, why=why, retryable=True, retry_after_ms=after_ms)
    except Exception as bug:
        log_crash(f"{stage} by {spec}", bug)
        why = f"internal error ({type(bug).__name__})"
        return StageBroken(stage, provider=spec, why=why, retryable=False)
    return None


class RacingCall(Generic[E]):
    """One call of a race, or one that continues for its winner."""

    def __init__(self, stage: RacingStage, attempt: Attempt) -> None:
        self.stage, self.attempt, self.spec = stage, attempt, attempt.candidate.spec
        self.failure: StageError | None = None
        self.over = False
        """Whether it has ended, complete or not."""

        self.task: asyncio.Task[None] | None = None
        self.waiting: deque[E] = deque()
        """Output held while the call may not speak yet: bounded by its listener, for which its task waits."""


C = TypeVar("C", bound=RacingCall[Any])
HostedCall = TypeVar("HostedCall", bound=RacingCall[Any], contravariant=True)


class RaceHost(Protocol[HostedCall]):
    """Makes a race's calls, and uses its winner. Each method returns at once."""

    def start(self, attempt: Attempt) -> None:
        """Start a call for this attempt: `RaceRunner.add` it."""
        ...

    def let_speak(self, call: HostedCall, now_ms: int) -> None:
        """Release this call's output: it has won."""
        ...

    def unused(self, call: HostedCall) -> None:
        """Handle a call that is closed before it failed: another one has won."""
        ...

    def give_up(self) -> None:
        """Handle that every call has failed, and none is left to start."""
        ...


class RaceRunner(Generic[C]):
    """Carries out the orders of one race."""

    def __init__(self, plan: RacePlan, stats: SharedStats, host: RaceHost[C], *, silence: str) -> None:
        """`silence`: what an attempt that times out did not send, for an operator."""
        self.race = Race(plan)
        self.calls: list[C] = []
        """In the order of their attempts; calls that continue come last."""

        self._plan, self._stats, self._silence = plan, stats, silence
        # Its host holds it: a cycle would keep both, and their calls, until the garbage collector runs.
        self._host: RaceHost[C] = weakref.proxy(host)
        self._timer: asyncio.TimerHandle | None = None
        self._wake_ms: float | None = None
        """When the timer is due; None: there is none."""

        self._stopped = False

    def begin(self, now_ms: int) -> None:
        """Start the first calls."""
        self._execute(self.race.begin(now_ms), now_ms)

    def spoke(self, call: C, now_ms: int) -> None:
        """Handle output of a call that has not won yet; only its first output matters."""
        if call.attempt.state == "running":
            self._execute(self.race.spoke(call.attempt, now_ms), now_ms)

    def failed(self, call: C) -> None:
        """Go on without a call that has failed."""
        now_ms = clock.monotonic_ms()
        self._execute(self.race.failed(call.attempt, now_ms), now_ms)

    def prefer(self, candidate: Candidate, until_ms: float) -> None:
        """Start a better model for this request; others are held for it until `until_ms` after the beginning."""
        now_ms = clock.monotonic_ms()
        self._execute(self.race.prefer(candidate, until_ms, now_ms), now_ms)

    def stop(self) -> None:
        """Start nothing more by the clock, and report no unused call: the stream is over."""
        self._stopped = True
        self._cancel_timer()

    def close(self) -> None:
        """End every call: the consumer has left."""
        self.stop()
        if self.race.attempts and not self.race.over:
            now_ms = clock.monotonic_ms()
            self._execute(self.race.abandon(now_ms), now_ms)
        for call in self.calls:
            self.end(call)

    # --- calls --------------------------------------------------------------------------------

    def add(self, call: C) -> None:
        """Count a call as in flight; its host starts its task."""
        self.calls.append(call)
        self._stats.began(call.attempt)

    def free(self, call: C) -> None:
        """Count a call as ended."""
        if not call.over:
            call.over = True
            self._stats.ended(call.attempt)

    def end(self, call: C) -> None:
        """End a call: drop the output that it holds, and cancel its task unless it is the running one."""
        self.free(call)
        call.waiting.clear()
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()

    def record_failure(self, call: C, failure: StageError) -> None:
        """Record and log why a call failed."""
        call.failure = failure
        record_failure(self._stats.breaker(call.attempt.candidate), call.spec, failure, clock.monotonic_ms())

    def failures(self) -> list[StageError]:
        """Return the failures of all calls, in the order of their starts."""
        return [call.failure for call in self.calls if call.failure is not None]

    def reasons(self) -> list[str]:
        """Return why calls failed, for an operator."""
        return [f"{call.spec}: {call.failure.why}" for call in self.calls if call.failure is not None]

    def waited_for(self, call: C, now_ms: int) -> str:
        """Return the provider that was waited for longer than the one of this call, which has its first output: the
        first one, while it was alone or the others were held for it; empty: there is none."""
        first = self.calls[0]
        if call is first:
            return ""
        own_ms = call.attempt.first_ms or 0.0
        waited_ms = now_ms - first.attempt.began_ms
        return first.spec if waited_ms - own_ms > own_ms else ""

    # --- the race -----------------------------------------------------------------------------

    def _execute(self, orders: list[RaceCommand], now_ms: int) -> None:
        for order in orders:
            # Not matched: that takes several times longer, and each request has some.
            if isinstance(order, Start):
                self._host.start(order.attempt)
            elif isinstance(order, Speak):
                self._host.let_speak(self.calls[order.attempt.number], now_ms)
            elif isinstance(order, Close):
                self._close_call(self.calls[order.attempt.number])
            else:
                self._host.give_up()
        self._set_timer(now_ms)

    def _close_call(self, call: C) -> None:
        if call.attempt.timed_out:
            why = f"{self._silence} for {self._plan.attempt_timeout_ms:.0f} ms"
            self.record_failure(call, StageTimeout(call.stage, provider=call.spec, why=why, retryable=True))
        elif not (call.over or self._stopped):
            self._host.unused(call)
        self.end(call)

    def _set_timer(self, now_ms: int) -> None:
        wake_ms = None if self._stopped or self.race.over else self.race.wake_ms()
        if wake_ms == self._wake_ms:
            return
        if self._timer is not None:
            self._cancel_timer()
        if wake_ms is not None:
            delay_s = max(0.0, wake_ms - now_ms) / 1_000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._time_passed)
            self._wake_ms = wake_ms

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._wake_ms = None

    def _time_passed(self) -> None:
        self._timer = self._wake_ms = None
        now_ms = clock.monotonic_ms()
        self._execute(self.race.time_passed(now_ms), now_ms)


class StreamQueue(Generic[E]):
    """The events of a routed stream between its calls and its consumer."""

    def __init__(self, limit: int) -> None:
        """`limit`: from this number of waiting events on, the provider waits."""
        self._limit = limit
        self._events: deque[E] = deque()  # bounded by `limit`, and some reports for each call
        self._ahead: deque[E] = deque()  # bounded likewise: reports
        self._failure: StageError | None = None
        self._over = False
        self._consumer: asyncio.Future[None] | None = None
        """What the consumer waits for; None: it does not wait."""

        self._taken: asyncio.Event | None = None
        """For providers that wait; None: none has waited yet, as in nearly every stream."""

    def __len__(self) -> int:
        return len(self._events)

    def is_full(self, held: int = 0) -> bool:
        """Return whether the provider has to wait; `held`: its events that are not in this queue yet."""
        return len(self._events) >= self._limit or held >= self._limit

    def put(self, event: E) -> None:
        """Add an event."""
        self._events.append(event)
        if self._consumer is not None:
            self._wake_consumer()

    def put_ahead(self, event: E) -> None:
        """Add an event ahead of all that were added with `put`."""
        self._ahead.append(event)
        if self._consumer is not None:
            self._wake_consumer()

    def end(self, failure: StageError | None = None) -> None:
        """End the stream after the events that wait, with the failure if there is one."""
        self._over, self._failure = True, failure
        if self._consumer is not None:
            self._wake_consumer()
        if self._taken is not None:
            self._taken.set()

    def drop(self) -> None:
        """Drop all events and end the stream: the consumer has left."""
        self._events.clear()
        self._ahead.clear()
        self.end(self._failure)

    async def wait_for_space(self) -> None:
        """Wait until there is room: the consumer takes events, or the stream is over."""
        while self.is_full() and not self._over:
            await self.taken()

    async def taken(self) -> None:
        """Wait until the consumer takes an event."""
        self._taken = self._taken or asyncio.Event()
        self._taken.clear()
        await self._taken.wait()

    async def next(self) -> E:
        """Return the next event for the consumer.

        Raises:
            StageError: the stream has ended with it.
            StopAsyncIteration: the stream has ended.
        """
        while not (self._ahead or self._events):
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._consumer = asyncio.get_running_loop().create_future()
            await self._consumer
        if self._ahead:
            return self._ahead.popleft()
        if self._taken is not None:
            self._taken.set()
        return self._events.popleft()

    def _wake_consumer(self) -> None:
        waited, self._consumer = self._consumer, None
        if waited is not None and not waited.done():  # done: its consumer was cancelled
            waited.set_result(None)
