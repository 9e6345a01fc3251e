"""Send requests to a store that may be away, hang or fail, behind circuit breakers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload, StorageFailureKind, StoreUnavailable, StoreUndecided
from voicepipe.storage import StorageHealth

T = TypeVar("T")


PROBE_PAUSE_MS: Final = 100
"""Pause between two probes of a store while requests wait for it."""

SNAPSHOT_MS: Final = 5_000
"""How long a request for the snapshot of a session may take: a slow store needs several answers for it, on a connection
that is made first. Nothing waits for it as long: see `MAX_WRITE_WAIT_S` and
`MAX_SECRET_WAIT_S` of `session.snapshot_writer`."""

AGAIN_MS: Final = 250
"""A look-up without an answer by then is sent again over another connection, and so on: after a break of the network a
new connection works at once, an old one only when TCP sends again."""

RETRY_MS: Final = 1_000
"""Pause after which a single request may test an open breaker that nothing waits for."""


@dataclass(slots=True)
class StoreBreaker:
    """The circuit breaker of one kind of requests: reads, writes, shared state or snapshots. Full disks allow reads."""

    answer_ms: int
    """Timeout of a request."""

    probes_itself: bool = False
    """Whether one of its own requests at a time tests the open breaker: there is nothing to write for it, and the probe
    of the other breakers may find the store too slow."""

    is_open: bool = False
    next_probe_ms: int = 0
    """When the next request may be sent while it is open (monotonic)."""

    late: set[asyncio.Task[_Outcome]] = field(default_factory=set)  # bounded: those in progress when the store hung
    probing: asyncio.Task[None] | None = None
    """Tests the store while requests wait for it."""

    awaited_until_ms: int = 0

    def admits(self) -> bool:
        """Return whether a request may be sent now."""
        if not self.is_open:
            return True
        now_ms = monotonic_ms()
        if not self.probes_itself or now_ms < self.next_probe_ms:
            return False
        self.next_probe_ms = now_ms + self.answer_ms + RETRY_MS
        return True


@dataclass(slots=True)
class _Outcome:
    """The result of a request to the store; a task that raises would end its task group."""

    value: Any = None
    error: Exception | None = None

    def or_raise(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(slots=True, eq=False)
class StoreCalls:
    """The requests of one process to its store. Belongs to one event loop.

    Each runs in its own task: cancelling the waiting task does not cancel it, since its effect would be unknown.
    """

    _group: asyncio.TaskGroup
    _health: StorageHealth
    answer_ms: InitVar[int]
    snapshot_ms: InitVar[int] = SNAPSHOT_MS
    reads: StoreBreaker = field(init=False)
    writes: StoreBreaker = field(init=False)
    shared: StoreBreaker = field(init=False)
    """State that nodes share. There is nothing to write after an outage, so it is used again at once."""

    snapshots: StoreBreaker = field(init=False)
    """The snapshots of sessions. A store that is too slow for checks may still be used for these. And a large snapshot
    that takes long must not have client secrets accepted unchecked. So neither opens the other breakers."""

    recovery_needed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the store has failed, or must be written to."""

    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a probe has found the store back."""

    _finishing: set[asyncio.Task[_Outcome]] = field(default_factory=set)  # bounded: one for each request that waits

    def __post_init__(self, answer_ms: int, snapshot_ms: int) -> None:
        self.reads, self.writes, self.shared = StoreBreaker(answer_ms), StoreBreaker(answer_ms), StoreBreaker(answer_ms)
        self.snapshots = StoreBreaker(snapshot_ms, probes_itself=True)

    async def request(
        self, breaker: StoreBreaker, request: Coroutine[Any, Any, T], late: Callable[[T], object] | None = None
    ) -> T:
        """Return the store's answer within the breaker's `answer_ms`.

        `late` gets an answer that comes later: the request has had its effect.

        Raises:
            StoreUnavailable: the store is away, has failed, or hangs.
        """
        if not breaker.admits():
            request.close()
            raise StoreUnavailable()
        call = self._start(request, breaker.late)
        done, _ = await asyncio.wait({call}, timeout=breaker.answer_ms / 1_000)
        if not done:
            if late is not None:
                call.add_done_callback(partial(_deliver, late))
            self._fail(breaker, "unreachable", f"no answer within {breaker.answer_ms} ms")
            raise StoreUnavailable()
        value: T = self._answer(breaker, call.result())
        return value

    async def first_answer(
        self, breaker: StoreBreaker, request: Callable[[], Coroutine[Any, Any, T]], until_ms: int
    ) -> T:
        """Return the first answer to a request that may be repeated, by `until_ms` (monotonic). Without one it is sent
        again every `AGAIN_MS`, over another connection.

        Raises:
            StoreUnavailable: the store is away, has failed, or hangs.
        """
        calls: set[asyncio.Task[_Outcome]] = set()
        try:
            while True:
                if breaker.is_open:
                    raise StoreUnavailable()
                left_ms = until_ms - monotonic_ms()
                calls.add(self._start(request(), breaker.late))
                done, calls = await asyncio.wait(
                    calls, timeout=max(0, min(AGAIN_MS, left_ms)) / 1_000, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    value: T = self._answer(breaker, done.pop().result())
                    return value
                if left_ms <= AGAIN_MS:
                    self._fail(breaker, "unreachable", "no answer to a look-up")
                    raise StoreUnavailable()
        finally:
            for call in calls:  # one that acquires a session would go on to take it from where its client is by now
                call.cancel()

    async def finish(self, request: Coroutine[Any, Any, T], then: Callable[[T], object] | None = None) -> T:
        """Wait until the request is done, however long that takes, and return or raise its result.

        `then` gets the result, also when this task is cancelled meanwhile.
        """
        call = self._start(request, self._finishing)
        if then is not None:
            call.add_done_callback(partial(_deliver, then))
        await asyncio.wait({call})
        value: T = call.result().or_raise()
        return value

    async def wait_for_late(self) -> None:
        """Wait for the requests whose results are not known yet, except those for snapshots."""
        late = {*self.reads.late, *self.writes.late, *self.shared.late, *self._finishing}
        if late:
            await asyncio.wait(late)

    async def wait_until_back(
        self, breaker: StoreBreaker, probe: Callable[[], Coroutine[Any, Any, object]], until_ms: int
    ) -> None:
        """Wait while a breaker is open, at most until `until_ms` (monotonic).

        One probe at a time tests the store for all that wait.
        """
        if not breaker.is_open:
            return
        breaker.awaited_until_ms = max(breaker.awaited_until_ms, until_ms)
        if breaker.probing is None or breaker.probing.done():
            breaker.probing = self._group.create_task(self._probe(breaker, probe), name="store-probe")
        await asyncio.wait({breaker.probing}, timeout=max(0, until_ms - monotonic_ms()) / 1_000)

    async def pause(self, for_ms: int) -> None:
        """Wait before the next attempt to write to a store that is away; shorter if a probe finds it back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_ms / 1_000):
                await self._answered.wait()
        self._answered.clear()

    async def _probe(self, breaker: StoreBreaker, probe: Callable[[], Coroutine[Any, Any, object]]) -> None:
        calls: set[asyncio.Task[_Outcome]] = set()  # bounded: each ends in `answer_ms`
        while breaker.is_open and monotonic_ms() < breaker.awaited_until_ms:
            calls.add(self._start(probe(), breaker.late))
            done, calls = await asyncio.wait(calls, timeout=AGAIN_MS / 1_000, return_when=asyncio.FIRST_COMPLETED)
            if any(call.result().error is None for call in done):
                breaker.is_open = False
                self._answered.set()
            elif done:
                await asyncio.sleep(PROBE_PAUSE_MS / 1_000)

    def cancel(self) -> None:
        """Cancel the requests that are not done."""
        for call in tuple(self._finishing):
            call.cancel()
        for breaker in self._breakers:
            for call in tuple(breaker.late):
                call.cancel()
            if breaker.probing is not None:
                breaker.probing.cancel()

    def failed(self, breaker: StoreBreaker, gone: Overload) -> None:
        """Open the breaker: send no request of this kind until the store is back."""
        kind, detail = (gone.kind, gone.detail) if isinstance(gone, StoreUnavailable) else ("unknown", gone.why)
        self._fail(breaker, kind, detail)

    def worked(self) -> None:
        """Use the store again."""
        for breaker in self._breakers:
            breaker.is_open = False
        self._health.worked("shared")

    @property
    def _breakers(self) -> tuple[StoreBreaker, ...]:
        return self.reads, self.writes, self.shared, self.snapshots

    def _answer(self, breaker: StoreBreaker, outcome: _Outcome) -> Any:
        if isinstance(outcome.error, Overload) and not isinstance(outcome.error, StoreUndecided):
            self.failed(breaker, outcome.error)
            raise StoreUnavailable()
        if breaker.probes_itself:
            breaker.is_open = False
        return outcome.or_raise()

    def _fail(self, breaker: StoreBreaker, kind: StorageFailureKind, detail: str) -> None:
        breaker.is_open, breaker.next_probe_ms = True, monotonic_ms() + RETRY_MS
        self.recovery_needed.set()
        if kind == "unreachable":
            # A snapshot, or an announcement while this process was busy, that takes long must not have client secrets
            # accepted unchecked: those find out themselves. Nor is it a failure yet: the test that follows finds that.
            if breaker is self.shared or breaker is self.snapshots:
                return
            self.reads.is_open = self.writes.is_open = self.shared.is_open = True
        self._health.failed("shared", kind, detail)

    def _start(self, request: Coroutine[Any, Any, Any], running: set[asyncio.Task[_Outcome]]) -> asyncio.Task[_Outcome]:
        call = self._group.create_task(_outcome(request), name="store-call")
        running.add(call)
        call.add_done_callback(running.discard)
        call.add_done_callback(lambda _: request.close())  # one that was cancelled before its first step never ran
        return call


async def _outcome(request: Coroutine[Any, Any, Any]) -> _Outcome:
    try:
        return _Outcome(await request)
    except Exception as error:
        return _Outcome(error=error)


def _deliver(then: Callable[[Any], object], call: asyncio.Task[_Outcome]) -> None:
    if not call.cancelled() and call.result().error is None:
        then(call.result().value)
