"""Threads for credential lookups only.

The loop's own threads are shared by all work: encoding audio, reading pages. A client with a valid credential must not
wait behind that work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 2

Found = TypeVar("Found")


class LookupThreads:
    """A thread pool of its own. Its queue is bounded by the number of running requests."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookup")

    async def run(self, look_up: Callable[[], Found]) -> Found:
        """Return what `look_up` returns; it may wait for a file."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
