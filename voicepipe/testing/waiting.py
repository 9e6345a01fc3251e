"""Waiting for what only shows from outside: bounded, and loud when it does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 20.0
"""Far over what a healthy run needs, so that only a hang meets it."""

PROBE_S = 0.05


async def eventually(probe: Callable[[], Awaitable[T | None]]) -> T:
    """The first answer of `probe` that is not None, asked again and again.

    Raises:
        TimeoutError: there was none within `WAIT_S`.
    """
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await probe()
            if found is not None:
                return found
            await asyncio.sleep(PROBE_S)
