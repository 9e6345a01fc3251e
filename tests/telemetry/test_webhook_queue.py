"""The queue of webhooks: what was put in stays until it is settled, in order, within its bounds."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from voicepipe.errors import ConfigError
from voicepipe.telemetry.store.port import StoreError
from voicepipe.telemetry.webhooks.queue import Backlog, NewDelivery, WebhookQueue


def new(id: str, webhook: str = "crm") -> NewDelivery:
    return NewDelivery(webhook, id, "turn.completed", "acme", "sess_1", b"{}")


@asynccontextmanager
async def opened(folder: Path, **most: int) -> AsyncIterator[WebhookQueue]:
    queue = await WebhookQueue.open(folder / "webhooks.sqlite3", **most)
    try:
        yield queue
    finally:
        await queue.close()


async def taken(queue: WebhookQueue, *, now_ms: int, webhook: str = "crm") -> list[str]:
    ids = []
    while (due := await queue.take(webhook, now_ms=now_ms, lease_ms=1_000)) is not None:
        ids.append(due.id)
    return ids


async def test_deliveries_are_taken_in_their_order_once(tmp_path: Path) -> None:
    """Another webhook's are another's; what is put in twice is there once."""
    async with opened(tmp_path) as queue:
        await queue.put([new("a"), new("b"), new("x", "other")], now_ms=10)
        await queue.put([new("a"), new("c")], now_ms=11)
        assert await taken(queue, now_ms=20) == ["a", "b", "c"]
        assert await taken(queue, now_ms=20) == []
        assert await taken(queue, now_ms=20, webhook="other") == ["x"]


async def test_what_is_taken_and_not_settled_is_due_again(tmp_path: Path) -> None:
    """The process that took a delivery may have died; another process sees it due as well."""
    async with opened(tmp_path) as queue:
        await queue.put([new("a")], now_ms=0)
        assert await taken(queue, now_ms=0) == ["a"]
    async with opened(tmp_path) as queue:
        assert await taken(queue, now_ms=999) == []
        assert await queue.next_due_ms("crm") == 1_000
        assert await taken(queue, now_ms=1_000) == ["a"]


async def test_what_is_settled_is_gone_or_due_later_or_dead(tmp_path: Path) -> None:
    async with opened(tmp_path) as queue:
        await queue.put([new("a"), new("b"), new("c")], now_ms=0)
        rows = [await queue.take("crm", now_ms=0, lease_ms=1_000) for _ in range(3)]
        a, b, c = (row.number for row in rows if row is not None)
        await queue.delivered(a)
        await queue.failed(b, why="HTTP 500", due_ms=5_000)
        await queue.give_up(c, why="HTTP 410", now_ms=7)
        assert await queue.backlog() == {"crm": Backlog(waiting=1, dead=1)}
        assert await queue.next_due_ms("crm") == 5_000
        again = await queue.take("crm", now_ms=5_000, lease_ms=1_000)
        assert again is not None
        assert (again.id, again.attempts, again.why) == ("b", 1, "HTTP 500")
        (dead,) = await queue.dead(["crm"], limit=10)
        assert (dead.id, dead.attempts, dead.why, dead.dead_at_ms) == ("c", 1, "HTTP 410", 7)


async def test_dead_deliveries_are_listed_newest_first_and_can_be_revived(tmp_path: Path) -> None:
    """One of them, or all of a webhook; they begin from the first attempt."""
    async with opened(tmp_path) as queue:
        await queue.put([new("a"), new("b"), new("c"), new("x", "other")], now_ms=0)
        for webhook in ("crm", "crm", "crm", "other"):
            due = await queue.take(webhook, now_ms=0, lease_ms=1)
            assert due is not None
            await queue.give_up(due.number, why="HTTP 500", now_ms=1)
        page = await queue.dead(["crm"], limit=2)
        assert [each.id for each in page] == ["c", "b"]
        assert [each.id for each in await queue.dead(["crm"], limit=2, before=page[-1].number)] == ["a"]
        assert await queue.dead([], limit=2) == []
        assert await queue.revive(["crm"], now_ms=9, id="x") == 0
        assert await queue.revive(["crm"], now_ms=9, id="b") == 1
        assert await queue.revive(["crm", "other"], now_ms=9) == 3
        back = await queue.take("crm", now_ms=9, lease_ms=1)
        assert back is not None
        assert (back.attempts, back.dead_at_ms) == (0, None)


async def test_a_full_queue_gives_up_the_oldest_of_that_webhook(tmp_path: Path) -> None:
    """They lie among the dead, of which the oldest is forgotten; another webhook is not touched."""
    async with opened(tmp_path, most_waiting=2, most_dead=2) as queue:
        await queue.put([new("x", "other")], now_ms=0)
        assert await queue.put([new("a"), new("b")], now_ms=0) == 0
        assert await queue.put([new("c"), new("d"), new("e")], now_ms=1) == 3
        assert [each.id for each in await queue.dead(["crm"], limit=9)] == ["c", "b"]
        assert (await queue.dead(["crm"], limit=1))[0].why == "the queue was full"
        assert await taken(queue, now_ms=1) == ["d", "e"]
        assert await taken(queue, now_ms=1, webhook="other") == ["x"]


async def test_the_file_is_private_and_of_this_version_or_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    path = tmp_path / "webhooks.sqlite3"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="made by a newer voicepipe"):
        await WebhookQueue.open(path)
    path.write_bytes(b"no database, but longer than a header of one has to be" * 20)
    with pytest.raises(ConfigError, match="move it away"):
        await WebhookQueue.open(path)


async def test_a_closed_queue_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as queue:
        await queue.close()
        with pytest.raises(StoreError, match="closed"):
            await queue.put([new("a")], now_ms=0)
