"""The server ends a session: at once, or when the running turn has been played."""

from __future__ import annotations

import asyncio

import pytest

from voicepipe.session import shutdown as module
from voicepipe.session.shutdown import Ending, EndingRequests
from voicepipe.testing.waiting import WAIT_S

FIRST, SECOND = Ending("limit_reached", "first", 1008), Ending("token_revoked", "second", 4001)


async def due(requests: EndingRequests) -> Ending:
    async with asyncio.timeout(WAIT_S):
        return await requests.due()


async def test_a_running_turn_is_waited_for() -> None:
    requests = EndingRequests()
    requests.turn_over()
    waiting = asyncio.get_running_loop().create_task(requests.due())
    requests.after_turn(FIRST)
    requests.after_turn(SECOND)
    await asyncio.sleep(0)
    assert not waiting.done()
    requests.turn_over()
    assert await asyncio.wait_for(waiting, WAIT_S) is FIRST


async def test_at_once_goes_before_what_was_said_earlier() -> None:
    requests = EndingRequests()
    requests.after_turn(FIRST)
    requests.now(SECOND)
    requests.after_turn(FIRST)
    assert await due(requests) is SECOND


async def test_a_turn_without_end_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LAST_TURN_S", 0)
    requests = EndingRequests()
    requests.after_turn(FIRST)
    assert await due(requests) is FIRST
