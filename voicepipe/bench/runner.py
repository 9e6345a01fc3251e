"""Run the same work many times, partly concurrently, and report the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")

ReportProgress = Callable[[str, int, int], None]
"""(name, number done, total number)"""


async def run_repeated(
    what: str, n: int, at_once: int, work: Callable[[int], Awaitable[Result]], progress: ReportProgress
) -> list[Result]:
    """Run `work` for 0 to `n` - 1, `at_once` at a time; return the results in order of completion."""
    results = list[Result]()
    turns = iter(range(n))

    async def take_turns() -> None:
        for turn in turns:  # shared: each worker takes the next one
            results.append(await work(turn))
            progress(what, len(results), n)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, n)):
            group.create_task(take_turns(), name=f"bench-{what}")
    return results
