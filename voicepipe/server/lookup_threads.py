"""Threads for what is looked up about credentials, and for nothing else.

The loop's own threads are everybody's: sound that is encoded, pages that are read. Who shows a good credential must not
wait behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 2

Found = TypeVar("Found")


class LookupThreads:
    """Some threads of their own. What waits for them is bounded by the requests that run."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookup")

    async def run(self, look: Callable[[], Found]) -> Found:
        """Return what `look` finds; it may wait for a file."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, look)
