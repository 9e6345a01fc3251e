"""A transcriber's texts reach the session whole, however its stream ends."""

from __future__ import annotations

import asyncio

import pytest

from voicepipe.errors import StageBroken
from voicepipe.ports.transcriber import EndOfTurn, Final, TranscriptEvent
from voicepipe.providers.stt.transcript_queue import TranscriptQueue
from voicepipe.testing.waiting import WAIT_S

TEXTS: list[TranscriptEvent] = [Final(1, 1, "yes"), EndOfTurn(1, 0.9)]


@pytest.mark.parametrize("bound", [2, 8], ids=["full", "with room"])
async def test_texts_that_wait_are_read_after_the_end(bound: int) -> None:
    """A connection that has reached its maximum age ends right behind its last texts."""
    queue = TranscriptQueue(bound)
    for text in TEXTS:
        await queue.put(text)
    queue.close()
    async with asyncio.timeout(WAIT_S):
        assert [text async for text in queue] == TEXTS
        assert [text async for text in queue] == []


async def test_the_end_wakes_a_reader() -> None:
    queue = TranscriptQueue(2)
    reading = asyncio.create_task(_all_of(queue))
    await asyncio.sleep(0)
    queue.close()
    async with asyncio.timeout(WAIT_S):
        assert await reading == []


async def test_a_failure_comes_after_the_texts_and_stays() -> None:
    queue = TranscriptQueue(8)
    for text in TEXTS:
        queue.put_now(text)
    await queue.put(StageBroken("stt", provider="v/ear", why="cut", retryable=True))
    async with asyncio.timeout(WAIT_S):
        assert [await anext(queue) for _ in TEXTS] == TEXTS
        for _ in range(2):
            with pytest.raises(StageBroken):
                await anext(queue)


async def _all_of(queue: TranscriptQueue) -> list[TranscriptEvent]:
    return [text async for text in queue]
