"""A queue of webhook deliveries in a database: queued deliveries survive a crash of the process.

Several processes may share it, on one machine or on many: a delivery that one of them has taken is leased to it. All
instants are those of the database's clock, since the clocks of machines differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from voicepipe.telemetry.store.statements import Work, any_of, execute, fetch

T = TypeVar("T")

MAX_WAITING: Final = 10_000
"""Maximum of deliveries that wait for one webhook: a day of a receiver that is down, at one turn in nine seconds."""

MAX_DEAD: Final = 10_000
"""Maximum of stored dead letters of one webhook."""

MOVED_AT_ONCE: Final = 100
"""Deliveries that are moved to another queue in one transaction. They are in memory: fewer than a queue may hold."""

_COLUMNS: Final = "number, webhook, id, kind, project, session, body, made_at_ms, attempts, why, dead_at_ms, due_ms"


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """A delivery: an event for one webhook."""

    number: int
    webhook: str
    id: str
    kind: str
    project: str
    session: str
    body: bytes = field(repr=False)
    made_at_ms: int
    attempts: int
    """Failed attempts."""

    why: str
    """The error of the latest attempt."""

    dead_at_ms: int | None
    """Time at which it was given up; None: it waits."""

    due_ms: int
    """When it is due again. Each `take` sets a later instant, which identifies the lease."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """An event to be sent to a webhook."""

    webhook: str
    id: str
    kind: str
    project: str
    session: str
    body: bytes = field(repr=False)


class Backlog(Struct, frozen=True):
    """The number of pending deliveries and of dead letters of one webhook."""

    waiting: int = 0
    dead: int = 0


class QueueDatabase(Protocol):
    """Runs work on the queue's tables, each in a transaction of its own.

    Every method raises `StoreError` when the database fails, or when it is closed.
    """

    skip_locked: str
    """Makes a `SELECT` leave out the rows that another process is changing; empty where only one can change any."""

    @property
    def now_ms(self) -> str:
        """Return SQL for the present instant of its clock, in unix ms."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run work."""
        ...

    async def close(self) -> None:
        """Close the database after running work; a second call does nothing."""
        ...


