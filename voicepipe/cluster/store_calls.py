"""Requests to a store that may be away, hang or fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload, StoreUnavailable, TroubleKind
from voicepipe.storage import StorageHealth

T = TypeVar("T")


PROBE_PAUSE_MS: Final = 100
"""Pause between two probes of a store while requests wait for it."""


@dataclass(slots=True)
class Side:
    """Reads, writes, or what nodes share: with a full disk, reads still work."""

    away: bool = False
    probing: asyncio.Task[None] | None = None
    """Tests the store while requests wait for it."""

    awaited_until_ms: int = 0


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
    _answer_ms: int
    reads: Side = field(default_factory=Side)
    writes: Side = field(default_factory=Side)
    shared: Side = field(default_factory=Side)
    """What nodes tell each other: nothing of it is owed to a store that was away, so it is used again at once."""

    trouble: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the store has failed, or must be written to."""

    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a probe has found the store back."""

    _late: set[asyncio.Task[_Outcome]] = field(default_factory=set)  # bounded: those in progress when the store hung

    async def request(
        self, side: Side, request: Coroutine[Any, Any, T], late: Callable[[T], object] | None = None
    ) -> T:
        """Return the store's answer within `answer_ms`. `late` gets an answer that comes later: its effect stands.

        Raises:
            StoreUnavailable: the store is away, has failed, or hangs.
        """
        if side.away:
            request.close()
            raise StoreUnavailable()
        call = self._start(request)
        done, _ = await asyncio.wait({call}, timeout=self._answer_ms / 1_000)
        if not done:
            if late is not None:
                call.add_done_callback(partial(_deliver, late))
            self._fail(side, "unreachable", f"no answer within {self._answer_ms} ms")
            raise StoreUnavailable()
        outcome = call.result()
        if isinstance(outcome.error, Overload):
            self.failed(side, outcome.error)
            raise StoreUnavailable()
        value: T = outcome.or_raise()
        return value

    async def finish(self, request: Coroutine[Any, Any, T], then: Callable[[T], object] | None = None) -> T:
        """Wait until the request is done, however long that takes, and return or raise its result.

        `then` gets the result, also when this task is cancelled meanwhile.
        """
        call = self._start(request)
        if then is not None:
            call.add_done_callback(partial(_deliver, then))
        await asyncio.wait({call})
        value: T = call.result().or_raise()
        return value

    async def wait_for_late(self) -> None:
        """Wait for the requests whose results are not known yet."""
        if self._late:
            await asyncio.wait(tuple(self._late))

    async def wait_until_back(
        self, side: Side, probe: Callable[[], Coroutine[Any, Any, object]], until_ms: int
    ) -> None:
        """Wait while a side is away, at most until `until_ms` (monotonic). However many wait, one probe at a time tests
        the store."""
        if not side.away:
            return
        side.awaited_until_ms = max(side.awaited_until_ms, until_ms)
        if side.probing is None or side.probing.done():
            side.probing = self._group.create_task(self._probe(side, probe), name="store-probe")
        await asyncio.wait({side.probing}, timeout=max(0, until_ms - monotonic_ms()) / 1_000)

    async def pause(self, for_ms: int) -> None:
        """Wait before the next attempt to write to a store that is away; shorter if a probe finds it back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_ms / 1_000):
                await self._answered.wait()
        self._answered.clear()

    async def _probe(self, side: Side, probe: Callable[[], Coroutine[Any, Any, object]]) -> None:
        while side.away and monotonic_ms() < side.awaited_until_ms:
            outcome = await _outcome(probe())
            if outcome.error is None:
                side.away = False
                self._answered.set()
            else:
                await asyncio.sleep(PROBE_PAUSE_MS / 1_000)

    def cancel(self) -> None:
        """Cancel the requests that are not done."""
        for call in tuple(self._late):
            call.cancel()
        for side in (self.reads, self.writes, self.shared):
            if side.probing is not None:
                side.probing.cancel()

    def failed(self, side: Side, gone: Overload) -> None:
        """Send no request to this side of the store until it is back."""
        kind, detail = (gone.kind, gone.detail) if isinstance(gone, StoreUnavailable) else ("unknown", gone.why)
        self._fail(side, kind, detail)

    def worked(self) -> None:
        """Use the store again."""
        self.reads.away = self.writes.away = self.shared.away = False
        self._health.worked("shared")

    def _fail(self, side: Side, kind: TroubleKind, detail: str) -> None:
        side.away = True
        self.trouble.set()
        if kind == "unreachable":
            # A large text, or an announcement while this process was busy, that takes long must not have client secrets
            # accepted unchecked: those find out themselves. Nor is it a failure yet: the test that follows finds that.
            if side is self.shared:
                return
            self.reads.away = self.writes.away = self.shared.away = True
        self._health.failed("shared", kind, detail)

    def _start(self, request: Coroutine[Any, Any, Any]) -> asyncio.Task[_Outcome]:
        call = self._group.create_task(_outcome(request), name="store-call")
        self._late.add(call)
        call.add_done_callback(self._late.discard)
        return call


async def _outcome(request: Coroutine[Any, Any, Any]) -> _Outcome:
    try:
        return _Outcome(await request)
    except Exception as error:
        return _Outcome(error=error)


def _deliver(then: Callable[[Any], object], call: asyncio.Task[_Outcome]) -> None:
    if not call.cancelled() and call.result().error is None:
        then(call.result().value)
