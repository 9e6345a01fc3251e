"""Between a session, which never waits for a disk, and the store, which does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from voicepipe.errors import ConfigError
from voicepipe.telemetry.apart import apart
from voicepipe.telemetry.log import log_records_lost
from voicepipe.telemetry.store import KeptTurn, TurnStore
from voicepipe.turn.record import TurnRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkOptions:
    """How long records may wait for the store, and how many."""

    capacity: int = 2_000
    """Turns that wait at most. A quarter of a second of the busiest machine is far fewer."""

    flush_ms: int = 250
    """A record waits no longer for others to be written with. A crash loses this much, and a transaction."""

    drain_ms: int = 5_000
    """How long closing may take to write what still waits."""

    def __post_init__(self) -> None:
        if min(self.capacity, self.flush_ms, self.drain_ms) <= 0:
            raise ConfigError(f"records: expected capacity, flush_ms and drain_ms above 0, got {self}")


_AS_USUAL: Final = SinkOptions()


class TurnSink:
    """Takes records at once and writes them to a store in batches, one transaction each.

    `async with TurnSink(store) as sink:` owns the one task that writes. Leaving writes what still
    waits, within `drain_ms`. The store's failures stay here: they are counted, and logged once
    until a batch is written again. Use it from the event loop that opened it.
    """

    def __init__(
        self, store: TurnStore, options: SinkOptions = _AS_USUAL, *, heard_by: Sequence[Callable[[KeptTurn], None]] = ()
    ) -> None:
        """`heard_by`: are told of every turn that is offered, whether it finds room or not; they return at once."""
        self._store, self._options, self._heard_by = store, options, tuple(heard_by)
        # Full means that the store is stuck: a new turn is dropped and counted. A turn that waits already is
        # replaced by its newer record, which takes no more room.
        self._waiting: dict[tuple[str, str], KeptTurn] = {}
        self._writing: dict[tuple[str, str], KeptTurn] = {}
        self._offered, self._closing = asyncio.Event(), asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._failing = False
        self.dropped = 0
        """Turns that found no room, before the store saw them."""
        self.lost = 0
        """Turns that the store failed to write."""

    def offer(self, turn: KeptTurn) -> None:
        """Take a turn to be written soon. Never waits, never raises; without room it is dropped and counted."""
        for hear in self._heard_by:
            with apart("telemetry"):
                hear(turn)
        key = (turn.project, turn.record.id)
        full = len(self._waiting) >= self._options.capacity and key not in self._waiting
        if full or self._closing.is_set():
            self.dropped += 1
            return
        self._waiting[key] = turn
        self._offered.set()

    def of_session(
        self,
        *,
        project: str,
        agent: str,
        began_unix_ms: int,
        keep_texts: bool,
        user: str = "",
        way: Callable[[str], tuple[str, str]] = lambda words: ("", ""),
    ) -> Callable[[TurnRecord], None]:
        """What a session calls with each record (`KeepRecord`); never waits, never raises.

        Args:
            project: whom the session belongs to.
            agent: whose settings it has.
            began_unix_ms: when its clock was 0, in ms since 1970 UTC.
            keep_texts: False empties the texts, before the record is queued anywhere.
            user: who calls, as the token's maker names them.
            way: tells the pool and the experiment's arm from a record's route in words.
        """

        def keep_record(record: TurnRecord) -> None:
            began_ms = record.marks[0][1] if record.marks else 0
            kept = record if keep_texts else without_texts(record)
            route, arm = way(record.route)
            whose = {"user": user, "language": record.language, "route": route, "arm": arm}
            self.offer(KeptTurn(kept, project, agent, began_unix_ms + began_ms, **whose))

        return keep_record

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._write_until_closed(), name="turn-sink")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        self._closing.set()
        self._offered.set()
        try:
            async with asyncio.timeout(self._options.drain_ms / 1_000):
                # Not told why we leave: knowing of an error it would cancel its task, which still has to write.
                await self._group.__aexit__(None, None, None)
        except TimeoutError:
            self._count_lost(len(self._writing) + len(self._waiting), "the store did not take them before closing")

    async def _write_until_closed(self) -> None:
        while self._waiting or not self._closing.is_set():
            await self._offered.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.flush_ms / 1_000):
                    await self._closing.wait()
            await self._write()

    async def _write(self) -> None:
        self._writing, self._waiting = self._waiting, {}
        self._offered.clear()
        try:
            if self._writing:
                await self._store.keep(tuple(self._writing.values()))
                self._failing = False
        except Exception as why:  # whatever is wrong with a store, a record is not worth a call
            self._count_lost(len(self._writing), f"{type(why).__name__}: {why}")
        self._writing = {}

    def _count_lost(self, count: int, why: str) -> None:
        self.lost += count
        if not self._failing:
            self._failing = True
            log_records_lost(count, why)


def without_texts(record: TurnRecord) -> TurnRecord:
    """The record without what was said."""
    return replace(record, caller_text="", agent_text="", heard_text="")
