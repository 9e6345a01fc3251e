"""The tasks of a stage, and the events that its parts wait for."""

from __future__ import annotations

import asyncio
import sys

from voicepipe.tasks import AsyncEvent


async def test_an_event_wakes_all_that_wait_and_forgets_who_left() -> None:
    """As that of asyncio does, whose list of waiters it replaces by a smaller one."""
    event, woken = AsyncEvent(), list[int]()

    async def wait(number: int) -> None:
        await event.wait()
        woken.append(number)

    first, second, leaving = (asyncio.create_task(wait(number)) for number in range(3))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    event.set()
    await asyncio.gather(first, second)
    assert woken == [0, 1]
    assert event.is_set()
    assert await event.wait()
    event.clear()
    assert not event.is_set()


def test_an_event_is_smaller_than_that_of_asyncio() -> None:
    assert sys.getsizeof(AsyncEvent()._waiters) < sys.getsizeof(asyncio.Event()._waiters) / 4
