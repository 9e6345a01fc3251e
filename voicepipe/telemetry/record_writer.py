"""A queue of records between a session, which never waits for a disk, and the store, which does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from voicepipe.errors import ConfigError
from voicepipe.storage import StorageHealth, kind_of
from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.log import log_crash, log_records_lost
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import RecordRefused, StoredTurn, StoreError, TurnWriter
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordWriterOptions:
    """Limits of the queue of records before the store."""

    capacity: int = 2_000
    """Maximum of turns that wait. On the busiest machine far fewer end in a quarter of a second."""

    flush_ms: int = 250
    """Time for which the record of a running turn waits for others. The record of a turn that has ended is written at
    once, with all that wait. A crash loses the transaction in progress."""

    retry_ms: int = 500
    max_retry_ms: int = 5_000
    """Pause between two tries at a failing store: starts at `retry_ms`, doubles each time, at most this."""

    drain_ms: int = 5_000
    """Time limit of the shutdown for writing the queued records."""

    def __post_init__(self) -> None:
        if min(self.capacity, self.flush_ms, self.retry_ms, self.max_retry_ms, self.drain_ms) <= 0:
            raise ConfigError(f"records: expected capacity and times above 0, got {self}")


_DEFAULTS: Final = RecordWriterOptions()

CLOSING_MS: Final = 100
"""Pause between two tries while closing: there is little time."""

QueuedTurns = tuple[tuple[tuple[str, str], StoredTurn], ...]

Redact = Callable[[str], str]
"""Returns a text without personal data."""


class _Unredacted(Struct, frozen=True):
    """A turn whose texts are to be redacted before anything else gets it."""

    turn: StoredTurn
    redact: Redact

    def redacted(self) -> StoredTurn:
        """Return the turn without personal data; without its texts, if the search for them fails. In a thread."""
        try:
            return replace(self.turn, record=with_texts(self.turn.record, self.redact))
        except Exception as bug:
            log_crash("redaction", bug, session=self.turn.record.session)
            return replace(self.turn, record=with_texts(self.turn.record, lambda text: ""))


class RecordWriter:
    """Queues records at once and writes them to a store in batches, one transaction each.

    `async with RecordWriter(store) as record_writer:` owns the tasks that redact and write. While the store fails,
    records wait and are tried again at growing intervals: none is lost while there is room. Only an invalid record is
    dropped. Leaving redacts and writes the queued records, within `drain_ms`. Use it from the event loop that opened
    it.
    """

    def __init__(
        self,
        store: TurnWriter,
        options: RecordWriterOptions = _DEFAULTS,
        *,
        observers: Sequence[Callable[[StoredTurn], None]] = (),
        health: StorageHealth | None = None,
    ) -> None:
        """The handlers `observers` get every offered turn, whether it finds room or not; they return at once."""
        self._store, self._options, self._observers = store, options, tuple(observers)
        self._health = health if health is not None else new_health()
        # Full means that the store is away: a new turn is dropped and counted. A turn that waits already is replaced
        # by its newer record, which takes no more room. The batch in progress may have as many again.
        self._waiting: dict[tuple[str, str], StoredTurn] = {}
        self._writing: dict[tuple[str, str], StoredTurn] = {}
        # Records and, between them, calls that wait for them. Full: a new record is dropped and counted.
        self._unredacted: deque[_Unredacted | Callable[[], None]] = deque()
        self._unredacted_waiting = asyncio.Event()
        self._records_waiting, self._closing = asyncio.Event(), asyncio.Event()
        self._due = asyncio.Event()
        """Set when the records that wait are to be written at once."""

        self._batch_over = asyncio.Event()
        """Set, and replaced, when the store has written a batch or failed to."""

        self._group = asyncio.TaskGroup()
        self._is_loss_logged = False
        self.dropped = 0
        """Turns dropped because the queue was full, before the store got them."""
        self.lost = 0
        """Turns that the store failed to write."""

    @property
    def n_waiting(self) -> int:
        """Return how many turns wait for the store."""
        n_unredacted = sum(isinstance(each, _Unredacted) for each in self._unredacted)
        return len(self._waiting) + len(self._writing) + n_unredacted

    def offer(self, turn: StoredTurn) -> None:
        """Queue a turn to be written soon. Never waits, never raises; without room it is dropped and counted."""
        self._pass_on(turn, late=self._closing.is_set())

    def when_passed_on(self, call: Callable[[], None]) -> None:
        """Call `call` when the observers have all records that were offered until now: at once, unless some are still
        being redacted."""
        if self._unredacted:
            self._unredacted.append(call)
        else:
            call()

    async def wait_until_written(self, session: str) -> None:
        """Wait until the store has all records of a session that were offered until now; without end if it is away."""
        passed_on = asyncio.Event()
        self.when_passed_on(passed_on.set)
        await passed_on.wait()
        while any(each.record.session == session for each in (*self._waiting.values(), *self._writing.values())):
            await self._batch_over.wait()

    def _redact_first(self, turn: StoredTurn, redact: Redact) -> None:
        full = len(self._unredacted) >= self._options.capacity
        if full or self._closing.is_set():
            self._drop(full=full)
            return
        self._unredacted.append(_Unredacted(turn, redact))
        self._unredacted_waiting.set()

    def _pass_on(self, turn: StoredTurn, *, late: bool) -> None:
        for observer in self._observers:
            with isolated("telemetry"):
                observer(turn)
        key = (turn.project, turn.record.id)
        full = len(self._waiting) >= self._options.capacity and key not in self._waiting
        if full or late:
            self._drop(full=full)
            return
        self._waiting[key] = turn
        self._records_waiting.set()
        if turn.record.outcome is not None:
            self._due.set()

    def _drop(self, *, full: bool) -> None:
        self.dropped += 1
        self._log_lost(1, "too many records wait" if full else "the record came after the shutdown")

    def of_session(
        self,
        *,
        project: str,
        agent: str,
        began_unix_ms: int,
        store_texts: bool,
        user: str = "",
        pool: str = "",
        redact: Redact | None = None,
    ) -> Callable[[TurnRecord], None]:
        """Return the function that a session calls with each record (`store_record`); it never waits, never raises.

        Args:
            project: the session's project.
            agent: the session's agent.
            began_unix_ms: when its clock was 0, in ms since 1970 UTC.
            store_texts: False empties the texts, before the record is queued anywhere.
            user: the user, as the token's issuer names them.
            redact: applied to the texts in a thread, before anything else gets the record; None: they stay.
            pool: the agent's own pool, for turns that no other one was chosen for.
        """

        def store_record(record: TurnRecord) -> None:
            began_ms = record.marks[0][1] if record.marks else 0
            stored = record if store_texts else without_texts(record)
            turn = StoredTurn(
                stored,
                project,
                agent,
                began_unix_ms + began_ms,
                user=user,
                language=record.language,
                route=record.pool or pool,
                arm=record.arm,
            )
            if redact is None:
                self.offer(turn)
            else:
                self._redact_first(turn, redact)

        return store_record

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._redact_until_closed(), name="redaction")
        self._group.create_task(self._write_until_closed(), name="record-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        self._closing.set()
        self._due.set()
        self._unredacted_waiting.set()
        self._records_waiting.set()
        try:
            async with asyncio.timeout(self._options.drain_ms / 1_000):
                # The reason for leaving is not passed on: with an error the group would cancel its task, which still
                # has to write.
                await self._group.__aexit__(None, None, None)
        except TimeoutError:
            n_left = self.n_waiting
            self.lost += n_left
            self._is_loss_logged = False
            self._log_lost(n_left, "the store did not write them before the shutdown")
            for each in self._unredacted:
                if not isinstance(each, _Unredacted):
                    with isolated("telemetry"):
                        each()

    async def _redact_until_closed(self) -> None:
        """Redact records in a thread: a long text takes some 40 ms, which the event loop does not have."""
        while self._unredacted or not self._closing.is_set():
            await self._unredacted_waiting.wait()
            self._unredacted_waiting.clear()
            while self._unredacted:
                first = self._unredacted[0]
                if isinstance(first, _Unredacted):
                    self._pass_on(await asyncio.to_thread(first.redacted), late=False)
                else:
                    with isolated("telemetry"):
                        first()
                self._unredacted.popleft()
        self._records_waiting.set()  # the writer may end

    async def _write_until_closed(self) -> None:
        pause_ms, until = self._options.flush_ms, self._due
        while self._writing or self._waiting or self._unredacted or not self._closing.is_set():
            await self._records_waiting.wait()
            await self._pause(pause_ms, until)
            if await self._write():
                pause_ms, until = self._options.flush_ms, self._due
            else:
                pause_ms = min(max(2 * pause_ms, self._options.retry_ms), self._options.max_retry_ms)
                until = self._closing
            self._batch_over.set()
            self._batch_over = asyncio.Event()

    async def _pause(self, pause_ms: int, until: asyncio.Event) -> None:
        """Wait for more records, or for the store to recover, at most until the event; at the end only a short time."""
        if self._closing.is_set():
            await asyncio.sleep(min(pause_ms, self._options.flush_ms, CLOSING_MS) / 1_000 if self._writing else 0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1_000):
                await until.wait()

    async def _write(self) -> bool:
        """Return whether the store wrote the batch; else the records wait."""
        if not self._writing:
            self._writing, self._waiting = self._waiting, {}
            self._records_waiting.clear()
            self._due.clear()
        n_lost = self.lost
        try:
            if self._writing:
                await self._store_batch(tuple(self._writing.items()))
        except _StoreAwayError as why:
            self._health.failed("records", why.kind, str(why))
            self._records_waiting.set()  # there is something to write, though nothing new came
            return False
        self._health.worked("records")
        self._is_loss_logged = self._is_loss_logged and self.lost > n_lost
        if self._waiting:
            self._records_waiting.set()
        return True

    async def _store_batch(self, turns: QueuedTurns) -> None:
        """Write these records. An invalid one is found by halving, and is the only loss.

        Raises:
            _StoreAwayError: the store fails now. Records that it wrote before are no longer in `_writing`.
        """
        try:
            await self._store.store(tuple(turn for _, turn in turns))
        except Exception as why:  # any other error of a store: a record is not worth a session
            if isinstance(why, StoreError | OSError) and not isinstance(why, RecordRefused):
                kind = why.kind if isinstance(why, StoreError) else kind_of(why)
                raise _StoreAwayError(f"{type(why).__name__}: {why}", kind) from why
            if len(turns) > 1:
                half = len(turns) // 2
                await self._store_batch(turns[:half])
                await self._store_batch(turns[half:])
                return
            self.lost += 1
            self._log_lost(1, f"{type(why).__name__}: {why}")
        for key, _ in turns:
            self._writing.pop(key, None)

    def _log_lost(self, count: int, why: str) -> None:
        """Log lost records once until a batch is written again; all are counted."""
        if not self._is_loss_logged:
            self._is_loss_logged = True
            log_records_lost(count, why)


class _StoreAwayError(StoreError):
    """Raised when the store takes nothing now."""


def without_texts(record: TurnRecord) -> TurnRecord:
    """Return the record without its texts."""
    tools = tuple(replace(each, arguments="") for each in record.tools)
    return replace(record, user_text="", agent_text="", played_text="", tools=tools)


def with_texts(record: TurnRecord, redact: Callable[[str], str]) -> TurnRecord:
    """Return the record with its texts as `redact` returns them."""
    return replace(
        record,
        user_text=redact(record.user_text),
        agent_text=redact(record.agent_text),
        played_text=redact(record.played_text),
        # A provider may quote the words that it refuses.
        reason=redact(record.reason),
        route=redact(record.route),
        attempts=tuple(replace(each, why=redact(each.why)) for each in record.attempts),
        tools=tuple(replace(each, arguments=redact(each.arguments)) for each in record.tools),
    )