class WebhookQueue:
    """The queue. Every method raises `StoreError` when the database can't be read or written."""

    def __init__(self, database: QueueDatabase, *, max_waiting: int = MAX_WAITING, max_dead: int = MAX_DEAD) -> None:
        self._database = database
        self._max_waiting, self._max_dead = max_waiting, max_dead

    async def put(self, deliveries: Sequence[NewDelivery]) -> int:
        """Queue deliveries durably; return how many old ones were given up because the queue was full."""
        return await self._database.write(self._put(deliveries))

    async def take(self, webhook: str, *, lease_ms: int) -> WebhookDelivery | None:
        """Return the delivery that is due longest, due again after `lease_ms` unless it has ended; None: none is
        due."""
        return await self._database.write(self._take(webhook, lease_ms))

    async def due_in_ms(self, webhook: str) -> int | None:
        """Return in how many ms the next delivery is due, 0 or less if it is now; None: nothing waits."""
        return await self._database.write(self._due_in_ms(webhook))

    async def delivered(self, delivery: WebhookDelivery) -> None:
        """Delete a delivery that arrived, also if its lease has passed to another node."""
        await self._database.write(execute("DELETE FROM deliveries WHERE number = ?", [(delivery.number,)]))

    async def failed(self, delivery: WebhookDelivery, *, why: str, wait_ms: int) -> None:
        """Count a failed attempt; the next one is made after `wait_ms`. Nothing changes where the lease has ended and
        another process has taken the delivery."""
        update = (
            f"UPDATE deliveries SET attempts = attempts + 1, why = ?, due_ms = {self._now_ms} + ?"
            " WHERE number = ? AND due_ms = ?"
        )
        await self._database.write(execute(update, [(why, wait_ms, delivery.number, delivery.due_ms)]))

    async def give_up(self, delivery: WebhookDelivery, *, why: str) -> None:
        """Give a delivery up after one more failed attempt; not where another process has taken it, as `failed`."""
        await self._database.write(self._give_up(delivery, why))

    async def backlog(self) -> dict[str, Backlog]:
        """Return how many wait and how many were given up, by webhook; a webhook with neither is left out."""
        return await self._database.write(_backlog())

    async def dead(self, webhooks: Sequence[str], *, limit: int, before: int | None = None) -> list[WebhookDelivery]:
        """Return the deliveries given up, newest first; older than the delivery of the number `before`."""
        return await self._database.write(_dead(webhooks, limit, before)) if webhooks else []

    async def revive(self, webhooks: Sequence[str], *, id: str | None = None) -> int:
        """Queue deliveries given up again, from the first attempt on; return how many."""
        return await self._database.write(self._revive(webhooks, id)) if webhooks else 0

    async def delete_session(self, project: str, session: str) -> int:
        """Delete all deliveries about a session; return how many."""
        return await self._database.write(_delete_session(project, session))

    async def move_all(self, to: WebhookQueue) -> int:
        """Move all deliveries, waiting and given up, to another queue, `MOVED_AT_ONCE` at a time; return how many. A
        crash in between leaves at most `MOVED_AT_ONCE` in both. Only one process may move them: a second one would put
        back deliveries that have arrived meanwhile."""
        n_moved = 0
        while rows := await self._database.write(fetch(_OLDEST, MOVED_AT_ONCE)):
            await to._database.write(execute(_MOVE, [row[1:] for row in rows]))
            await self._database.write(execute("DELETE FROM deliveries WHERE number = ?", [(row[0],) for row in rows]))
            n_moved += len(rows)
        return n_moved

    async def close(self) -> None:
        """Close the database after running work; closing twice does nothing."""
        await self._database.close()

    @property
    def _now_ms(self) -> str:
        return self._database.now_ms

    def _put(self, deliveries: Sequence[NewDelivery]) -> Work[int]:
        rows = [(d.webhook, d.id, d.kind, d.project, d.session, d.body) for d in deliveries]
        yield from execute(
            "INSERT INTO deliveries (webhook, id, kind, project, session, body, made_at_ms, due_ms)"
            f" VALUES (?, ?, ?, ?, ?, ?, {self._now_ms}, {self._now_ms}) ON CONFLICT (webhook, id) DO NOTHING",
            rows,
        )
        n_gone = 0
        for webhook in sorted({d.webhook for d in deliveries}):
            n_gone += yield from self._evict_oldest(webhook)
        return n_gone

    def _evict_oldest(self, webhook: str) -> Work[int]:
        """Give up the oldest deliveries above the limit: new ones matter more, and the old ones can be queued again."""
        gone = yield from fetch(
            f"UPDATE deliveries SET dead_at_ms = {self._now_ms}, why = 'the queue was full'"
            " WHERE webhook = ? AND dead_at_ms IS NULL"
            " AND number <= (SELECT number FROM deliveries WHERE webhook = ? AND dead_at_ms IS NULL"
            " ORDER BY number DESC LIMIT 1 OFFSET ?) RETURNING number",
            *(webhook, webhook, self._max_waiting),
        )
        if gone:
            yield from self._delete_dead(webhook)
        return len(gone)

    def _give_up(self, delivery: WebhookDelivery, why: str) -> Work[None]:
        rows = yield from fetch(
            f"UPDATE deliveries SET attempts = attempts + 1, why = ?, dead_at_ms = {self._now_ms}"
            " WHERE number = ? AND due_ms = ? RETURNING webhook",
            *(why, delivery.number, delivery.due_ms),
        )
        for (webhook,) in rows:  # none: another process has it, or it was dropped for space and deleted meanwhile
            yield from self._delete_dead(webhook)

    def _delete_dead(self, webhook: str) -> Work[None]:
        """Delete the dead letters above the limit, the oldest first."""
        yield from execute(
            "DELETE FROM deliveries WHERE webhook = ? AND dead_at_ms IS NOT NULL AND (dead_at_ms, number) <="
            " (SELECT dead_at_ms, number FROM deliveries WHERE webhook = ? AND dead_at_ms IS NOT NULL"
            " ORDER BY dead_at_ms DESC, number DESC LIMIT 1 OFFSET ?)",
            [(webhook, webhook, self._max_dead)],
        )

    def _take(self, webhook: str, lease_ms: int) -> Work[WebhookDelivery | None]:
        rows = yield from fetch(
            f"UPDATE deliveries SET due_ms = {self._now_ms} + ? WHERE number = (SELECT number FROM deliveries"
            f" WHERE webhook = ? AND dead_at_ms IS NULL AND due_ms <= {self._now_ms} ORDER BY due_ms, number LIMIT 1"
            f"{self._database.skip_locked}) RETURNING {_COLUMNS}",
            *(lease_ms, webhook),
        )
        return WebhookDelivery(*rows[0]) if rows else None

    def _due_in_ms(self, webhook: str) -> Work[int | None]:
        ((due_in_ms,),) = yield from fetch(
            f"SELECT min(due_ms) - {self._now_ms} FROM deliveries WHERE webhook = ? AND dead_at_ms IS NULL", webhook
        )
        return due_in_ms if due_in_ms is None else int(due_in_ms)

    def _revive(self, webhooks: Sequence[str], id: str | None) -> Work[int]:
        one_only, parameters = ("", ()) if id is None else (" AND id = ?", (id,))
        rows = yield from fetch(
            f"UPDATE deliveries SET dead_at_ms = NULL, attempts = 0, due_ms = {self._now_ms}"
            f" WHERE dead_at_ms IS NOT NULL AND {any_of('webhook', len(webhooks))}{one_only} RETURNING number",
            *(*webhooks, *parameters),
        )
        return len(rows)


_OLDEST: Final = f"SELECT {_COLUMNS} FROM deliveries ORDER BY number LIMIT ?"

_MOVE: Final = (
    "INSERT INTO deliveries (webhook, id, kind, project, session, body, made_at_ms, attempts, why, dead_at_ms, due_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (webhook, id) DO NOTHING"
)


def _backlog() -> Work[dict[str, Backlog]]:
    rows = yield from fetch(
        "SELECT webhook, count(*) FILTER (WHERE dead_at_ms IS NULL), count(*) FILTER (WHERE dead_at_ms IS NOT NULL)"
        " FROM deliveries GROUP BY webhook"
    )
    return {webhook: Backlog(waiting, dead) for webhook, waiting, dead in rows}


def _dead(webhooks: Sequence[str], limit: int, before: int | None) -> Work[list[WebhookDelivery]]:
    older, number = ("", ()) if before is None else (" AND number < ?", (before,))
    rows = yield from fetch(
        f"SELECT {_COLUMNS} FROM deliveries WHERE dead_at_ms IS NOT NULL AND {any_of('webhook', len(webhooks))}{older}"
        " ORDER BY number DESC LIMIT ?",
        *(*webhooks, *number, limit),
    )
    return [WebhookDelivery(*row) for row in rows]


def _delete_session(project: str, session: str) -> Work[int]:
    rows = yield from fetch(
        "DELETE FROM deliveries WHERE session = ? AND project = ? RETURNING number", session, project
    )
    return len(rows)
