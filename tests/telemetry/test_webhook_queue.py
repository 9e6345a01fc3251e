"""The queue of webhooks: what was put in stays until it has ended, in order, within its bounds."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.telemetry.test_postgres import emptied
from voicepipe.errors import ConfigError
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.store.statements import Work
from voicepipe.telemetry.webhooks import queue as queue_module
from voicepipe.telemetry.webhooks.queue import Backlog, NewDelivery, WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import FILE_NAME, QueueFile
from voicepipe.telemetry.webhooks.queue_postgres import MIGRATIONS, QueuePostgres
from voicepipe.testing.postgres import postgres


def new(id: str, webhook: str = "crm") -> NewDelivery:
    return NewDelivery(webhook, id, "turn.completed", "acme", "sess_1", b"{}")


class TimedQueue(WebhookQueue):
    """A queue whose database has a clock that a test may set."""

    clock_ms: int | None = None

    @property
    def _now_ms(self) -> str:
        return super()._now_ms if self.clock_ms is None else f"CAST({self.clock_ms} AS bigint)"


def at(queue: TimedQueue, now_ms: int) -> TimedQueue:
    """Set the database's clock."""
    queue.clock_ms = now_ms
    return queue


Open = Callable[..., AbstractAsyncContextManager[TimedQueue]]
"""Opens the queue, with what was queued before; arguments are its bounds."""


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest_asyncio.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """A queue that is empty, in a file and in Postgres."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    if url:
        await emptied(url)

    @asynccontextmanager
    async def opening(**most: int) -> AsyncIterator[TimedQueue]:
        database = await QueuePostgres.open(url) if url else await QueueFile.open(tmp_path / FILE_NAME)
        queue = TimedQueue(database, **most)
        try:
            yield queue
        finally:
            await queue.close()

    return opening


async def taken(queue: WebhookQueue, *, webhook: str = "crm") -> list[str]:
    ids = []
    while (due := await queue.take(webhook, lease_ms=1_000)) is not None:
        ids.append(due.id)
    return ids


async def test_deliveries_are_taken_in_their_order_once(opened: Open) -> None:
    """Another webhook's are another's; what is put in twice is there once."""
    async with opened() as queue:
        await at(queue, 10).put([new("a"), new("b"), new("x", "other")])
        await at(queue, 11).put([new("a"), new("c")])
        assert await taken(at(queue, 20)) == ["a", "b", "c"]
        assert await taken(queue) == []
        assert await taken(queue, webhook="other") == ["x"]


async def test_what_is_taken_and_not_ended_is_due_again(opened: Open) -> None:
    """The process that took a delivery may have died; another process sees it due as well."""
    async with opened() as queue:
        await at(queue, 0).put([new("a")])
        assert await taken(queue) == ["a"]
    async with opened() as queue:
        assert await taken(at(queue, 999)) == []
        assert await queue.due_in_ms("crm") == 1
        assert await taken(at(queue, 1_000)) == ["a"]


async def test_what_has_ended_is_gone_or_due_later_or_dead(opened: Open) -> None:
    async with opened() as queue:
        await at(queue, 0).put([new("a"), new("b"), new("c")])
        rows = [await queue.take("crm", lease_ms=1_000) for _ in range(3)]
        a, b, c = (row for row in rows if row is not None)
        await queue.delivered(a)
        await queue.failed(b, why="HTTP 500", wait_ms=5_000)
        await at(queue, 7).give_up(c, why="HTTP 410")
        assert await queue.backlog() == {"crm": Backlog(waiting=1, dead=1)}
        assert await queue.due_in_ms("crm") == 4_993
        again = await at(queue, 5_000).take("crm", lease_ms=1_000)
        assert again is not None
        assert (again.id, again.attempts, again.why) == ("b", 1, "HTTP 500")
        (dead,) = await queue.dead(["crm"], limit=10)
        assert (dead.id, dead.attempts, dead.why, dead.dead_at_ms) == ("c", 1, "HTTP 410", 7)


async def test_dead_deliveries_are_listed_newest_first_and_can_be_revived(opened: Open) -> None:
    """One of them, or all of a webhook; they begin from the first attempt."""
    async with opened() as queue:
        await at(queue, 0).put([new("a"), new("b"), new("c"), new("x", "other")])
        for webhook in ("crm", "crm", "crm", "other"):
            due = await queue.take(webhook, lease_ms=1)
            assert due is not None
            await queue.give_up(due, why="HTTP 500")
        page = await queue.dead(["crm"], limit=2)
        assert [each.id for each in page] == ["c", "b"]
        assert [each.id for each in await queue.dead(["crm"], limit=2, before=page[-1].number)] == ["a"]
        assert await queue.dead([], limit=2) == []
        assert await at(queue, 9).revive(["crm"], id="x") == 0
        assert await queue.revive(["crm"], id="b") == 1
        assert await queue.revive(["crm", "other"]) == 3
        back = await queue.take("crm", lease_ms=1)
        assert back is not None
        assert (back.attempts, back.dead_at_ms) == (0, None)


async def test_a_full_queue_gives_up_the_oldest_of_that_webhook(opened: Open) -> None:
    """They lie among the dead, of which the oldest is forgotten; another webhook is not touched."""
    async with opened(max_waiting=2, max_dead=2) as queue:
        await at(queue, 0).put([new("x", "other")])
        assert await queue.put([new("a"), new("b")]) == 0
        assert await at(queue, 1).put([new("c"), new("d"), new("e")]) == 3
        assert [each.id for each in await queue.dead(["crm"], limit=9)] == ["c", "b"]
        assert (await queue.dead(["crm"], limit=1))[0].why == "the queue was full"
        assert await taken(queue) == ["d", "e"]
        assert await taken(queue, webhook="other") == ["x"]


async def test_the_file_is_private_and_of_this_version_or_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    await (await QueueFile.open(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="made by a newer voicepipe"):
        await QueueFile.open(path)
    path.write_bytes(b"no database, but longer than a header of one has to be" * 20)
    with pytest.raises(ConfigError, match="move it away"):
        await QueueFile.open(path)


async def test_a_closed_queue_says_so(opened: Open) -> None:
    async with opened() as queue:
        await queue.close()
        with pytest.raises(StoreError, match="closed"):
            await queue.put([new("a")])


async def test_each_delivery_is_leased_to_one_of_many_nodes(opened: Open) -> None:
    """They take at the same time, and none gets what another has."""
    async with opened() as one, opened() as other:
        await at(one, 0).put([new(str(number)) for number in range(60)])
        at(other, 0)
        parts = await asyncio.gather(*(taken(queue) for queue in (one, other) for _ in range(2)))
    assert sorted(int(id) for part in parts for id in part) == list(range(60))


async def test_a_lease_that_another_process_has_is_not_ended(opened: Open) -> None:
    """A process that was paused in mid-attempt neither makes the delivery due, while another one sends it, nor gives
    it up. If its attempt was a success, nobody sends it again."""
    async with opened() as paused, opened() as other:
        await at(paused, 0).put([new("a")])
        late = await paused.take("crm", lease_ms=1_000)
        taken_again = await at(other, 1_000).take("crm", lease_ms=1_000)
        assert late is not None
        assert taken_again is not None
        assert late.id == taken_again.id
        await at(paused, 1_001).failed(late, why="HTTP 500", wait_ms=0)
        await paused.give_up(late, why="HTTP 410")
        assert await paused.due_in_ms("crm") == 999
        await other.failed(taken_again, why="HTTP 503", wait_ms=5)
        again = await at(other, 1_006).take("crm", lease_ms=1_000)
        assert again is not None
        assert (again.attempts, again.why) == (1, "HTTP 503")
        await paused.delivered(late)
        assert await other.backlog() == {}


async def test_what_a_file_held_is_moved_to_postgres(tmp_path: Path, postgres_url: str) -> None:
    """Also what was given up, with its attempts; what is there already is not there twice."""
    await emptied(postgres_url)
    file, shared = TimedQueue(await QueueFile.open(tmp_path / FILE_NAME)), None
    try:
        shared = TimedQueue(await QueuePostgres.open(postgres_url))
        await at(shared, 3).put([new("b")])
        await at(file, 3).put([new("a"), new("b"), new("c")])
        due = await file.take("crm", lease_ms=1)
        assert due is not None
        await at(file, 4).give_up(due, why="HTTP 500")
        assert await file.move_all(shared) == 3
        assert (await file.backlog(), await shared.backlog()) == ({}, {"crm": Backlog(waiting=2, dead=1)})
        (dead,) = await shared.dead(["crm"], limit=9)
        assert (dead.id, dead.attempts, dead.why, dead.dead_at_ms, dead.made_at_ms) == ("a", 1, "HTTP 500", 4, 3)
    finally:
        for queue in (file, shared):
            if queue is not None:
                await queue.close()


async def test_a_queue_is_moved_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is deleted before the next is inserted: what a failure leaves in both queues is one part at most."""
    monkeypatch.setattr(queue_module, "MOVED_AT_ONCE", 2)
    former = WebhookQueue(await QueueFile.open(tmp_path / "former"))
    shared = WebhookQueue(await QueueFile.open(tmp_path / "shared"))
    parts: list[tuple[int, int]] = []

    class Failing:
        """The queue that is moved to; its third part fails."""

        now_ms, skip_locked = "0", ""

        async def write(self, work: Work[Any]) -> Any:
            parts.append((waiting(await former.backlog()), waiting(await shared.backlog())))
            if len(parts) == 3:
                raise StoreError("the connection is lost")
            return await shared._database.write(work)

        async def close(self) -> None:
            pass

    try:
        await former.put([new(str(number)) for number in range(7)])
        with pytest.raises(StoreError):
            await former.move_all(WebhookQueue(Failing()))
        assert parts == [(7, 0), (5, 2), (3, 4)]
        assert await former.move_all(shared) == 3
        assert (await former.backlog(), waiting(await shared.backlog())) == ({}, 7)
    finally:
        await former.close()
        await shared.close()


def waiting(backlog: dict[str, Backlog]) -> int:
    return sum(each.waiting for each in backlog.values())


async def test_tables_of_a_newer_version_are_refused(postgres_url: str) -> None:
    """And made once, however many start."""
    await emptied(postgres_url)
    for each in await asyncio.gather(*(QueuePostgres.open(postgres_url) for _ in range(3))):
        await each.close()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("UPDATE voicepipe.webhooks_version SET version = $1", len(MIGRATIONS) + 1)
    await connection.close()
    with pytest.raises(ConfigError, match="made by a newer voicepipe"):
        await QueuePostgres.open(postgres_url)
