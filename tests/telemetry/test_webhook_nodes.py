"""Webhooks of nodes that share a queue in Postgres: each event is delivered by one of them, also if the other dies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.telemetry.test_postgres import emptied, postgres_url
from tests.telemetry.test_webhook_sender import QUICK, SECRET, Receiver, receiving
from voicepipe import clock
from voicepipe.telemetry.webhooks.payload import Webhook, read_secrets
from voicepipe.telemetry.webhooks.queue import WebhookQueue
from voicepipe.telemetry.webhooks.queue_postgres import QueuePostgres
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.testing.waiting import eventually

__all__ = ["postgres_url"]

N_EVENTS = 20


@asynccontextmanager
async def node(database: str, receiver: Receiver, *, timeout_ms: int = 10_000) -> AsyncIterator[Webhooks]:
    """Run a node; leaving the block ends it as a kill would: what it has taken stays leased to it."""
    hook = Webhook(name="crm", url=receiver.url, secrets=read_secrets(SECRET), timeout_ms=timeout_ms)
    queue = WebhookQueue(await QueuePostgres.open(database))
    webhooks = Webhooks([hook], queue, QUICK)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(webhooks.run())
            yield webhooks
            running.cancel()
    finally:
        await queue.close()


def offer(webhooks: Webhooks, *numbers: int) -> None:
    for number in numbers:
        webhooks.notify("session.ended", "acme", "sess_1", lambda n=number: {"n": n})  # type: ignore[misc]


async def delivered(webhooks: Webhooks) -> bool | None:
    """Return whether nothing waits any more."""
    assert webhooks.queue is not None
    await webhooks.write_waiting_events()
    return not await webhooks.queue.backlog() or None


async def test_two_live_nodes_deliver_each_event_once(postgres_url: str) -> None:
    await emptied(postgres_url)
    async with receiving() as receiver, node(postgres_url, receiver) as one, node(postgres_url, receiver) as other:
        offer(one, *range(0, N_EVENTS, 2))
        offer(other, *range(1, N_EVENTS, 2))
        for each in (one, other):
            await each.write_waiting_events()
        await eventually(lambda: delivered(one))
        got = [receiver.got.get_nowait() for _ in range(receiver.got.qsize())]
    assert sorted(json.loads(body)["data"]["n"] for _, body in got) == list(range(N_EVENTS))


async def test_what_a_dead_node_had_taken_is_delivered_by_another(postgres_url: str) -> None:
    """When its lease has ended, and with the same id."""
    await emptied(postgres_url)
    async with receiving("hang") as receiver:
        async with node(postgres_url, receiver, timeout_ms=200) as dying:
            offer(dying, 1)
            first, _ = await receiver.next()
        async with node(postgres_url, receiver) as other:
            second, body = await receiver.next()
            await eventually(lambda: delivered(other))
    assert (json.loads(body)["data"], second["webhook-id"]) == ({"n": 1}, first["webhook-id"])


async def test_a_clock_that_is_ahead_ends_no_lease(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node whose clock is an hour ahead of the others': it sends only what is its own."""
    await emptied(postgres_url)
    async with receiving("hang") as receiver, node(postgres_url, receiver) as one:
        offer(one, 1)
        await receiver.next()
        monkeypatch.setattr(clock, "_unix_ns", lambda: time.time_ns() + 3_600_000_000_000)
        async with node(postgres_url, receiver) as ahead:
            offer(ahead, 2)
            await ahead.write_waiting_events()
            _, body = await receiver.next()
            assert json.loads(body)["data"] == {"n": 2}
            assert ahead.queue is not None
            due_in_ms = await ahead.queue.due_in_ms("crm")
            assert due_in_ms is not None
            assert 0 < due_in_ms <= 20_000
        assert receiver.got.empty()
