"""Functions of a session that the server runs: each call is its own, and one with side effects may have to wait."""

from __future__ import annotations

import asyncio

from voicepipe.agents import tool
from voicepipe.ports.server_tool import ToolSession
from voicepipe.session.server_tools import SessionTools
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn import commands as c
from voicepipe.turn import events as e


async def test_a_look_up_is_cancelled_and_not_its_successor() -> None:
    """The results have the revision of their call."""
    ended: asyncio.Queue[e.Event] = asyncio.Queue()
    waiting: asyncio.Queue[str] = asyncio.Queue()
    release, cancelled = asyncio.Event(), asyncio.Event()

    @tool(side_effects=False)
    async def look_up(day: str) -> str:
        waiting.put_nowait(day)
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return f"{day} at nine"

    session = ToolSession(session_id="s", project="p", agent="a", identity="", metadata={})
    tools = SessionTools([look_up], session, ended.put_nowait, lambda: None, lambda agent: None)
    assert look_up.facts.runs_early
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for revision, day in enumerate(("Monday", "Tuesday")):
            tools.run(c.RunTool(1, "call_0", "look_up", f'{{"day": "{day}"}}', revision), group)
            assert await waiting.get() == day
        tools.cancel(c.CancelTool(1, "call_0"))
        tools.cancel(c.CancelTool(1, "call_0", 0))
        await cancelled.wait()
        release.set()
        assert await ended.get() == e.ToolFinished(1, "call_0", "Tuesday at nine", revision=1)
        tools.run(c.RunTool(1, "call_0", "nothing", "{}", 2), group)
        refused = await ended.get()
    assert isinstance(refused, e.ToolFinished)
    assert (refused.outcome, refused.revision) == ("failed", 2)
    assert ended.empty()


async def test_only_a_function_with_side_effects_waits_until_it_may_run() -> None:
    ended: asyncio.Queue[e.Event] = asyncio.Queue()
    may_run = asyncio.Event()

    async def held() -> None:
        await may_run.wait()

    @tool(side_effects=False)
    async def look_up() -> str:
        return "at nine"

    @tool
    async def book() -> str:
        return "booked"

    session = ToolSession(session_id="s", project="p", agent="a", identity="", metadata={})
    tools = SessionTools([look_up, book], session, ended.put_nowait, lambda: None, lambda agent: None, None, held)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        tools.run(c.RunTool(1, "call_0", "book", "{}"), group)
        tools.run(c.RunTool(1, "call_1", "look_up", "{}"), group)
        assert await ended.get() == e.ToolFinished(1, "call_1", "at nine")
        assert ended.empty()
        may_run.set()
        assert await ended.get() == e.ToolFinished(1, "call_0", "booked")
