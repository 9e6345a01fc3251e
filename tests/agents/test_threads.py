"""Functions that are not async: what hangs or ends in one stays there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from voicepipe.agents import ToolError, ToolSession, tool
from voicepipe.agents.threads import MAX_THREADS, run_in_thread
from voicepipe.testing.waiting import WAIT_S

SESSION = ToolSession(session_id="sess_1", project="p", agent="default", identity="Ada")


async def test_functions_that_hang_leave_the_event_loops_threads_to_others() -> None:
    """Addresses of providers are looked up in these: six functions that hung stopped every session."""
    began, released = threading.Semaphore(0), threading.Event()

    @tool
    def wait() -> bool:
        began.release()
        return released.wait(WAIT_S)

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(wait.call("{}", SESSION)) for _ in range(MAX_THREADS)]
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.to_thread(lambda: [began.acquire(timeout=WAIT_S) for _ in calls])
                with pytest.raises(ToolError, match=f"limit {MAX_THREADS}"):
                    await wait.call("{}", SESSION)
        finally:
            released.set()
    assert [call.result() for call in calls] == ["true"] * MAX_THREADS
    assert await wait.call("{}", SESSION) == "true"


async def test_a_result_that_nothing_waits_for_is_dropped() -> None:
    released = threading.Event()
    call = asyncio.create_task(run_in_thread(lambda: released.wait(WAIT_S)), name="call")
    await asyncio.sleep(0)
    call.cancel()
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await run_in_thread(lambda: "next") == "next"


async def test_what_a_function_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_thread(lambda: next(iter(())))


@pytest.mark.slow
def test_a_function_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from voicepipe.agents.threads import run_in_thread

async def main():
    try:
        async with asyncio.timeout(0.05):
            await run_in_thread(threading.Event().wait)
    except TimeoutError:
        print("over")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert (ended.stdout, ended.stderr) == ("over\n", "")
