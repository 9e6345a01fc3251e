"""The queue between a routed stream's calls and its consumer: a provider waits while it is full."""

from __future__ import annotations

import asyncio

from voicepipe.router.race_runner import StreamQueue
from voicepipe.testing.waiting import WAIT_S


async def waiting(queue: StreamQueue[int]) -> asyncio.Task[None]:
    """Return a task that waits for room."""
    task = asyncio.ensure_future(queue.wait_for_space())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def full() -> StreamQueue[int]:
    """Return a queue without room."""
    queue = StreamQueue[int](2)
    for event in (1, 2, 3):
        queue.put(event)
    return queue


async def test_a_provider_waits_until_its_consumer_has_taken_enough() -> None:
    """One event more than fits: the first that is taken makes no room yet."""
    queue = full()
    task = await waiting(queue)
    assert await queue.next() == 1
    await asyncio.sleep(0)
    assert not task.done()
    assert await queue.next() == 2
    await asyncio.wait_for(task, WAIT_S)
    assert len(queue) == 1


async def test_the_end_of_the_stream_ends_the_wait() -> None:
    """Its consumer has left, and takes nothing more."""
    queue = full()
    task = await waiting(queue)
    queue.end()
    await asyncio.wait_for(task, WAIT_S)


async def test_a_queue_with_room_is_not_waited_for() -> None:
    queue = StreamQueue[int](2)
    queue.put(1)
    await asyncio.wait_for(queue.wait_for_space(), WAIT_S)


async def test_an_event_after_its_consumer_was_cancelled_waits_for_the_next() -> None:
    queue = StreamQueue[int](2)
    consumer = asyncio.ensure_future(queue.next())
    await asyncio.sleep(0)
    consumer.cancel()
    queue.put(1)
    await asyncio.wait([consumer])
    assert consumer.cancelled()
    assert await queue.next() == 1
