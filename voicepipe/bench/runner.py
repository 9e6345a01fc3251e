"""The same work many times, some of it at once, with word of how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""(what is measured, how many are done, of how many)."""


async def run_repeated(
    what: str, n: int, at_once: int, work: Callable[[int], Awaitable[Result]], progress: Progress
) -> list[Result]:
    """Have `work` done for 0 to `n` - 1, `at_once` at a time; the results as they came."""
    results = list[Result]()
    turns = iter(range(n))

    async def take_turns() -> None:
        for turn in turns:  # shared: each takes the next one
            results.append(await work(turn))
            progress(what, len(results), n)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, n)):
            group.create_task(take_turns(), name=f"bench-{what}")
    return results
